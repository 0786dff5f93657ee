"""A page in Debian's Chromium that tests type into and read from, over the browser's debugging protocol on loopback."""

from __future__ import annotations

import base64
import itertools
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.network.coordinator.test_page import CHROMIUM as CHROMIUM


class Page:
    """One open page."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.numbers = itertools.count(1)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the debugging protocol."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == number:
                result: dict[str, Any] = answer["result"]
                return result

    def value(self, script: str) -> Any:
        """What an expression is on the page."""
        return self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"].get(
            "value"
        )

    def until(self, script: str, attempts: int = 100) -> Any:
        """The value of an expression as soon as it is something."""
        for _ in range(attempts):
            found = self.value(script)
            if found:
                return found
            time.sleep(0.2)
        raise AssertionError(f"the page never had {script}")

    def screenshot(self, path: Path) -> None:
        """A picture of the page in its whole length."""
        seen = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(seen["data"]))


@contextmanager
def opened(url: str, folder: Path, size: tuple[int, int] = (1300, 900), *, dark: bool = False) -> Iterator[Page]:
    """A browser with this page; it is ended with the block."""
    words = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}",
             f"--window-size={size[0]},{size[1]}", "about:blank"]  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = next(match for line in process.stderr if (match := re.search(r"ws://([^/]+)/", line)))
        with urllib.request.urlopen(f"http://{found[1]}/json", timeout=30) as answer:
            target = next(one for one in json.load(answer) if one["type"] == "page")
        with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
            page = Page(socket)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            page.call("Emulation.setEmulatedMedia", features=[scheme])
            page.call("Page.navigate", url=url)
            page.until("document.readyState === 'complete' && location.href !== 'about:blank'")
            yield page
    finally:
        process.terminate()
        process.communicate()
