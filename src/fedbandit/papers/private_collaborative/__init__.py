"""Wang et al., Global and Local Differential Privacy for Collaborative Bandits, RecSys 2020."""
