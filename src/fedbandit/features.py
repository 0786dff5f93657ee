"""Named numbers, booleans, categories and ids as bounded vectors, the same in every process and every language.

A column is declared by what it holds:

| declaration               | values                          | entries of the vector                    |
|---------------------------|---------------------------------|------------------------------------------|
| `{"number": [low, high]}` | numbers; outside they are cut   | one: from −1 at low to 1 at high         |
| `"boolean"`               | true, false                     | one: 1 or −1                             |
| `{"category": ["de", …]}` | one of these texts              | one for each: 1 where it is that one     |
| `{"hash": m}`             | texts and whole numbers, lists  | m: ±1 where SHA-256 says; a list: norm 1 |

With `"other": true` in a category's declaration, texts that were not declared share one more entry. A value of None is
"not known": the column's entries are 0. A pair of columns in `interactions` adds all products of their entries. Each
column, each interaction and the intercept has norm 1 at most; there are B of them, and the vector is divided by √B.

**Hashing.** The digest is SHA-256 of the column's name, the byte 0, and the value as text, in UTF-8. Its first eight
bytes, a big-endian number, modulo m say which entry; the lowest bit of the ninth byte says −1 instead of 1, so that
collisions cancel on average (Weinberger et al. 2009).

**Order.** The situation's columns, then the action's, each sorted by name (by code points), the interactions as they
were declared (the second column's entries run fastest), the intercept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Protocol

import numpy as np

from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.types import Array

MOST_EXACT = 2**53 - 1
"""Whole numbers up to this are the same in every language."""
MOST_ENTRIES = 100_000


class Column(Protocol):
    """What a column holds."""

    def entries(self, name: str) -> list[str]:
        """The names of its entries."""
        ...

    def encode(self, name: str, value: Any) -> Array:
        """The entries of a value, of norm 1 at most."""
        ...

    def as_json(self) -> Any:
        """How it is declared."""
        ...


@dataclass(frozen=True)
class Number:
    """A number in a range."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse what is no range."""
        number(self.low, "low", "a finite number")
        number(self.high, "high", "a finite number")
        require(self.low < self.high, "the range of a number", [self.low, self.high], "[low, high] with low < high")

    def entries(self, name: str) -> list[str]:
        """One."""
        return [name]

    def encode(self, name: str, value: Any) -> Array:
        """From −1 to 1."""
        if isinstance(value, bool):
            value = str(value).lower()  # true is not 1
        y = min(max(number(value, f"column {name!r}", "a finite number"), self.low), self.high)
        return np.array([2.0 * ((y - self.low) / (self.high - self.low)) - 1.0])

    def as_json(self) -> Any:
        """Its range."""
        return {"number": [self.low, self.high]}


@dataclass(frozen=True)
class Boolean:
    """True or false."""

    def entries(self, name: str) -> list[str]:
        """One."""
        return [name]

    def encode(self, name: str, value: Any) -> Array:
        """1 or −1."""
        require(isinstance(value, bool | np.bool_), f"column {name!r}", value, "true or false")
        return np.array([1.0 if value else -1.0])

    def as_json(self) -> Any:
        """Its name."""
        return "boolean"


@dataclass(frozen=True)
class Category:
    """One of some declared texts."""

    values: tuple[str, ...]
    other: bool = False

    def __post_init__(self) -> None:
        """Refuse a list that is none."""
        ok = len(self.values) > 0 and all(isinstance(value, str) for value in self.values)
        require(ok and len(set(self.values)) == len(self.values), "category", list(self.values), "texts, each once")
        require(isinstance(self.other, bool), "other", self.other, "true or false")

    def entries(self, name: str) -> list[str]:
        """One for each text."""
        return [f"{name}={value}" for value in self.values] + [f"{name}=…"] * self.other

    def encode(self, name: str, value: Any) -> Array:
        """One-hot."""
        require(isinstance(value, str), f"column {name!r}", value, "a text")
        if value not in self.values and not self.other:
            raise unknown(f"value of column {name!r}", value, self.values)
        x = np.zeros(len(self.values) + self.other)
        x[self.values.index(value) if value in self.values else -1] = 1.0
        return x

    def as_json(self) -> Any:
        """Its texts."""
        return {"category": list(self.values), **({"other": True} if self.other else {})}


@dataclass(frozen=True)
class Hashed:
    """Any text or whole number, or a list of them."""

    size: int

    def __post_init__(self) -> None:
        """Refuse a size that is none."""
        whole_number("hash", self.size, 1, MOST_ENTRIES)

    def entries(self, name: str) -> list[str]:
        """As many as were declared."""
        return [f"{name}#{k}" for k in range(self.size)]

    def encode(self, name: str, value: Any) -> Array:
        """±1 in the entry of each value; a list has norm 1, or 0 if all cancel."""
        x = np.zeros(self.size)
        for one in value if isinstance(value, list | tuple) else [value]:
            k, sign = _entry(name, _text(name, one), self.size)
            x[k] += sign
        norm = math.sqrt(float(x @ x))  # of whole numbers: exact, in any order
        return x / norm if norm > 1 else x

    def as_json(self) -> Any:
        """Its size."""
        return {"hash": self.size}


@dataclass(frozen=True)
class Features:
    """How a situation and an action become a context x with ‖x‖ ≤ 1.

    `context` declares the columns of the situation, `action` those of each action, by name; `interactions` are pairs of
    columns whose products are entries too, and `intercept` adds a constant. Only what differs between actions can
    change a choice: let the situation's columns interact with the actions'.

    >>> features = Features(
    ...     context={"age": {"number": [0, 100]}},
    ...     action={"kind": {"category": ["book", "film"]}, "id": {"hash": 4}},
    ...     interactions=[("age", "kind")],
    ... )
    >>> features.dim, features.names[:4]
    (10, ('age', 'id#0', 'id#1', 'id#2'))
    >>> features.transform([{"kind": "book", "id": 7}, {"kind": "film", "id": "x9"}], {"age": 30}).shape
    (2, 10)
    >>> features.transform([{"kind": "disc", "id": 7}], {"age": 30})
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: There is no value of column 'kind' 'disc'; there are: book, film.
    >>> Features.of_json(features.as_json()) == features
    True
    """

    context: Mapping[str, Any] = field(default_factory=dict)
    action: Mapping[str, Any] = field(default_factory=dict)
    interactions: Sequence[tuple[str, str]] = ()
    intercept: bool = True

    def __post_init__(self) -> None:
        """Read the declarations."""
        for part in ("context", "action"):
            object.__setattr__(self, part, _columns(part, getattr(self, part)))
        both = sorted(set(self.context) & set(self.action))
        require(not both, "a column of context and action", both, "of one of them: names differ")
        require(len(self.columns) > 0, "columns", list(self.columns), "at least one, of context or action")
        require(isinstance(self.intercept, bool), "intercept", self.intercept, "true or false")
        object.__setattr__(self, "interactions", tuple(self._pair(pair) for pair in self.interactions))
        require(self.dim <= MOST_ENTRIES, "the number of entries", self.dim, f"at most {MOST_ENTRIES:,}")

    def _pair(self, pair: Any) -> tuple[str, str]:
        ok = isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
        require(ok, "an interaction", pair, "a pair of columns")
        for name in pair:
            if name not in self.columns:
                raise unknown("column for an interaction", name, self.columns)
        return (pair[0], pair[1])

    @cached_property
    def columns(self) -> dict[str, Column]:
        """All columns: those of the situation, then those of the action, by name."""
        return {**self.context, **self.action}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What each entry of a context is."""
        entries = {name: column.entries(name) for name, column in self.columns.items()}
        own = [entry for of_column in entries.values() for entry in of_column]
        pairs = [f"{a}×{b}" for one, other in self.interactions for a, b in product(entries[one], entries[other])]
        return (*own, *pairs, *(["intercept"] if self.intercept else []))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return {name: len(column.entries(name)) for name, column in self.columns.items()}

    @cached_property
    def dim(self) -> int:
        """The length of a context."""
        sizes = self._sizes
        return sum(sizes.values()) + sum(sizes[a] * sizes[b] for a, b in self.interactions) + self.intercept

    def transform(
        self, actions: Sequence[Mapping[str, Any]] | None = None, context: Mapping[str, Any] | None = None
    ) -> Array:
        """Contexts (K, d) of K actions in a situation; a context (1, d) of the situation, if no action has columns."""
        situation = self._encoded("context", self.context, {} if context is None else context)
        offered: Any = [{}] if actions is None else actions
        require(isinstance(offered, list | tuple) and len(offered) > 0, "actions", offered, "a list with an action")
        blocks = 1 / math.sqrt(len(self.columns) + len(self.interactions) + self.intercept)
        X = np.empty((len(offered), self.dim))
        for row, action in zip(X, offered, strict=True):
            parts = {**situation, **self._encoded("action", self.action, action)}
            products = [np.outer(parts[a], parts[b]).ravel() for a, b in self.interactions]
            row[:] = np.concatenate([*parts.values(), *products, np.ones(int(self.intercept))])
        return X * blocks

    def _encoded(self, part: str, columns: Mapping[str, Column], given: Any) -> dict[str, Array]:
        require(isinstance(given, Mapping), f"the {part}", given, "an object with a value for each column")
        for name in given:
            if name not in columns:
                raise unknown(f"column of the {part}", str(name), columns)
        for name in columns:
            if name not in given:
                raise FedbanditError(f"Column {name!r} of the {part} is missing; give null if it is not known.")
        return {
            name: np.zeros(self._sizes[name]) if given[name] is None else column.encode(name, given[name])
            for name, column in columns.items()
        }

    def as_json(self) -> dict[str, Any]:
        """The declarations, as a JSON-ready object; two encodings are the same if these are."""
        return {
            "context": {name: column.as_json() for name, column in self.context.items()},
            "action": {name: column.as_json() for name, column in self.action.items()},
            "interactions": [list(pair) for pair in self.interactions],
            "intercept": self.intercept,
        }

    @classmethod
    def of_json(cls, value: Any) -> Features:
        """What `as_json` gave, or a table of a configuration."""
        known = ("context", "action", "interactions", "intercept")
        require(isinstance(value, Mapping), "features", value, f"an object with {', '.join(known)}")
        for key in value:
            if key not in known:
                raise unknown("key of features", str(key), known)
        require(isinstance(value.get("interactions", []), list), "interactions", value.get("interactions"), "a list")
        return cls(**value)

    def __hash__(self) -> int:
        """That of the declarations."""
        return hash(json.dumps(self.as_json(), sort_keys=True))


def _columns(part: str, given: Any) -> dict[str, Column]:
    require(isinstance(given, Mapping), part, given, "an object with a declaration for each column")
    names = sorted(_name(part, name) for name in given)  # objects have no order
    return {name: _column(name, given[name]) for name in names}


def _name(part: str, name: Any) -> str:
    require(isinstance(name, str) and bool(name) and "\0" not in name, f"a column of the {part}", name, "a text")
    return str(name)


def _column(name: str, declared: Any) -> Column:
    if isinstance(declared, Number | Boolean | Category | Hashed):
        return declared
    try:
        match declared:
            case "boolean":
                return Boolean()
            case {"number": [low, high], **rest} if not rest:
                return Number(low, high)
            case {"category": [*values], **rest} if set(rest) <= {"other"}:
                return Category(tuple(values), bool(rest.get("other", False)))
            case {"hash": size, **rest} if not rest:
                return Hashed(size)
    except FedbanditError as error:
        raise FedbanditError(f"Column {name!r}: {error}") from None
    kinds = "'boolean', {'number': [low, high]}, {'category': [text, …]} or {'hash': size}"
    require(False, f"the declaration of column {name!r}", declared, kinds)
    raise AssertionError


def _text(name: str, value: Any) -> str:
    """A value of a hashed column as text."""
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_EXACT:
        return str(value)
    require(isinstance(value, str), f"column {name!r}", value, "a text, a whole number within ±2⁵³, or a list of them")
    return str(value)


@lru_cache(maxsize=65_536)
def _entry(name: str, text: str, size: int) -> tuple[int, int]:
    try:
        digest = hashlib.sha256(f"{name}\0{text}".encode()).digest()
    except UnicodeEncodeError:
        raise FedbanditError(f"Column {name!r} is {text!r}, but must be a text that UTF-8 has.") from None
    return int.from_bytes(digest[:8], "big") % size, -1 if digest[8] & 1 else 1
