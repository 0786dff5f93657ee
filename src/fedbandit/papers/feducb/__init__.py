"""Dubey & Pentland, Differentially-Private Federated Linear Bandits, NeurIPS 2020."""
