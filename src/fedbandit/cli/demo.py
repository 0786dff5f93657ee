"""`fedbandit demo`: a real federation on this machine: a coordinator, client processes, a live page, a summary."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedbandit.cli import client
from fedbandit.errors import FedbanditError, number, whole_number
from fedbandit.network.addresses import check_port

SUMMARY = "A coordinator and a dozen clients on this machine, with a live page: about a minute."
DIM, ARMS, PACE, SPREAD = 20, 20, 12.0, 0.1
STATE = "demo-state"
"""The folder, within --out, of the coordinator's store and of the clients' states and logs."""
CONFIG = """
[server]
port = {port}
store = "coordinator.db"

[federations.demo]
system = "async-linucb"
clients = {clients}
dim = {dim}
horizon = {horizon}
keywords = {{gamma_upload = 2.0, gamma_download = 2.0, warm_join = true}}
"""


def add_flags(command: argparse.ArgumentParser) -> None:
    """How many clients, for how long."""
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path("results/demo"), help="default: results/demo"
    )
    command.add_argument("--clients", type=int, default=12, metavar="N", help="default: 12")
    command.add_argument("--seconds", type=float, default=45.0, metavar="S", help="how long users arrive (default: 45)")
    command.add_argument(
        "--port", type=int, default=0, metavar="P", help="of the live page (default: any that is free)"
    )
    command.add_argument("--keep", action="store_true", help="leave everything running until interrupted")


def run(options: argparse.Namespace) -> int:
    """Start everything, watch it, and print a summary."""
    from fedbandit.files import make_folder

    whole_number("--clients", options.clients)
    number(options.seconds, "--seconds", "a finite number > 0", 1e-9)
    check_port(options.port)
    folder: Path = options.out
    shutil.rmtree(folder / STATE, ignore_errors=True)
    make_folder(folder / STATE)
    visits = max(1, int(PACE * options.seconds))
    config = folder / STATE / "federation.toml"
    config.write_text(
        CONFIG.format(port=options.port, clients=options.clients, dim=DIM, horizon=visits * options.clients)
    )

    def say(text: str) -> None:
        if not options.json:
            print(text, flush=True)

    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(_coordinator(config, folder / "serve.log"))
        url = _address(coordinator, folder / "serve.log")
        say(f"Live page: {url}/")
        users = stack.enter_context(_client_processes(url, options.clients, visits, folder))
        curve = _watch(url, users, options, say)
        report = _summary(_overview(url), url, options)
        (folder / "summary.json").write_text(json.dumps(report, indent=1) + "\n")
        report["picture"] = _draw(curve, folder / "demo.png")
        _tell(report, options)
        if options.keep:
            say(f"Still serving {url}/ until interrupted.")
            with contextlib.suppress(KeyboardInterrupt):
                coordinator.wait()
    return 0


def _client_options(url: str, i: int, visits: int, folder: Path) -> argparse.Namespace:
    """What `fedbandit client` would be called with."""
    from fedbandit.cli.main import build_parser

    words = ["client", url, "--federation", "demo", "--first", i, "--state", folder / STATE, "--interactions", visits,
             "--pace", PACE, "--arms", ARMS, "--spread", SPREAD, "--report", "--json"]  # fmt: skip
    return build_parser(["client"]).parse_args(list(map(str, words)))


@contextlib.contextmanager
def _coordinator(config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The coordinator in a process of its own, ended with the demo."""
    words = [sys.executable, "-m", "fedbandit", "serve", "--config", str(config), "--json"]
    with log.open("wb") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextlib.contextmanager
def _client_processes(url: str, count: int, visits: int, folder: Path) -> Iterator[list[Any]]:
    """Clients in processes of their own; forked, where that exists, so that a dozen need not load everything again."""
    how = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(how)
    users = []
    for i in range(count):
        wish = _client_options(url, i, visits, folder)
        users.append(context.Process(target=_run_client, args=(wish, log_of(folder, i))))
    try:
        for user in users:
            user.start()
        yield users
    finally:
        for user in users:
            if user.pid is not None:
                user.terminate()
                user.join(10)


def log_of(folder: Path, i: int) -> Path:
    """Where client i of a demo logs."""
    return folder / STATE / f"client-{i}.log"


def _run_client(wish: argparse.Namespace, log: Path) -> None:
    """Run one client, with its output in a file; an interrupt is for the demo, which then ends its clients."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with log.open("w") as output, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = client.run(wish)
        except FedbanditError as error:
            print(f"fedbandit: {error}")
            status = 2
    raise SystemExit(status)


def _address(coordinator: subprocess.Popen[bytes], log: Path) -> str:
    assert coordinator.stdout is not None
    line = coordinator.stdout.readline()
    if not line:
        coordinator.wait()
        raise FedbanditError(f"The coordinator did not start: {log.read_text().strip()}")
    return str(json.loads(line)["address"])


def _overview(url: str) -> dict[str, Any]:
    from fedbandit.network.client.address import open_url

    with open_url(urllib.request.Request(f"{url}/api/overview"), 10.0, None) as answer:
        federation: dict[str, Any] = json.load(answer)["federations"][0]
    return federation


def _watch(url: str, users: list[Any], options: argparse.Namespace, say: Any) -> list[list[float]]:
    """Look once a second until all clients are done; what was seen."""
    begun, curve = time.monotonic(), []
    while any(user.is_alive() for user in users):
        time.sleep(1.0)
        try:
            now = _overview(url)
        except OSError:
            continue
        totals = now["totals"]
        point = [time.monotonic() - begun, now["regret"] or 0.0, now["alone"] or 0.0, now["observed"] or 0.0]
        curve.append([*point, totals["uploads"], totals["downloads"]])
        if sys.stdout.isatty() or len(curve) % 5 == 0:
            end = "\r" if sys.stdout.isatty() else "\n"
            line = (f"{point[0]:4.0f} s  {point[3]:7,.0f} visits  regret {point[1]:7,.1f}, alone {point[2]:7,.1f}  "
                    f"{totals['uploads']:5,} uploads  {totals['downloads']:5,} downloads")  # fmt: skip
            if not options.json:
                print(line, end=end, flush=True)
    failed = [user.exitcode for user in users if user.exitcode]
    if failed:
        say(f"{len(failed)} clients ended with status {failed[0]}; see the logs in {log_of(options.out, 0).parent}.")
    return curve


def _summary(federation: dict[str, Any], url: str, options: argparse.Namespace) -> dict[str, Any]:
    totals = federation["totals"]
    observed = federation["observed"] or 0.0
    messages, everything = totals["uploads"] + totals["downloads"], 2 * observed
    return {
        "address": url,
        "clients": options.clients,
        "interactions": int(observed),
        "regret": federation["regret"],
        "regret_alone": federation["alone"],
        "uploads": totals["uploads"],
        "downloads": totals["downloads"],
        "bytes": totals["bytes"],
        "messages_saved": 1 - messages / everything if everything else None,
        "guarantee": federation["guarantee"],
    }


def _tell(report: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(report))
        return
    together, alone = report["regret"] or 0.0, report["regret_alone"] or 0.0
    print(f"\n\n{report['clients']} clients, {report['interactions']:,} visits")
    print(f"  regret together   {together:10,.1f}")
    print(f"  regret alone      {alone:10,.1f}   {1 - together / alone if alone else 0:.0%} less by sharing")
    print(f"  messages          {report['uploads'] + report['downloads']:10,}   "
          f"{report['messages_saved'] or 0:.0%} fewer than an upload and a download a visit")  # fmt: skip
    print(f"  bytes             {report['bytes']:10,}")
    print(f"  privacy           {report['guarantee']}")
    if report["picture"] is None:
        print("There is no picture, as that needs matplotlib: pip install 'fedbandit[plots]'.", file=sys.stderr)
    else:
        print(f"  picture           {report['picture']}")


def _draw(curve: list[list[float]], path: Path) -> str | None:
    """Regret and messages over time, if matplotlib is there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    seconds, regret, alone, _, uploads, downloads = zip(*curve or [[0.0] * 6], strict=True)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(seconds, alone, color="#898781", label="each alone")
    left.plot(seconds, regret, color="#2a78d6", label="together")
    left.set(xlabel="seconds", ylabel="cumulative regret")
    right.plot(seconds, uploads, color="#2a78d6", label="uploads")
    right.plot(seconds, downloads, color="#1baf7a", label="downloads")
    right.set(xlabel="seconds", ylabel="messages so far")
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    return str(path)
