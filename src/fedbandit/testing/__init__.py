"""For tests, of this project and of others' parts: a network that fails on purpose."""
