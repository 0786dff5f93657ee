"""What clients, gateways and local servers insist on by flags."""

from __future__ import annotations

import argparse
from types import ModuleType

import pytest

from fedbandit.cli import client, gateway, local_server
from fedbandit.cli.arguments import required
from fedbandit.privacy.guarantee import Require


@pytest.mark.parametrize(
    ("command", "usual"),
    [
        (client, ["http://127.0.0.1:1", "--federation", "shops"]),
        (gateway, ["--coordinator", "http://127.0.0.1:1", "--federation", "shops"]),
        (local_server, ["http://127.0.0.1:1", "--federation", "shops"]),
    ],
)
def test_flags_say_what_members_require(command: ModuleType, usual: list[str]) -> None:
    parser = argparse.ArgumentParser()
    command.add_flags(parser)
    assert required(parser.parse_args(usual)) is None, "members insist by themselves where privacy is claimed"
    flags = ["--require-epsilon", "1", "--require-trust", "sums", "--require-definition", "joint"]
    given = parser.parse_args([*usual, *flags, "--require-unit", "one interaction"])
    assert required(given) == Require(epsilon=1.0, trust="sums", definition="joint", unit="one interaction")
