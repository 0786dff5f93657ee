"""A client on a network: it survives crashes, outages and restarts."""
