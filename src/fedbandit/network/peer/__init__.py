"""Peers on a network without a coordinator."""
