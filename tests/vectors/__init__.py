"""The corpus of cases that every client runs, whatever its language: docs/protocol.md, "The corpus"."""
