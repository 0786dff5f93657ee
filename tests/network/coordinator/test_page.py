"""The live page in a real browser: its numbers are those of /metrics."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from fedbandit.network.client.client import Client
from fedbandit.network.stores import StoreError
from tests.network.servers import make_host, served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def browse(folder: Path, url: str, *flags: str) -> str:
    """What a browser makes of a page."""
    words = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000", *flags, url]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_shows_what_the_metrics_say(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    host = make_host()
    with served(host) as url, Client(url, federation="shops", name="<b>shop</b>", report=True) as client:
        for _ in range(80):
            arm = client.select(rng.uniform(-0.5, 0.5, (5, 3)))
            client.observe(float(rng.uniform(-1, 1)), arm)
        assert client.flush()
        seen = browse(tmp_path, url + "/", "--dump-dom")
        numbers = dict(re.findall(r'data-number="(\w+)">([^<]*)<', seen))
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        for shown, metric in (
            ("uploads", "uploads_total"),
            ("downloads", "downloads_total"),
            ("observations", "observations_total"),
            ("connected", "connected_clients"),
        ):
            found = re.search(rf'^fedbandit_{metric}{{federation="shops"}} (\d+)\.0$', text, re.MULTILINE)
            assert found is not None
            assert numbers[shown].replace(",", "") == found.group(1), shown
        assert int(numbers["uploads"]) > 0
        assert "&lt;b&gt;shop" in seen, "a client's name is text, never HTML"
        assert "https://" not in seen, "nothing comes from elsewhere"
        assert "Nothing is wrong here." in seen
        assert "1 clients, page 1 of 1" in seen
        for theme, width in (("light", 1100), ("dark", 390)):
            picture = tmp_path / f"{theme}.png"
            dark = ["--force-dark-mode"] if theme == "dark" else []
            browse(
                tmp_path, url + "/", f"--screenshot={picture}", f"--window-size={width},900", "--hide-scrollbars", *dark
            )
            assert picture.read_bytes().startswith(b"\x89PNG")
            assert picture.stat().st_size > 10_000


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_nothing_is_called_well_while_the_coordinator_is_not(tmp_path: Path) -> None:
    """Not even a federation that has not tried to write to a disk that is full."""
    host = make_host()

    def full() -> None:
        raise StoreError("The disk is full.")

    host.store.check = full  # type: ignore[method-assign]
    with served(host) as url:
        seen = browse(tmp_path, url + "/", "--dump-dom")
    assert "The disk is full." in seen
    assert "Nothing is wrong" not in re.sub(r"(?s)<script>.*</script>", "", seen)


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = (Path(__file__).parents[3] / "src/fedbandit/cli/page/page.html").read_text()
    assert not re.findall(r"(?:src|href)\s*=|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page
