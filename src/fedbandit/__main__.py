"""`python -m fedbandit` is the command line."""

from fedbandit.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
