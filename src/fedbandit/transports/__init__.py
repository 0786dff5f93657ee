"""What carries messages between machines. So far: a link inside one process, for tests and conformance checks."""

from fedbandit.transports.link import Link

__all__ = ["Link"]
