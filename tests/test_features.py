"""Named values as bounded vectors: the same everywhere, never too long, and bad values named."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.errors import FedbanditError
from fedbandit.features import Features
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.world import World

SHOP = Features(
    context={"age": {"number": [0, 100]}, "member": "boolean", "country": {"category": ["de", "fr"], "other": True}},
    action={"price": {"number": [0, 50]}, "tags": {"hash": 8}, "kind": {"category": ["book", "film"]}},
    interactions=[("country", "kind"), ("age", "tags")],
)
CONTEXT = {"age": 30, "member": True, "country": "fr"}
BOOK = {"price": 10, "tags": ["new", 7], "kind": "book"}


def test_entries_by_hand() -> None:
    x = SHOP.transform([BOOK], CONTEXT)[0] * np.sqrt(6 + 2 + 1)
    expected = dict.fromkeys(SHOP.names, 0.0)
    expected |= {"age": -0.4, "country=fr": 1, "member": 1, "kind=book": 1, "price": -0.6, "intercept": 1}
    expected["country=fr×kind=book"] = 1
    tags = np.zeros(8)
    for value in ("new", "7"):
        digest = hashlib.sha256(b"tags\0" + value.encode()).digest()
        tags[int(digest[:8].hex(), 16) % 8] += -1 if digest[8] % 2 else 1
    tags /= max(float(np.linalg.norm(tags)), 1.0)
    expected |= {f"tags#{k}": tag for k, tag in enumerate(tags)}
    expected |= {f"age×tags#{k}": -0.4 * tag for k, tag in enumerate(tags)}
    assert len(x) == SHOP.dim == len(SHOP.names)
    np.testing.assert_allclose(x, list(expected.values()), atol=1e-15)


VALUES = {
    "age": st.none() | st.floats(-1e300, 1e300) | st.integers(-(10**9), 10**9),
    "member": st.none() | st.booleans(),
    "country": st.none() | st.text(st.characters(codec="utf-8")),
    "price": st.floats(-10, 100),
    "tags": st.none() | st.lists(st.text(st.characters(codec="utf-8")) | st.integers(-(2**53) + 1, 2**53 - 1)),
    "kind": st.sampled_from([None, "book", "film"]),
}


@given(st.fixed_dictionaries(VALUES))
def test_no_context_is_longer_than_one(values: dict[str, Any]) -> None:
    X = SHOP.transform([{k: values[k] for k in SHOP.action}], {k: values[k] for k in SHOP.context})
    assert np.linalg.norm(X) <= 1 + 1e-12


def test_another_process_gives_the_same_bits() -> None:
    script = (
        "import json, sys, fedbandit as fb; said = json.load(sys.stdin);"
        "print(fb.Features.of_json(said[0]).transform([said[1]], said[2]).tobytes().hex())"
    )
    said = json.dumps([SHOP.as_json(), BOOK, CONTEXT], sort_keys=True)
    done = subprocess.run([sys.executable, "-c", script], input=said, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == SHOP.transform([BOOK], CONTEXT).tobytes().hex()


def test_the_encoding_is_one_of_the_terms() -> None:
    world = World(n_clients=2, dim=SHOP.dim, horizon=100)
    agreement = Agreement("async-linucb", world=world, schema=Schema.of(SHOP))
    again = Agreement.of_json(json.loads(json.dumps(agreement.as_json(), sort_keys=True)))
    assert again == agreement
    assert again.digest == agreement.digest
    other = Features(SHOP.context, {**SHOP.action, "price": {"number": [0, 51]}}, SHOP.interactions)
    assert Agreement("async-linucb", world=world, schema=Schema.of(other)).digest != agreement.digest
    with pytest.raises(FedbanditError, match="features would mean something else"):
        agreement.require_sound_change(Agreement("async-linucb", world=world, schema=Schema.of(other)), [0])


@pytest.mark.parametrize(
    ("action", "context", "sentence"),
    [
        (BOOK, CONTEXT | {"age": "old"}, "column 'age' is 'old', but must be a finite number."),
        (BOOK, CONTEXT | {"age": True}, "column 'age' is 'true', but must be a finite number."),
        (BOOK, CONTEXT | {"age": float("nan")}, "column 'age' is nan, but must be a finite number."),
        (BOOK, CONTEXT | {"member": 1}, "column 'member' is 1, but must be true or false."),
        (BOOK, CONTEXT | {"country": 3}, "column 'country' is 3, but must be a text."),
        (BOOK, {"age": 3, "member": True}, "Column 'country' of the context is missing; give null if it is not known."),
        (BOOK, CONTEXT | {"contry": "de"}, "There is no column of the context 'contry'; did you mean 'country'?"),
        (BOOK | {"kind": "bok"}, CONTEXT, "There is no value of column 'kind' 'bok'; did you mean 'book'?"),
        (BOOK | {"tags": 0.5}, CONTEXT, "column 'tags' is 0.5, but must be a text, a whole number within ±2⁵³, or a "),
        (BOOK | {"tags": 2**53}, CONTEXT, "column 'tags' is 9007199254740992, but must be a text"),
        (BOOK | {"tags": "\ud800"}, CONTEXT, "Column 'tags' is '\\ud800', but must be a text that UTF-8 has."),
        ([1, 2], CONTEXT, "the action is [1, 2], but must be an object with a value for each column."),
    ],
)
def test_bad_values_are_named(action: Any, context: Any, sentence: str) -> None:
    with pytest.raises(FedbanditError) as error:
        SHOP.transform([action], context)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({}, "columns is [], but must be at least one, of context or action."),
        ({"action": {"x": {"number": [1, 1]}}}, "Column 'x': the range of a number is [1, 1], but must be [low, high]"),
        ({"action": {"x": {"hash": 0}}}, "Column 'x': hash is 0, but must be a whole number ≥ 1."),
        ({"action": {"x": {"category": ["a", "a"]}}}, "Column 'x': category is ['a', 'a'], but must be texts, each"),
        ({"action": {"x": "bool"}}, "the declaration of column 'x' is 'bool', but must be 'boolean', "),
        ({"action": {"x": "boolean"}, "context": {"x": "boolean"}}, "a column of context and action is ['x']"),
        ({"action": {"x": "boolean"}, "interactions": [["x", "y"]]}, "There is no column for an interaction 'y'"),
        ({"action": {"x": "boolean"}, "intercep": True}, "There is no key of features 'intercep'; did you mean"),
        ({"action": {"x": {"hash": 60_000}, "y": {"hash": 60_000}}}, "the number of entries is 120001, but must be at"),
    ],
)
def test_bad_declarations_are_named(declared: Any, sentence: str) -> None:
    with pytest.raises(FedbanditError) as error:
        Features.of_json(declared)
    assert str(error.value).startswith(sentence)
