"""What carries messages between machines on a network."""
