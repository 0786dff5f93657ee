"""A simulated application behind a gateway: decisions a second, and how often replay's intervals hold the truth.

The application has visitors of an age in [0, 1] and three actions, of click rates `rate` times 0.4 + 1.2 age,
1.6 − 1.2 age and 0.8. Replayed policies: *suited* takes the best, *random* any; truths are known by integration.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from tests.gateway.application import ACTIONS, FEATURES, open_alone, tastes, visit

import fedbandit as fb
from fedbandit.environments import read_decision_log
from fedbandit.evaluation import evaluate_frozen
from fedbandit.gateway.gateway import Gateway
from fedbandit.model import Model
from fedbandit.policies import Policy
from fedbandit.policies.policy import Randomness
from fedbandit.streams import Draw
from fedbandit.types import Array

DECISIONS, CONNECTIONS, LOGS = 100_000, 4, 200


@dataclass(frozen=True)
class Suited(Policy):
    """Books for visitors above 1/2, films for the others: read off the interactions of age and kind."""

    name: ClassVar[str] = "suited"
    randomness: ClassVar[Randomness] = "none"

    def choose(self, model: Model, contexts: Array, draw: Draw) -> int:  # noqa: ARG002 - it is fixed
        """The largest of ±(2 age − 1)."""
        book, film = (FEATURES.names.index(f"age×kind={kind}") for kind in ("book", "film"))
        return int((contexts[:, book] - contexts[:, film]).argmax())


TRUTHS = {"suited": 1.3, "random": 14 / 15}
"""Of a click rate of 1: the mean of 0.4 + 1.2 max(a, 1 − a), and of the three actions."""
SYSTEMS = {"suited": lambda: fb.linucb(policy=Suited()), "random": fb.uniform}


def serve_visitors(gateway: Gateway, n: int, rate: float, seed: int) -> None:
    """n decisions with their rewards."""
    rng = np.random.default_rng(seed)
    for age, luck in zip(rng.random(n).tolist(), rng.random(n).tolist(), strict=True):
        answer = gateway.rank(visit(age))
        click = luck < tastes(age, rate)[ACTIONS.index(answer["chosen"])]
        gateway.reward({"event_id": answer["event_id"], "reward": float(click)})


def coverage(logs: int, n: int, rate: float, first: int = 0) -> dict[str, float]:
    """How often each estimator's interval holds the truth, over logs of n decisions through a gateway."""
    covered: dict[str, float] = {}
    for seed in range(first, first + logs):
        with tempfile.TemporaryDirectory() as folder:
            gateway = open_alone(Path(folder))
            serve_visitors(gateway, n, rate, seed)
            gateway.close()
            log = read_decision_log(Path(folder) / "log")
        for name, system in SYSTEMS.items():
            for estimate in evaluate_frozen(system(), log, train=0.2).estimates:
                key = f"{name}, {estimate.name}"
                covered[key] = covered.get(key, 0.0) + estimate.covers(rate * TRUTHS[name]) / logs
    return covered


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """`fedbandit gateway` in a process of its own, on a port of loopback."""
    (folder / "features.json").write_text(json.dumps(FEATURES.as_json()))
    words = [sys.executable, "-m", "fedbandit", "gateway", "--port", "0", "--json", "--features", "features.json",
             "--state", "gateway.db", "--decisions", "log"]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def over_http(url: str, n: int, seed: int) -> None:
    """n decisions with their rewards, one after the other."""
    import http.client

    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    rng = np.random.default_rng(seed)

    def post(path: str, body: object) -> dict[str, str]:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer: dict[str, str] = json.load(connection.getresponse())
        return answer

    for age in rng.random(n).tolist():
        answer = post("/rank", visit(age))
        click = rng.random() < tastes(age, 0.5)[ACTIONS.index(answer["chosen"])]
        post("/reward", {"event_id": answer["event_id"], "reward": float(click)})
    connection.close()


def one_log(decisions: int) -> None:
    """An application's decisions over HTTP, through a gateway in a process of its own, as one log; and its replay."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder) as url:
            began = time.perf_counter()
            threads = [
                threading.Thread(target=over_http, args=(url, decisions // CONNECTIONS, k)) for k in range(CONNECTIONS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - began
        log = read_decision_log(folder / "log")
        size = sum(path.stat().st_size for path in (folder / "log").iterdir())
    assert log.n_decisions == decisions, "every decision is in the log, with its reward"
    print(f"{decisions:,} decisions over HTTP ({CONNECTIONS} connections; application and gateway in processes"
          f" of their own): {decisions / seconds:,.0f} a second in {seconds:,.0f} s; {size / 1e6:.0f} MB; mean reward "
          f"{log.rewards.mean():.3f} (random: 0.467, best: 0.650)\n")  # fmt: skip
    print("| replayed on it | truth | doubly robust | self-normalised | inverse propensity |\n|---|---|---|---|---|")
    for key, system in SYSTEMS.items():
        found = evaluate_frozen(system(), log, train=0.2)
        told = (f"{one.value:.4f} ({one.interval[0]:.4f} … {one.interval[1]:.4f})" for one in found.estimates)
        print(f"| {key} | {0.5 * TRUTHS[key]:.4f} | {' | '.join(told)} |", flush=True)


def main() -> None:
    """Print the tables; FEDBANDIT_BENCH_SHARE=0.01 takes so much of the decisions and of the logs."""
    share = float(os.environ.get("FEDBANDIT_BENCH_SHARE", "1"))
    one_log(max(int(share * DECISIONS), 200) // CONNECTIONS * CONNECTIONS)
    print("\n| click rate, decisions | system, estimator | holds the truth in |\n|---|---|---|")
    for rate, n in ((0.5, 500), (0.004, 1000)):
        for key, covered in coverage(max(int(share * LOGS), 2), n, rate).items():
            print(f"| {rate:.1%}, {n:,} | {key} | {covered:.1%} |", flush=True)
