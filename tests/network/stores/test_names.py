"""A journal is named by its store until it is deleted, in blocks or not; those of others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbandit.network.stores import MemoryStore, Store, blocks, open_store
from tests.cli.command_line import refusal, report
from tests.network.servers import CONFIG


def use(store: Store) -> None:
    for name in ("kept", "gone"):
        store.replace(name, bytes(5000))
        store.append(name, [b"entry"])
    assert store.names() == ["gone", "kept"]
    store.delete("gone")
    store.delete("never")
    assert store.names() == ["kept"]
    assert store.read("gone") == (None, [])
    assert store.read("kept") == (bytes(5000), [b"entry"])


def test_journals_are_named_and_deleted(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 1024)
    monkeypatch.setattr(blocks, "LONG", 1024)
    store = open_store(store_url)
    use(store)
    store.close()
    again = open_store(store_url)
    assert again.names() == ["kept"]
    again.close()
    use(MemoryStore())


def test_a_federation_that_is_served_is_not_removed(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.toml"
    file.write_text(CONFIG.format(port=0, store=postgres_url))
    file.chmod(0o600)
    serving = open_store(postgres_url)
    serving.claim("old", "http://a")
    serving.replace("old", b"x")
    words = ["remove", "old", "--config", str(file)]
    assert "is another coordinator's at http://a" in refusal(capsys, *words)
    serving.close()
    assert report(capsys, *words)["removed"]
    late = open_store(postgres_url)
    assert late.names() == []
    late.close()
