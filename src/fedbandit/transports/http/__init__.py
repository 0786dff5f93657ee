"""A coordinator as an ASGI service, and the client that talks to it."""
