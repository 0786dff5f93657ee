"""The TypeScript client: its own tests and the corpus under Node, and lives against a real coordinator on loopback."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import http.server
import json
import queue
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit import World
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, load_config
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from tests.network.servers import make_host, served
from tests.vectors.run import cases, read

FOLDER = Path(__file__).parents[2] / "clients" / "typescript"

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node on this machine")


@pytest.fixture(scope="module")
def built() -> Path:
    """The client, compiled; `npm ci` brings the compiler, where that has not been done."""
    if not (FOLDER / "node_modules" / "typescript").is_dir():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=FOLDER, check=True)
    subprocess.run(["npx", "--no-install", "tsc", "-p", "tsconfig.json"], cwd=FOLDER, check=True)
    return FOLDER / "dist"


def visiting(built: Path, **options: Any) -> subprocess.Popen[str]:
    words = ["node", str(built / "test" / "visits.js"), json.dumps({"federation": "shops", **options})]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    return report


def test_its_own_tests_and_the_corpus_pass(built: Path) -> None:
    tests = [str(path) for path in sorted((built / "test").glob("*.test.js"))]
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "# pass 0" not in done.stdout


def test_node_and_python_learn_together(built: Path) -> None:
    host = make_host()
    with served(host) as url:
        with Client(url, federation="shops", name="python") as python:
            nodes = [visiting(built, url=url, name=f"node-{i}", seed=i + 1, visits=150) for i in range(2)]
            rng = np.random.default_rng(0)
            for _ in range(150):
                X = rng.uniform(-0.25, 0.25, (5, 3))
                arm = python.select(X)
                python.observe(float(X[arm, 0]), arm)
            reports = [ended(node) for node in nodes]
            assert python.flush()
            gathered = host.federations["shops"].federation.machine.gathered()
            pending = python.status()["pending"] + sum(report["pending"] for report in reports)
            assert gathered.n == 450 - pending, "everything is there once"
        assert all(report["delivered"] and report["uploads"] > 0 for report in reports)
        assert max(report["version"] for report in reports) > 0, "they were sent what others know"
        assert reports[0]["problem"] is None


def test_killed_in_the_middle_it_loses_nothing_and_counts_nothing_twice(built: Path, tmp_path: Path) -> None:
    host, state = make_host(), str(tmp_path / "node.journal")
    with served(host) as url:
        for _ in range(4):
            process = visiting(built, url=url, name="node", state=state, visits=100_000, pace=1)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.7)
            process.kill()
            process.communicate()
        report = ended(visiting(built, url=url, name="node", state=state, visits=20))
        gathered = host.federations["shops"].federation.machine.gathered()
        assert report["delivered"]
        assert report["observed"] > 100
        assert gathered.n == report["observed"] - report["pending"]


def test_a_state_is_for_one_process(built: Path, tmp_path: Path) -> None:
    with served(make_host()) as url:
        state = str(tmp_path / "node.journal")
        first = visiting(built, url=url, name="node", state=state, visits=100_000, pace=1)
        assert first.stdout is not None
        first.stdout.readline()
        second = visiting(built, url=url, name="node", state=state, visits=1)
        _, errors = second.communicate()
        first.kill()
        first.communicate()
        assert second.returncode != 0
        assert f"The state is in use by process {first.pid}" in errors


def test_a_client_that_cannot_do_what_is_asked_gives_its_place_back(built: Path, tmp_path: Path) -> None:
    agreement = Agreement("feducb", {"epsilon": 3.0, "delta": 1e-4}, World(n_clients=2, dim=3, horizon=100))
    host = Host(ServerConfig({"shops": FederationConfig(agreement)}), MemoryStore())
    with served(host) as url:
        process = visiting(built, url=url, name="node", state=str(tmp_path / "node.journal"), visits=1)
        _, errors = process.communicate()
        assert process.returncode != 0
        assert "FedbanditError" in errors
        assert host.federations["shops"].federation.register.by_name == {}


def in_browser(built: Path, folder: Path, script: str, *flags: str) -> Any:
    """What a script gives in a real browser, as JSON: a page with the client's test bundle."""
    subprocess.run(["npm", "run", "--silent", "bundle-tests"], cwd=FOLDER, check=True, capture_output=True)
    page = folder / "page.html"
    tell = "(told) => { document.body.textContent = JSON.stringify(told) }"
    fail = "(error) => { document.body.textContent = JSON.stringify({failed: String(error.stack)}) }"
    bundle = (built / "test/page.bundle.js").read_text()
    page.write_text(
        f"<!DOCTYPE html><meta charset=utf-8><body></body><script>{bundle}</script>"
        f"<script>(async () => {script})().then({tell}, {fail})</script>"
    )
    words = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-quic", "--no-first-run", "--disable-background-networking",
             f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", "--dump-dom",
             *flags, page.as_uri()]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=True)
    body = re.search(r"<body>(.*?)</body>", done.stdout, re.DOTALL)
    assert body is not None
    told = json.loads(html.unescape(body.group(1).partition("<script")[0]))
    assert "failed" not in told, told
    return told


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_corpus_passes_in_a_browser(built: Path, tmp_path: Path) -> None:
    vectors = [read(path) for path in cases()]
    told = in_browser(built, tmp_path, f"corpus({json.dumps(vectors)})")
    assert len(told) == len(vectors)
    assert sum(line.endswith(": passed") for line in told) > 15


class Quiet(http.server.BaseHTTPRequestHandler):
    """Answers requests, and logs nothing."""

    def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def answering(handler: type[Quiet]) -> Iterator[str]:
    """A server on loopback: its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def page_server(
    text: str, files: Mapping[str, str] | None = None, commands: queue.Queue[Any] | None = None
) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """A page on loopback with its scripts, and what it posts back; `/next` is the next command for it."""
    told: queue.Queue[Any] = queue.Queue()

    class Handler(Quiet):
        def do_GET(self) -> None:
            if commands is not None and self.path == "/next":
                self.answer(json.dumps(commands.get()).encode(), Content_Type="application/json")
                return
            script = (files or {}).get(self.path)
            kind = "text/html" if script is None else "text/javascript"
            self.answer((script or text).encode(), Content_Type=f"{kind}; charset=utf-8")

        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(b"")

    with answering(Handler) as address:
        yield address, told


@contextlib.contextmanager
def browsing(folder: Path, address: str) -> Iterator[None]:
    """A browser that shows a page."""
    words = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-quic", "--no-first-run", "--disable-background-networking",
             f"--user-data-dir={folder / 'profile'}", address]  # fmt: skip
    browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        browser.terminate()
        browser.wait()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_page_learns_with_the_others_and_goes_on_after_it_was_closed(built: Path, tmp_path: Path) -> None:
    subprocess.run(["npm", "run", "--silent", "bundle-tests"], cwd=FOLDER, check=True, capture_output=True)
    script = (
        "const tell = (told) => fetch('/told', {method: 'POST', body: JSON.stringify(told)});"
        "const options = {url: new URLSearchParams(location.search).get('to'), federation: 'shops', name: 'page', "
        "state: 'page', visits: 60};"
        "visits(options, 3).then(tell, (error) => tell({failed: String(error.stack)}));"
    )
    bundle = (built / "test/page.bundle.js").read_text()
    page = f"<!DOCTYPE html><meta charset=utf-8><script>{bundle}</script><script>{script}</script>"
    with page_server(page) as (origin, told):
        host = make_host(origins=(origin,))
        with served(host) as url:
            with browsing(tmp_path, f"{origin}/?to={url}"):
                reports = told.get(timeout=120)
            assert "failed" not in reports, reports
            assert [report["observed"] for report in reports] == [60, 120, 180], "it goes on where it was closed"
            assert all(report["delivered"] for report in reports)
            gathered = host.federations["shops"].federation.machine.gathered()
            assert gathered.n == 180 - reports[-1]["pending"]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_page_of_another_origin_gets_nothing(built: Path, tmp_path: Path) -> None:
    subprocess.run(["npm", "run", "--silent", "bundle-tests"], cwd=FOLDER, check=True, capture_output=True)
    with served(make_host()) as url:
        options = json.dumps({"url": url, "federation": "shops", "name": "x", "visits": 1})
        script = f"visits({options}, 1).then(() => ['in'], (error) => [error.message])"
        (told,) = in_browser(built, tmp_path, script)
    assert "There is no answer from" in told


EXAMPLE = Path(__file__).parents[2] / "examples" / "browser"
CLICKS = """
<script type="module">
  const tell = (told) => fetch("/told", { method: "POST", body: JSON.stringify(told) });
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const text = (id) => document.getElementById(id).textContent;
  const ready = async (t) => {
    const waits = () => document.getElementById("yes").disabled || text("observed") !== String(t);
    for (let k = 0; k < 1000 && waits(); k++) await pause(20);
  };
  await ready(0);
  const shown = [];
  for (let t = 1; t <= 40; t++) {
    const about = text("about");
    shown.push(about.split(",")[0]);
    document.getElementById(about.startsWith("indian") ? "yes" : "no").click();
    await ready(t);
  }
  for (let k = 0; k < 400 && text("uploads") === "0"; k++) await pause(50);
  await pause(600);
  const ids = ["observed", "uploads", "link", "problem"];
  await tell({ shown, ...Object.fromEntries(ids.map((id) => [id, text(id)])) });
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_example_learns_from_clicks_and_uploads(built: Path, tmp_path: Path) -> None:
    subprocess.run(["npm", "run", "--silent", "bundle"], cwd=FOLDER, check=True, capture_output=True)
    files = {"/fedbandit.min.js": (built / "fedbandit.min.js").read_text()}
    with page_server((EXAMPLE / "index.html").read_text() + CLICKS, files) as (origin, told):
        config = load_config(EXAMPLE / "federation.toml")
        host = Host(dataclasses.replace(config, origins=(origin,)), MemoryStore())
        with served(host) as url, browsing(tmp_path, f"{origin}/?to={url}"):
            report = told.get(timeout=120)
            gathered = host.federations["dinner"].federation.machine.gathered()
        assert report["observed"] == "40", report
        assert int(report["uploads"]) > 0
        assert report["problem"] == ""
        assert report["link"].startswith("page, member 0 of dinner"), report
        assert report["shown"][20:].count("indian") > 12, "it has learnt what is liked"
        assert gathered.n > 0
