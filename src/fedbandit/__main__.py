"""`python -m fedbandit` is the command line."""

from fedbandit.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
