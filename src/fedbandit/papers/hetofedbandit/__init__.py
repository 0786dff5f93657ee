"""Blaser, Li & Wang, Federated Linear Contextual Bandits with Heterogeneous Clients, AISTATS 2024."""
