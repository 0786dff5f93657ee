"""Liu et al., Federated Online Clustering of Bandits, UAI 2022."""
