"""A client's life in a real federation, in memory, as it is noted for the corpus (`tests.vectors.make`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.messages import (
    Message,
    decode,
    encode,
)
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.resolved import invitation
from fedbandit.network.stores import MemoryStore
from tests.vectors.client import CorpusClient
from tests.vectors.run import FOLDER, _do

INCARNATION = "0123456789abcdef"
THETA = np.array([0.7, -0.4, 0.2])


class Life:
    """A client's life, as it is noted."""

    def __init__(self, name: str, what: str, agreement: Agreement, *, exact: bool = True) -> None:
        self.name, self.what, self.exact = name, what, exact
        self.invitation = json.loads(json.dumps(invitation(agreement, "corpus", 0, "client-0"), allow_nan=False))
        self.federation = Federation("corpus", agreement, MemoryStore())
        for i in range(2):
            self.federation.invite(f"client-{i}", 0.0)
        self.client = CorpusClient(self.invitation)
        self.other = DurableClient(MemoryStore(), agreement, 1, iter(range(11, 99)).__next__)
        self.dim, self.actions = agreement.world.dim, agreement.world.actions
        self.rng = np.random.default_rng(sum(map(ord, name)))
        self.events: list[dict[str, Any]] = []
        self.choices = self.openings = 0
        self.reaches = True  # whether what is sent arrives
        self.inbox: list[Message] = []
        self.history: list[tuple[int, Any, int, float]] = []
        """What both clients did in `act`: who, arms, the chosen one, reward."""

    # Events

    def do(self, do: str, **event: Any) -> dict[str, Any]:
        """Let something happen, and note what comes of it; frames reach the coordinator, and answers the client."""
        event = {"do": do, **event}
        try:
            found = _do(self.client, event)
        except FedbanditError:
            found = {"refused": True}
        self.events.append({**event, **found})
        for frame in found.get("sends", ()):
            if self.reaches:
                self._tell("client-0", bytes.fromhex(frame))
        return found

    def pump(self) -> None:
        """The client takes what waits for it, and so on."""
        while self.inbox:
            self.do("receive", message=encode(self.inbox.pop(0)).hex())

    def open(self) -> None:
        """The state is opened, and a connection made."""
        self.openings += 1
        self.do("open", incarnation=INCARNATION, nonce=f"{0xA0000000 + self.openings:016x}")

    def connect(self) -> None:
        """A connection on which everything arrives."""
        self.do("connect")
        self.pump()

    def select(self, arms: Any = None, **more: Any) -> tuple[str, Any, int]:
        """A choice: its label, its arms, and which was chosen."""
        X = self._arms() if arms is None else arms
        self.choices += 1
        label = f"c{self.choices}"
        return label, X, int(self.do("select", **{"as": label}, arms=X, **more)["arm"])

    def observe(self, label: str, reward: float) -> None:
        """A reward."""
        self.do("observe", of=label, reward=round(float(reward), 3))

    def act(self, times: int = 1) -> None:
        """Choose, learn, and exchange what is due; the other client acts, too."""
        for _ in range(times):
            label, X, arm = self.select()
            reward = self._reward(X[arm])
            self.observe(label, reward)
            self.history.append((0, X, arm, round(reward, 3)))
            self.pump()
            self._other_acts()
            self.pump()
            if self.federation.machine.clocked:
                self._route(self.federation.tick(0.0))
                self.pump()

    def check(self) -> None:
        """Note what is known."""
        self.events.append({"do": "check", **self.client.status()})

    def write(self) -> None:
        """The file, one event a line."""
        head = {
            "kind": "life",
            "name": self.name,
            "what": self.what,
            "needs": self.invitation["client"]["capabilities"],
            "exact": self.exact,
            "invitation": self.invitation,
        }
        events = ",\n  ".join(json.dumps(event) for event in self.events)
        text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "events": [\n  {events}\n ]\n}}\n'
        (FOLDER / f"{self.name}.json").write_text(text)

    # How

    def _arms(self, count: int = 4) -> Any:
        X = self.rng.uniform(-1, 1, (count, self.dim))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.01
        rows: list[list[float]] = X.round(3).tolist()
        if self.actions:  # a row is (action, features)
            return [
                [a, *row] for a, row in zip(self.rng.integers(self.actions, size=count).tolist(), rows, strict=True)
            ]
        return rows

    def _reward(self, x: Any) -> float:
        theta = np.resize(THETA, self.dim)
        if self.actions:
            x, theta = x[1:], np.roll(theta, int(x[0]))
        return float(np.clip(np.dot(x, theta) + self.rng.normal(0, 0.05), -1, 1))

    def _other_acts(self) -> None:
        X = self._arms()
        choice = self.other.select(X)
        reward = round(self._reward(X[choice.arm]), 3)
        self.other.observe(choice.number, reward)
        self.history.append((1, X, choice.arm, reward))
        self._talk()

    def _talk(self) -> None:
        if not self.federation.register.by_name["client-1"].joined:
            greeting = self.other.greeting()
            assert greeting is not None
            self._tell("client-1", greeting)
        while frames := self.other.outgoing():
            self._tell("client-1", frames[0].data)

    def _tell(self, name: str, frame: bytes) -> None:
        (answers,) = self.federation.receive([(name, frame)], 0.0)
        assert not isinstance(answers, Refusal), answers
        self._route(answers)

    def _route(self, answers: list[Message]) -> None:
        for message in answers:
            if message.member == 0:
                self.inbox.append(message)
            else:
                self.other.receive(decode(encode(message)))
                self._talk()


def agreed(system: str, dim: int = 3, *, actions: int = 0, **keywords: Any) -> Agreement:
    """A federation of two."""
    world = fb.World(n_clients=2, dim=dim, horizon=400, actions=actions)
    return Agreement(system, keywords, world, seed=7, reward_bound=1.0)
