"""Combinations that no paper has: fronts of privacy, regret and communication."""
