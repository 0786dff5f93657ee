"""The simulator: a compiled loop that runs until something has to be decided, and Python that decides it."""

from fedbandit.engine.result import Communication, Result
from fedbandit.engine.simulation import simulate

__all__ = ["Communication", "Result", "simulate"]
