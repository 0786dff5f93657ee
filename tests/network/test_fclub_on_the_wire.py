"""Five local servers and a coordinator on real sockets: the simulator's arms, clusters and messages for the same order
of events, also if a local server is restarted in between. Those of FCLUB are processes, as is its coordinator, and
local servers are killed with -9.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.plain import make_machines
from fedbandit.machines.servers_coordinator import ServersCoordinator
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, on_a_network
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from tests.network.local_servers import answer
from tests.network.servers import served

# A local server that does what lines of its input say, one by one.
PROGRAM = """
import json, sys
import fedbandit as fb
from tests.network.local_servers import answer
url, name, state = sys.argv[1:]
with fb.LocalServer(url, federation="f", name=name, state=state) as server:
    print(json.dumps(server.users), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(server, *json.loads(line))), flush=True)
"""
# A coordinator that says what it has, line by line, and ends rounds.
COORDINATOR = """
import json, sys
from fedbandit.network.invitation import Agreement
from tests.network.servers import served
from tests.network.test_fclub_on_the_wire import host_of, tell
host = host_of(Agreement.of_json(json.loads(sys.argv[1])))
with served(host) as url:
    print(json.dumps(url), flush=True)
    for line in sys.stdin:
        print(json.dumps(tell(host, *json.loads(line))), flush=True)
"""
USERS, SERVERS, DIM, ROUNDS = 10, 5, 3, 15


def host_of(agreement: Agreement) -> Host:
    """The coordinator of a federation `f`, in memory; its rounds end when they are told to."""
    return Host(ServerConfig({"f": FederationConfig(agreement, round_seconds=86_400.0)}, rate=1e6), MemoryStore())


def tell(host: Host, what: str, *given: Any) -> Any:
    """What a coordinator answers to "sent", "end" or "found", as JSON can have it."""
    hosted = host.federations["f"]
    federation, machine = hosted.federation, hosted.federation.machine
    assert isinstance(machine, ServersCoordinator)
    if what == "sent":  # to each server, of its models; its phases; whether nothing is under way
        sent = [{str(r): int(machine.inner.sent[r]) for r in machine.models_of(k)} for k in range(SERVERS)]
        phases = [list(pair) for pair in zip(machine.begun.tolist(), machine.reported.tolist(), strict=True)]
        return [sent, phases, not machine.awaits() and hosted.queue.empty()]
    if what == "end":

        async def tick() -> None:
            hosted.push(await hosted.do(federation.tick, 0.0))

        federation.rounds = given[0] - 1
        asyncio.run_coroutine_threadsafe(tick(), host._workers[0].get_loop()).result(30)
        return True
    uploads = sum(record.uploads for record in federation.register.present)
    return [uploads, machine.groups() or [], machine.phases is not None]


class Program:
    """A process that answers lines of its input."""

    def __init__(self, program: str, *words: str) -> None:
        line = [sys.executable, "-c", program, *words]
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        self.first = self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, *words: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.read()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Process(Program):
    """A local server in a process of its own."""

    def __init__(self, url: str, k: int, folder: Path) -> None:
        super().__init__(PROGRAM, url, f"server-{k}", str(folder / f"{k}.db"))


class Here:
    """A local server in this process."""

    def __init__(self, url: str, k: int, folder: Path) -> None:
        self.server = fb.LocalServer(url, federation="f", name=f"server-{k}", state=folder / f"{k}.db")

    def ask(self, *words: Any) -> Any:
        return answer(self.server, *words)

    def kill(self) -> None:
        self.server.close()


ALPHAS = {"alpha_split": 0.5, "alpha_merge": 0.3}


@pytest.mark.parametrize(("system", "keywords", "kind", "rounds"), [
    ("fclub-dc", {"upload": 1.3, "download": 1.3, **ALPHAS}, Process, ROUNDS),
    ("fclub", ALPHAS, Here, ROUNDS),
    ("homo-dc", {"upload": 1.3, "download": 1.3}, Here, 8),
    ("cdp-fclub-dc", {"epsilon": float("inf"), **ALPHAS}, Here, 8),
])  # fmt: skip
def test_local_servers_are_the_simulator(
    system: str, keywords: dict[str, float], kind: type[Process | Here], rounds: int, tmp_path: Path
) -> None:
    world = fb.World(n_clients=USERS, dim=DIM, horizon=rounds * USERS, server_of=tuple(i // 2 for i in range(USERS)))
    agreement = on_a_network(Agreement(system, keywords, world, seed=5, reward_bound=3.0))
    simulated = make_machines(agreement.build(), agreement.world, agreement.seed, 100)
    rng, theta = np.random.default_rng(0), np.array([np.eye(DIM)[i % 2] for i in range(USERS)])
    with ExitStack() as stack:
        if kind is Process:
            program = Program(COORDINATOR, json.dumps(agreement.as_json()))
            stack.callback(program.kill)
            url, ask = program.first, program.ask
        else:
            host = host_of(agreement)
            url, ask = stack.enter_context(served(host)), partial(tell, host)
        servers = [kind(url, k, tmp_path) for k in range(SERVERS)]

        def settle() -> list[Any]:
            """Wait until every local server has what it was sent, and knows what came of its report."""
            while True:
                told = [server.ask("status") for server in servers]
                sent, phases, quiet = ask("sent")
                if quiet and [t[0] for t in told] == sent and [t[1] for t in told] == phases:
                    return told
                time.sleep(0.002)

        try:
            for done in range(1, rounds + 1):
                for user in rng.permutation(USERS).tolist():
                    k, arms = user // 2, rng.uniform(-0.5, 0.5, (5, DIM))
                    theirs, (arm, name) = simulated.select(user, arms), servers[k].ask("select", user, arms.tolist())
                    assert arm == theirs.arm, f"round {done}, user {user}"
                    reward = float(arms[arm] @ theta[user] + 0.05 * rng.standard_normal())
                    simulated.observe(user, theirs.number, reward)
                    assert servers[k].ask("observe", reward, name)
                    settle()
                    if rng.random() < 0.02:
                        servers[k].kill()
                        servers[k] = kind(url, k, tmp_path)
                        settle()
                if simulated.next_wake(done - 1) == done:
                    simulated.end_round(done)
                    ask("end", done)
                told = settle()
        finally:
            for server in servers:
                server.kill()
        uploads, found, local_clusters = ask("found")
        assert uploads == simulated.uploads
        if local_clusters:
            local = {clusters[0]: clusters for t in told for clusters in t[2]}
            found = sorted(sorted(i for r in merged for i in local[r]) for merged in found)
        assert found == simulated.groups()
        assert len(found) > 1 or system == "homo-dc"
