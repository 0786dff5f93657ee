"""The commands, one module each: `SUMMARY`, `add_flags(parser)` and `run(options) -> int`.

`main` is the dispatcher. What is heavy (NumPy, Numba, the systems) is imported inside `run`, so that
`fedbandit --help` answers at once.
"""
