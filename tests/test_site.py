"""The site is built strictly (a broken link or anchor fails), needs no other host, and is searched from disk."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, opened

ROOT = Path(__file__).parent.parent
RESULTS = """(() => {
  const links = [];
  const walk = (root) => root.querySelectorAll("*").forEach((element) => {
    if (element.shadowRoot) walk(element.shadowRoot);
    if (root !== document && element.href) links.push(element.href);
  });
  walk(document);
  return links.join(" ");
})()"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does; once, however many processes run these tests: all of them build in one folder."""
    folder = tmp_path_factory.getbasetemp()
    built = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "site.built"
    with built.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            words = [sys.executable, "-m", "tools.site"]
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            built.touch()
    return ROOT / "site"


def test_every_page_has_a_place_in_the_navigation(site: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(path.relative_to(ROOT / "build" / "docs")) for path in (ROOT / "build" / "docs").rglob("*.md")}
    assert pages == set(re.findall(r": (\S+\.md)$", navigation, flags=re.MULTILINE))
    assert all((site / page).with_suffix(".html").is_file() for page in pages)


def test_the_metrics_of_a_coordinator_with_a_certificate_are_there(site: Path) -> None:
    page = (site / "reference" / "metrics.html").read_text(encoding="utf-8")
    for name in (
        "certificate_expires",
        "token_expires",
        "expired_tokens",
        "connections",
        "connections_refused_total",
        "uploads_total",
    ):
        assert f">fedbandit_{name}<" in page


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)\b[^>]*\ssrc="?([^" >]+)', text)
        loaded += re.findall(r'<link\b[^>]*\shref="?([^" >]+)', text)
        assert loaded
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], page


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_search_works_from_disk(site: Path, tmp_path: Path) -> None:
    with opened((site / "index.html").as_uri(), tmp_path) as page:
        page.call("Input.dispatchKeyEvent", type="keyDown", key="k", code="KeyK", modifiers=2, windowsVirtualKeyCode=75)
        page.until("document.activeElement?.shadowRoot?.activeElement?.tagName === 'INPUT'")
        page.call("Input.insertText", text="quarantine")
        assert page.until(f"{RESULTS}.includes('network.html')")
