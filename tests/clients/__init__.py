"""Clients in other languages, against our coordinator."""
