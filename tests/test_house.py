"""The house rules that a reader can see: how long files are, and which words are not used for machinery."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.functions import called

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TEXTS = [*SOURCES, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]

METAPHORS = re.compile(
    r"""(?<![a-z])            # also within snake_case and CamelCase
        (hall|seat|bench|outlet|frontier|law)s?
        (?![a-z])""",
    re.IGNORECASE | re.VERBOSE,
)
ALLOWED = {
    "make bench",  # a target, for benchmarks
    'ALIASES = {"seats": "members"}',  # what a command was called: operators' scripts call it
}

CODE = re.compile(r"`([^`\n]+)`")


def test_no_file_is_too_long_to_read() -> None:
    assert [path.name for path in SOURCES if len(path.read_text(encoding="utf-8").splitlines()) > 400] == []


def metaphors(text: str) -> list[str]:
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    return [found.group() for found in METAPHORS.finditer(text)]


def test_machinery_has_the_terms_of_the_field() -> None:
    """Connection, slot, scratch, send queue, rule: DESIGN.md's vocabulary."""
    found = {path.name: metaphors(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("text", ["class Law:", "law_of(structure)", "fedbandit seats list", "two halls"])
def test_metaphors_are_found(text: str) -> None:
    assert metaphors(text)


@pytest.mark.parametrize("text", ["lawful", "benchmarks", "shall", "make bench", "claws"])
def test_other_words_are_not(text: str) -> None:
    assert not metaphors(text)


def test_what_the_architecture_names_is_in_the_code() -> None:
    """The walks of one simulate and of one upload go through functions and classes that exist."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    known = set(re.findall(r"[A-Za-z_]\w*", source)) | {path.stem for path in SOURCES}
    known |= {"setprofile", "typescript"}
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    named = {word for code in CODE.findall(text) for word in re.findall(r"[A-Za-z_]\w*", code)}
    assert len(named) > 100
    assert named - known == set()


def test_the_architecture_names_every_module_at_the_top() -> None:
    """Those in packages are told by the packages' docstrings, or by their folder."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "fedbandit"
    modules = [path.name for path in package.glob("*.py") if not path.name.startswith("_")]
    folders = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    assert len(modules) > 30
    assert [
        name for name in modules + folders if not re.search(rf"\b{re.escape(name.removesuffix('.py'))}", text)
    ] == []


def test_the_way_of_a_simulation_is_as_long_as_the_architecture_says() -> None:
    """A layer that is added shows here; how far it is to the aim stands beside it."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    said = re.search(r"^\| all \| (\d+) \| \d+ \| \|$", text, flags=re.MULTILINE)
    assert said is not None
    assert abs(len(called("plain")) - int(said.group(1))) <= 8, "count again: python -m benchmarks functions"
