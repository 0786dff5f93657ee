"""docs/protocol.md says what the code does: every message, policy, trigger, refusal and number."""

from __future__ import annotations

import re
from pathlib import Path

from fedbandit import messages
from fedbandit.messages import KINDS, Ask, Contribution, Tell
from fedbandit.model import TIE
from fedbandit.network import envelope
from fedbandit.network.client.conversation import PROTOCOL
from fedbandit.network.refusal import STATUS, TRANSIENT
from fedbandit.network.resolved import client_terms
from fedbandit.parts import name_of
from fedbandit.policies import POLICIES
from fedbandit.protocols.trigger import CountGrowth, Growth, Silence, TimedGrowth
from tests.network.servers import AGREEMENT

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def test_messages_and_formats() -> None:
    for number, kind in KINDS.items():
        if kind not in (Ask, Tell, Contribution) and not 10 <= number < 20:  # between peers, and of secure sums
            assert re.search(rf"^\| {number} \| {kind.__name__} \|", TEXT, re.MULTILINE), kind.__name__
    assert f"| format | 2 | u8 | {envelope.FORMAT} |" in TEXT
    assert f"| format | 2 | u8 | {messages.FORMAT} |" in TEXT
    assert envelope.SIZE == 64
    assert PROTOCOL in TEXT
    assert TIE == 1e-9


def test_everything_in_an_invitation_is_explained() -> None:
    table = TEXT[TEXT.index("## Invitation") : TEXT.index("## Frames and messages")]
    for name in client_terms(AGREEMENT, 0):
        assert f"`{name}`" in table, name


def test_policies_triggers_and_refusals() -> None:
    for name in POLICIES:
        assert f"| `{name}` |" in TEXT, name
    for trigger in (Growth, TimedGrowth, CountGrowth, Silence):
        assert f"| `{name_of(trigger)}` |" in TEXT
    refusals = TEXT[TEXT.index("A **refusal** is") : TEXT.index("### What a client does with a message")]
    for kind in STATUS:
        assert f"`{kind}`" in refusals, kind
    by_itself = refusals[: refusals.index("tries again by itself")]
    assert {kind for kind in STATUS if f"`{kind}`" in by_itself} == set(TRANSIENT)
