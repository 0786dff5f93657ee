"""Relays: a coordinator below, one member above."""
