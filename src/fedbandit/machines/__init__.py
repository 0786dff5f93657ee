"""Machines: messages in, messages out; no I/O, no clock."""
