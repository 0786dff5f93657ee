"""A simulated application behind a gateway: decisions a second, and how often replay's intervals hold the truth.

The application has visitors of an age in [0, 1] and three actions, of click rates `rate` times 0.4 + 1.2 age,
1.6 − 1.2 age and 0.8. Replayed policies: *suited* takes the best, *random* any; truths are known by integration.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import uvicorn
from tests.gateway.application import ACTIONS, FEATURES, open_alone, tastes, visit

import fedbandit as fb
from fedbandit.environments import read_decision_log
from fedbandit.evaluation import evaluate_frozen
from fedbandit.gateway.gateway import Gateway
from fedbandit.gateway.service import make_app
from fedbandit.model import Model
from fedbandit.policies import Policy
from fedbandit.policies.policy import Randomness
from fedbandit.streams import Draw
from fedbandit.types import Array

DECISIONS, OVER_HTTP, LOGS = 100_000, 20_000, 200


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
def served(gateway: Gateway) -> Iterator[str]:
    """The gateway on a port of loopback."""
    server = uvicorn.Server(uvicorn.Config(make_app(gateway), host="127.0.0.1", port=0, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


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


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        gateway, began = open_alone(Path(folder)), time.perf_counter()
        serve_visitors(gateway, DECISIONS, 0.5, 0)
        seconds = time.perf_counter() - began
        gateway.close()
        log = read_decision_log(Path(folder) / "log")
        print(f"in process: {log.n_decisions:,} decisions with rewards, {DECISIONS / seconds:,.0f} a second; "
              f"mean reward {log.rewards.mean():.3f} (random: 0.467, best: 0.650)")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        gateway = open_alone(Path(folder))
        with served(gateway) as url:
            began = time.perf_counter()
            threads = [threading.Thread(target=over_http, args=(url, OVER_HTTP // 4, k)) for k in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - began
        print(f"over HTTP, four connections from the same process: {OVER_HTTP / seconds:,.0f} decisions a second")
    print("\n| click rate, decisions | system, estimator | holds the truth in |\n|---|---|---|")
    for rate, n in ((0.5, 500), (0.004, 1000)):
        for key, share in coverage(LOGS, n, rate).items():
            print(f"| {rate:.1%}, {n:,} | {key} | {share:.1%} |", flush=True)
