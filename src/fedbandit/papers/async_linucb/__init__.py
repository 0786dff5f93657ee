"""Li & Wang, Asynchronous Upper Confidence Bound Algorithms for Federated Linear Bandits, 2022."""
