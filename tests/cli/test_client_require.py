"""What `fedbandit client` insists on."""

from __future__ import annotations

import argparse

from fedbandit.cli.client import _require, add_flags
from fedbandit.privacy.guarantee import Require


def test_flags_say_what_clients_require() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    usual = ["http://127.0.0.1:1", "--federation", "shops"]
    assert _require(parser.parse_args(usual)) is None, "clients insist by themselves where privacy is claimed"
    given = parser.parse_args([*usual, "--require-epsilon", "1", "--require-trust", "sums"])
    assert _require(given) == Require(epsilon=1.0, trust="sums")
