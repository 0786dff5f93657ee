"""Stored states that cannot be read are refused with a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.errors import FedbanditError
from fedbandit.state import FORMAT, State, pack, unpack

STORED = pack(State({"steps": 3}, {"row": np.arange(2.0)}))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (STORED[:5], "has 5 bytes, which is too few"),
        (b"XYZ" + STORED[3:], "starts with b'XYZ'"),
        (STORED[:3] + bytes([FORMAT - 1]) + STORED[4:], f"format {FORMAT - 1}, expected b'FBS' format {FORMAT}"),
        (STORED[:3] + bytes([FORMAT + 1]) + STORED[4:], f"format {FORMAT + 1}, expected b'FBS' format {FORMAT}"),
        (STORED[:-1], "cannot be read"),
    ],
)
def test_what_cannot_be_read(data: bytes, sentence: str) -> None:
    """Rows of an older format have their numbers in another order: to go on with them would be silently wrong."""
    with pytest.raises(FedbanditError, match=sentence):
        unpack(data)
