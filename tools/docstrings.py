"""Doctests in docstrings become blocks of code on the site (a Griffe extension; mkdocs.yml names it)."""

from __future__ import annotations

import re
from typing import Any

import griffe


class FencedDoctests(griffe.Extension):
    """Fences every run of lines that begins with `>>>`, up to an empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """The docstring of one object."""
        if obj.docstring is not None:
            text = obj.docstring.value
            text = re.sub(r"(\[\w+; \w+\])\[", r"\1\\[", text)  # [x; κy][x; κy]ᵀ is no link
            obj.docstring.value = re.sub(r"(?ms)^( *)(>>>.*?)(?=\n\s*\n|\Z)", _fenced, text)


def _fenced(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0]}\n{found[1]}```"
