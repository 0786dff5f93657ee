"""Strict reading of the data sets' text files: whatever is wrong is said in one sentence, with file and line."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.types import Array, Ints

_BYTE_ORDER_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\xef\xbb\xbf": "UTF-8 with a byte order mark"}


class Numbers(NamedTuple):
    """Columns of numbers of one file, and the line on which they begin."""

    path: Path
    first_line: int
    columns: dict[str, Array]

    def whole(self, name: str) -> Ints:
        """A column of ids: whole numbers ≥ 0."""
        column = self.columns[name]
        wrong = ~((column >= 0) & (column < 2**53) & (column == np.floor(column)))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise fault(self.path, row + self.first_line, f"{name} is {column[row]:g}, not a whole number ≥ 0")
        return column.astype(np.int64)

    def line(self, row: int) -> int:
        """The line of the file that a row stands on."""
        return row + self.first_line


def fault(path: Path, line: int, what: str) -> FedbanditError:
    """The error for one line of one file."""
    return FedbanditError(f"{str(path)!r}, line {line}: {what}.")


def read_numbers(
    path: Path, columns: Sequence[str], *, separator: str = "\t", header: Sequence[str] | None = None
) -> Numbers:
    """The named columns of a file of numbers.

    Without `header` the first line names the columns, which may stand in any order among others; with it the file has
    no such line, and exactly these columns.
    """
    data = _bytes_of(path)
    if not data.isascii():
        at = next(position for position, byte in enumerate(data) if byte > 127)
        line = data.count(b"\n", 0, at) + 1
        raise fault(path, line, f"the byte {data[at]:#04x} is not ASCII, so the encoding is wrong")
    data = data.replace(b"\r\n", b"\n").rstrip(b"\n")
    if len(separator) > 1:
        data = data.replace(separator.encode(), b"\t")
        separator = "\t"
    names, first_line = list(header or ()), 1
    if header is None:
        top, _, data = data.partition(b"\n")
        names, first_line = top.decode().split(separator), 2
        _require_columns(path, names, columns)
    if not data:
        raise fault(path, first_line, "there is no data")
    _require_shape(path, data, separator, len(names), first_line)
    try:
        table = np.concatenate(
            [_parse(part, separator, [names.index(name) for name in columns]) for part in _parts(data)]
        )
    except ValueError:
        raise _first_non_number(path, data, separator, names, columns, first_line) from None
    if not np.isfinite(table).all():
        raise _first_non_number(path, data, separator, names, columns, first_line)
    return Numbers(path, first_line, dict(zip(columns, np.ascontiguousarray(table.T), strict=True)))


def _parse(data: bytes, separator: str, columns: list[int]) -> Array:
    return np.loadtxt(io.BytesIO(data), delimiter=separator, usecols=columns, comments=None, ndmin=2, encoding="ascii")


def _parts(data: bytes) -> Iterator[bytes]:
    """The lines in pieces of some 64 MB, so that a large file is not in memory several times over."""
    start = 0
    while start < len(data):
        cut = data.find(b"\n", start + 2**26)
        stop = len(data) if cut < 0 else cut + 1
        yield data[start:stop]
        start = stop


class Texts(NamedTuple):
    """Lines of a file of texts, each with its number."""

    path: Path
    columns: Sequence[str]
    rows: list[tuple[int, list[str]]]

    def ids(self, name: str) -> Ints:
        """A column of ids, each of which may stand there once."""
        at = list(self.columns).index(name)
        found: dict[int, int] = {}
        for line, row in self.rows:
            text = row[at].strip()
            if not (text.isascii() and text.isdigit()):
                raise fault(self.path, line, f"{name} is {text!r}, not a whole number ≥ 0")
            if int(text) in found:
                raise fault(self.path, line, f"{name} {int(text)} is duplicated; it stands on line {found[int(text)]}")
            found[int(text)] = line
        return np.fromiter(found, dtype=np.int64, count=len(found))


def read_texts(
    path: Path,
    columns: Sequence[str],
    *,
    separator: str = "\t",
    encoding: str = "utf-8",
    header: Sequence[str] | None = None,
    quoted: bool = False,
) -> Texts:
    """The named columns of a file of texts; `quoted` fields may hold separators and line breaks, as CSV has them."""
    data = _bytes_of(path)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"{data[error.start]:#04x}"
        raise fault(path, line, f"the byte {byte} is not {encoding.upper()}, so the encoding is wrong") from None
    lines = _csv_lines(text, separator) if quoted else _plain_lines(text, separator)
    names, rows = list(header or ()), []
    for line, row in lines:
        if not names:
            names = row
            _require_columns(path, names, columns)
            continue
        if len(row) != len(names):
            raise fault(path, line, f"{len(row)} columns instead of {len(names)}; the file may be truncated")
        rows.append((line, [row[names.index(name)] for name in columns]))
    if not rows:
        raise fault(path, 1 if header else 2, "there is no data")
    return Texts(path, columns, rows)


def require_distinct(table: Numbers, *names: str) -> None:
    """Refuse a file that says one thing twice: two lines with equal entries in these columns."""
    columns = [table.whole(name) for name in names]
    if math.prod(int(column.max()) + 1 for column in columns) < 2**63:  # quick, and nearly always all there is to do
        key = np.zeros(columns[0].size, dtype=np.int64)
        for column in columns:
            key = key * (column.max() + 1) + column
        key.sort()
        if not (key[1:] == key[:-1]).any():
            return
    keys = np.stack(columns, axis=1)
    order = np.lexsort(keys.T[::-1])
    same = (keys[order][1:] == keys[order][:-1]).all(axis=1)
    if same.any():
        pairs = np.stack([order[:-1][same], order[1:][same]], axis=1)
        first, second = sorted(pairs[pairs.max(axis=1).argmin()].tolist())
        entry = ", ".join(f"{name} {table.columns[name][second]:.0f}" for name in names)
        raise fault(
            table.path, table.line(second), f"{entry} is duplicated; it stands on line {table.line(first)} already"
        )


def require_known(table: Numbers, name: str, known: Ints, where: str) -> None:
    """Refuse an id that another file does not have."""
    strange = ~np.isin(table.whole(name), known)
    if strange.any():
        row = int(np.argmax(strange))
        raise fault(table.path, table.line(row), f"{name} {table.columns[name][row]:.0f} is unknown: {where}")


def _bytes_of(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FedbanditError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None
    for mark, name in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            raise fault(path, 1, f"the encoding is {name}, which the original is not")
    if b"\0" in data:
        raise fault(path, data.count(b"\n", 0, data.index(b"\0")) + 1, "a zero byte stands there; it is no text file")
    if not data.strip():
        raise fault(path, 1, "the file is empty")
    return data


def _require_columns(path: Path, names: Sequence[str], columns: Sequence[str]) -> None:
    for name in columns:
        if name not in names:
            raise fault(path, 1, f"the column {name!r} is missing; there are {', '.join(names)}")


def _require_shape(path: Path, data: bytes, separator: str, width: int, first_line: int) -> None:
    """Every line has `width` columns. One count over all lines is quick; only if it fails are lines looked at."""
    lines = data.count(b"\n") + 1
    sep = separator.encode()
    if data.count(sep) == lines * (width - 1) and b"\n\n" not in data and not data.startswith(b"\n"):
        return  # a line too long beside one too short is found when the short one is parsed
    for number, line in enumerate(data.split(b"\n"), first_line):
        if line.count(sep) != width - 1:
            columns = line.count(sep) + 1 if line else 0
            hint = "; the file may be truncated" if columns < width else ""
            raise fault(path, number, f"{columns} columns instead of {width}{hint}")


def _first_non_number(
    path: Path, data: bytes, separator: str, names: Sequence[str], columns: Sequence[str], first_line: int
) -> FedbanditError:
    for number, line in enumerate(data.decode().split("\n"), first_line):
        row = line.split(separator)
        if len(row) != len(names):
            return fault(path, number, f"{len(row)} columns instead of {len(names)}")
        for name in columns:
            text = row[names.index(name)]
            try:
                finite = bool(np.isfinite(float(text)))
            except ValueError:
                finite = False
            if not finite:
                return fault(path, number, f"{name} is {text!r}, not a number")
    return FedbanditError(f"{str(path)!r} cannot be read as numbers.")


def _plain_lines(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        yield number, line.rstrip("\r").split(separator)


def _csv_lines(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    line = 1
    for row in reader:
        yield line, row
        line = reader.line_num + 1
