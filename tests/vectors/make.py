"""Write the corpus: `python -m tests.vectors.make`.

Lives of one client of a real federation: its coordinator and a second client run beside it, in memory, and what the
first one is given and does is noted. Numbers are short decimals, so that files can be read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.messages import (
    Collect,
    Download,
    Join,
    Message,
    Recall,
    Receipt,
    Relayed,
    Request,
    Restate,
    Threshold,
    Upload,
    decode,
    encode,
)
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.envelope import extend
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.resolved import invitation
from fedbandit.network.stores import MemoryStore
from fedbandit.server_messages import FromServer, ToServer
from fedbandit.streams import Draw, policy_key
from fedbandit.sums import BlockSums, FactoredSums, Slack, Sums, factored
from tests.vectors.client import CorpusClient
from tests.vectors.run import FOLDER, _do, fields_of

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


POLICIES = ("ucb", "greedy", "lints", "linphe", "igw", "uniform")


def asynchronous_life(policy: str) -> Life:
    """A life in Async-LinUCB."""
    what = f"An asynchronous federation whose clients choose by {policy}."
    life = Life(f"async-{policy}", what, agreed("async-linucb", gamma_upload=1.5, gamma_download=1.5, policy=policy))
    life.open()
    life.connect()
    life.act(14)
    life.check()
    return life


def asynchronous() -> None:
    """Async-LinUCB with each policy."""
    for policy in POLICIES:
        asynchronous_life(policy).write()


def counting() -> None:
    """Counts decide; rewards come late, out of order, or never."""
    life = Life(
        "count-late-rewards", "Rewards that are late, out of order, forgotten or never come.", agreed("count-linucb")
    )
    life.open()
    life.connect()
    waiting: list[tuple[str, float]] = []
    for k in range(24):
        label, X, arm = life.select()
        waiting.append((label, life._reward(X[arm])))
        if k % 5 == 4:
            life.do("forget", of=waiting.pop(0)[0])
        elif k % 2:
            for label, reward in reversed(waiting[-3:]):
                life.observe(label, reward)
                life.pump()
            del waiting[-3:]
            life._other_acts()
            life.pump()
    life.check()
    life.write()


def synchronous() -> None:
    """Requests and calls."""
    life = Life(
        "sync", "A synchronous federation: a request, a call to all, downloads.", agreed("sync-linucb", threshold=0.4)
    )
    life.open()
    life.connect()
    life.act(14)
    life.check()
    life.write()


def queue() -> None:
    """Exploration, then a queue that serves members one by one."""
    life = Life(
        "queue-exploring",
        "Clients explore first; then a queue serves whoever has asked, by growth, and thresholds change.",
        on_a_network(agreed("hetofedbandit", exploration=6)),
    )
    life.open()
    life.connect()
    life.act(16)
    life.check()
    life.write()


def two_parts() -> None:
    """A shared and a personal part, with each policy."""
    for policy in ("ucb", "lints", "linphe", "igw"):
        life = Life(
            "two-part" if policy == "ucb" else f"two-part-{policy}",
            "A model in two parts: the first two entries of a context are shared, the others are the client's own.",
            agreed("async-linucb-am", dim=4, d_global=2, gamma_upload=1.5, gamma_download=1.5, policy=policy),
            exact=False,
        )
        life.open()
        life.connect()
        life.act(18)
        life.check()
        life.write()


def per_action() -> None:
    """One model for each action, with each policy; one life has a crash and a coordinator that was restored."""
    for policy in ("ucb", "lints", "linphe", "igw"):
        life = Life(
            f"actions-{policy}",
            "Each of five actions has a model of its own: an arm is the number of its action, and features.",
            agreed("async-linucb", dim=2, actions=5, gamma_upload=1.5, gamma_download=1.5, policy=policy),
        )
        life.open()
        life.connect()
        life.act(10)
        for arms in ([[5, 0.1, 0.1]], [[0.5, 0.1, 0.1]], [[-1, 0.1, 0.1]], [[0.1, 0.1]], [[0, 1.0, 1.0]]):
            life.do("select", **{"as": "bad"}, arms=arms)
        life.check()
        life.do("flush")
        life.open()  # after a crash
        life.connect()
        life.act(8)
        life.check()
        if policy == "ucb":
            life.reaches = False
            life.do("receive", message=encode(Recall(0, 0)).hex())
            blocks = Sums(np.zeros((4, 2, 2)), np.zeros((4, 2)), 0)
            life.do("receive", message=encode(Download(0, 99, 0, blocks, actions=4)).hex())  # of other actions
            life.check()
        life.write()


def per_action_synchronous() -> None:
    """Calls to which there is nothing to say: uploads without blocks."""
    what = "A synchronous federation with a model for each action: uploads of no block at all."
    life = Life("actions-sync", what, agreed("sync-linucb", dim=2, actions=5, threshold=0.4))
    life.open()
    life.connect()
    life.act(8)
    life.reaches = False
    for epoch in (50, 51):
        life.do("receive", message=encode(Collect(0, epoch)).hex())
        life.do("receive", message=encode(Receipt(0, life.client.status()["uploads"])).hex())
    life.check()
    life.write()


def exploring() -> None:
    """Now and then any arm, with a probability that is known."""
    for policy in ("ucb", "igw"):
        life = Life(f"explore-{policy}", "Choices with exploration, and how probable they were.",
                    agreed("async-linucb", gamma_upload=1.5, policy=policy))  # fmt: skip
        life.open()
        life.connect()
        for explore in (0.0, 0.5, 1.0, *[0.3] * 12):
            label, X, arm = life.select(explore=explore)
            life.observe(label, life._reward(X[arm]))
            life.pump()
        for explore in (-0.1, 1.5):
            life.do("select", **{"as": "bad"}, arms=life._arms(), explore=explore)
        life.check()
        life.write()


def restarts() -> None:
    """Crashes, lost answers, repeated and overtaken messages."""
    life = Life(
        "restarts",
        "Crashes, lost frames, repeated receipts, offline for long.",
        agreed("async-linucb", gamma_upload=1.3),
    )
    life.open()
    life.act(3)  # never connected yet
    life.do("flush")
    life.check()
    life.open()  # after a crash: the same uploads, byte for byte
    life.connect()
    life.act(3)
    life.reaches = False  # an upload gets lost
    for _ in range(6):
        label, X, arm = life.select()
        life.observe(label, life._reward(X[arm]))
    kept, X, arm = life.select()
    life.do("flush")
    life.do("disconnect")
    life.reaches = True
    life.connect()
    life.open()
    life.connect()
    life.observe(kept, life._reward(X[arm]))  # its choice was made before the crash
    life.pump()
    life.do("observe", of=kept, reward=0.5)  # once is enough
    life.act(2)
    applied = life.federation.machine.applied[0]
    for sequence in (applied, 0, applied):
        life.do("receive", message=encode(Receipt(0, sequence)).hex())
    life.check()
    life.write()


def downloads() -> None:
    """What becomes of downloads, made by hand."""
    what = "Downloads that are newer, older, overtaken by receipts, or say how uncertain they are."
    life = Life("downloads", what, agreed("async-linucb", dim=2, gamma_upload=1.2))
    life.open()
    life.connect()
    life.reaches = False
    life.inbox.clear()

    def given(version: int, acknowledged: int, n: int, slack: Slack | None = None) -> None:
        V = np.array([[0.5, 0.125], [0.125, 0.25]]) * n
        message = Download(0, version, acknowledged, Sums(V, np.array([0.25, -0.125]) * n, n), slack or Slack())
        life.do("receive", message=encode(message).hex())
        life.check()

    for _ in range(4):
        label, X, arm = life.select()
        life.observe(label, life._reward(X[arm]))
    given(3, 0, 4)  # with all of its own uploads on top
    life.do("receive", message=encode(Receipt(0, 1)).hex())
    given(5, 1, 8)
    given(4, 2, 2)  # older: only what it acknowledges counts
    label, X, arm = life.select()
    life.observe(label, life._reward(X[arm]))
    given(6, 2, 16, Slack(offset=0.25, inflation=0.5, noise=0.125))
    life.select()
    given(7, 3, 16, Slack(bias=0.5, headstart=0.125))
    label, X, arm = life.select()
    life.observe(label, life._reward(X[arm]))
    life.do("receive", message=encode(Threshold(0, 50.0)).hex())
    for _ in range(2):
        label, X, arm = life.select()
        life.observe(label, life._reward(X[arm]))
    life.do("receive", message=encode(Threshold(0, 0.05)).hex())
    for _ in range(14):
        label, X, arm = life.select()
        life.observe(label, life._reward(X[arm]))
        life.do("receive", message=encode(Receipt(0, life.client.status()["uploads"])).hex())
    given(20, 3, 4)  # overtaken by more than eight receipts: as good as lost
    given(21, life.client.status()["uploads"] - 2, 4)
    for bad in (Download(1, 9, 0, Sums(np.eye(2), np.ones(2), 1)), Download(0, 9, 0, Sums(np.eye(3), np.ones(3), 1))):
        life.do("receive", message=encode(bad).hex())
    life.do("receive", message=encode(Join(0)).hex())
    life.check()
    life.write()


def recalled() -> None:
    """The coordinator was restored from a backup."""
    what = "A coordinator that has lost uploads asks for all of them at once."
    life = Life("recall", what, agreed("async-linucb", gamma_upload=1.3))
    life.open()
    life.connect()
    life.act(5)
    life.reaches = False
    made = life.client.status()["uploads"]
    life.do("receive", message=encode(Recall(0, made)).hex())  # it has all: nothing
    life.do("receive", message=encode(Recall(0, 1)).hex())
    life.do("disconnect")
    life.do("connect")
    life.do("receive", message=encode(Recall(0, 0)).hex())
    life.do("receive", message=encode(Receipt(0, 0)).hex())
    life.do("receive", message=encode(Receipt(0, made)).hex())
    life.do("receive", message=encode(Receipt(0, 0)).hex())
    while life.client.status()["uploads"] < made + 4:
        label, X, arm = life.select()
        life.observe(label, life._reward(X[arm]))
    for has in (made + 3, made + 1):  # it has uploads whose receipts were lost: the last of them is sent again
        life.do("disconnect")
        life.do("connect")
        life.do("receive", message=encode(Recall(0, has)).hex())
        life.do("receive", message=encode(Receipt(0, 0)).hex())
    for number in range(made + 1, made + 5):
        life.do("receive", message=encode(Receipt(0, number)).hex())
    life.reaches = True
    life.check()
    life.write()


def ties() -> None:
    """The lowest index within 1e-9 of the largest score."""
    life = Life("ties", "Ties go to the lowest index.", agreed("async-linucb", dim=2, gamma_upload=4.0, alpha=0.5))
    life.open()
    x = [0.25, 0.5]
    for arms in ([x, x, x], [[0.0, 0.1], x, [0.25, 0.5 + 1e-10]], [[0.25, 0.5], [0.25, 0.5 + 1e-6]], [[0.0, 0.0]]):
        label, _, arm = life.select(arms)
        life.observe(label, 0.5 if arm else -0.25)
    life.select([[0.6, 0.0], [-0.6, 0.0]])
    life.check()
    life.write()


def refusals() -> None:
    """What a client refuses, and what is refused to it."""
    life = Life(
        "refusals", "Arms and rewards that are none; refusals of the coordinator.", agreed("async-linucb", dim=2)
    )
    life.open()
    life.connect()
    for arms in ([[1.0, 1.0]], [[0.1, 0.2, 0.3]], [], [0.1, 0.2], [["a", "b"]], [[None, 0.1]], "arms", None):
        life.do("select", **{"as": "bad"}, arms=arms)
    label, _, _ = life.select()
    for reward in (1.5, -1.001, None, "0.5", [0.5]):
        life.do("observe", of=label, reward=reward)
    life.observe(label, 1.0)
    life.do("observe", of=label, reward=0.5)
    life.pump()
    for kind, sentence in (
        ("rate", "Too many."),
        ("session", "Client 'client-0' uses a copy."),
        ("order", "Out of order."),
    ):
        life.do("refusal", text=json.dumps({"error": sentence, "kind": kind}))
        life.connect()
    for owner in ({}, {"owner": "https://other:8765"}):
        elsewhere = {"error": "Another coordinator owns it.", "kind": "elsewhere", **owner}
        life.do("refusal", text=json.dumps(elsewhere))
        life.connect()
    for message in ("00", encode(Receipt(0, 1)).hex()[:-2], "4642090300", encode(Collect(1, 1)).hex()):
        life.do("receive", message=message)
    life.check()
    life.write()


def factors() -> None:
    """Uploads as factors."""
    X = np.array([[0.0, 0.75, 0.0, 0.5, 0.0, 0.25], [0.0, 0.375, 0.5, 0.25, 0.0, 0.125]])
    few = factored(Sums(X.T @ X, X.T @ np.array([0.5, -0.25]), 2))
    assert isinstance(few, FactoredSums)
    known = [Upload(3, 5, few, 0.5), Upload(0, 1, FactoredSums(few.L[:, :1], few.c[:1], 1), -1e300)]
    data = encode(known[0])
    nan = np.array([np.nan]).tobytes()
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("another rank", data[:24] + b"\x03" + data[25:]),
        ("no rank", data[:24] + b"\0" + data[25:]),
        ("a factor that is none", data[:48] + nan + data[56:]),
        ("a download as a factor", data[:3] + b"\x84" + data[4:]),
    ]
    what = "Uploads as factors, V = LLᵀ and b = Lc, and bytes that are none."
    _write_messages("factors", what, ["factors"], known, refused)


def blocks() -> None:
    """Statistics in blocks."""
    V = np.array([[[1.5, 0.25], [0.25, 2.0]], [[0.5, 0.0], [0.0, 0.25]]])
    some = BlockSums(V, np.array([[0.5, -1.0], [0.25, 0.125]]), 3, np.array([1, 4]))
    none = BlockSums(V[:0], some.b[:0], 0, some.actions[:0])
    known: list[Message] = [
        Upload(3, 5, some, 0.75, 6),
        Upload(0, 1, none, 0.0, 6),
        Download(3, 18, 5, some, actions=6),
        Restate(3, 5, 4, some, 0.5, 6),
    ]
    data = encode(known[0])
    nan = np.array([np.nan]).tobytes()
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("no blocks", data[:48]),
        ("more blocks than there are", data[:52] + b"\x03" + data[53:]),
        ("actions that do not ascend", data[:64] + b"\x01" + data[65:]),
        ("an action beyond the last", data[:64] + b"\x06" + data[65:]),
        ("statistics that are none", data[:72] + nan + data[80:]),
        ("no blocks, of more features than anybody has", encode(known[1])[:6] + b"\xff" + encode(known[1])[7:]),
        ("a receipt in blocks", data[:3] + b"\x23" + data[4:]),
    ]
    _write_messages(
        "blocks", "Statistics of some actions, each with a model of its own.", ["per-action"], known, refused
    )


def dated() -> None:
    """Statistics in the units of a round."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    some = BlockSums(sums.V[None], sums.b[None], 3, np.array([4]))
    known: list[Message] = [
        Upload(3, 5, sums, 0.75, round=9),
        Upload(3, 6, some, 0.75, 6, round=2**40),
        Download(3, 18, 5, sums, round=9),
        Restate(3, 5, 4, sums, 0.5, round=0),
    ]
    data = encode(known[0])
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("without its round", data[:40] + data[48:]),
        ("a receipt with a round", data[:3] + b"\x43" + data[4:]),
    ]
    _write_messages("dated", "Statistics of models that forget, each with its round.", ["forgetting"], known, refused)


def relays() -> None:
    """What relays of private federations say."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    known: list[Message] = [
        Upload(3, 5, sums, 0.75, relayed=Relayed(2.5, 2)),
        Restate(3, 5, 4, sums, 0.5, relayed=Relayed(0.0, 0)),
    ]
    data = encode(known[0])
    refused = [("cut short", data[:-1]), ("too long", data + b"\0")]
    _write_messages("relays", "Uploads of relays, with the noise that is in them.", ["relay"], known, refused)


def servers() -> None:
    """What local servers say."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    known: list[Message] = [
        FromServer(1, 7, 2, (Upload(4, 7, sums, 0.5),)),
        FromServer(1, 8, 3, (Upload(4, 0, sums, 0.5), Upload(6, 0, sums, 0.25)), report=True),
        FromServer(1, 0, 2, (Join(4, 17), Join(6), Request(4, 12.5))),
        ToServer(1, 2, (Download(4, 18, 7, sums), Threshold(6, 0.75))),
        ToServer(1, 3, (), renewal=True),
        ToServer(1, 4, (Collect(4, 4), Collect(6, 4))),
    ]
    data, other = encode(known[0]), encode(known[3])
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("a part that is longer than it is", data[:40] + b"\xff" + data[41:]),
        ("a download from a server", data[:47] + b"\x04" + data[48:]),
        ("an upload to a server", other[:47] + b"\x02" + other[48:]),
    ]
    _write_messages(
        "servers", "Messages of local servers: those of their models inside.", ["local-server"], known, refused
    )


def _write_messages(
    name: str, what: str, needs: list[str], known: Sequence[Message], refused: list[tuple[str, bytes]]
) -> None:
    entries = [
        {"kind": type(m).__name__, "fields": fields_of(decode(encode(m))), "hex": encode(m).hex()} for m in known
    ]
    bad = [{"why": why, "hex": data.hex()} for why, data in refused]
    _write(name, {"kind": "messages", "what": what, "needs": needs, "messages": entries, "refused": bad})


def messages() -> None:
    """Every message, and what is none."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    known: list[Message] = [
        Join(3, 17),
        Upload(3, 5, sums, 0.6931471805599453),
        Upload(0, 1, sums, -1e300),
        Receipt(3, 5),
        Download(3, 18, 5, sums),
        Download(3, 19, 5, sums, Slack(0.25, 0.5, 0.125, 1.0, 2.0, 4.0), own=False),
        Request(3, 12.5),
        Collect(3, 4),
        Threshold(3, 0.75),
        Recall(3, 4),
        Restate(3, 5, 4, sums, 0.5),
    ]
    upload = encode(known[1])
    nan = np.array([np.nan]).tobytes()
    refused = [
        ("cut short", upload[:-1]),
        ("too long", upload + b"\0"),
        ("another magic", b"FX" + upload[2:]),
        ("another format", upload[:2] + b"\x63" + upload[3:]),
        ("an unknown kind", upload[:3] + b"\x63" + upload[4:]),
        ("another dimension", upload[:4] + b"\x03" + upload[5:]),
        ("a number that is none", upload[:32] + nan + upload[40:]),
        ("statistics that are none", upload[:56] + nan + upload[64:]),
        ("nothing", b""),
    ]
    _write_messages("messages", "Messages as bytes, and bytes that are none.", [], known, refused)
    chain, uploads = 0, []
    for k in range(1, 4):
        data = encode(Upload(3, k, Sums(sums.V * k, sums.b * k, k), 0.5 * k))
        chain = extend(chain, data)
        uploads.append({"upload": data.hex(), "chain": chain.to_bytes(16, "little").hex()})
    _write("chain", {"kind": "chain", "what": "The chain after each upload.", "needs": [], "uploads": uploads})


def draws() -> None:
    """Philox, as policies use it."""
    entries = []
    for client, step in ((0, 0), (3, 0), (3, 1), (1, 2**33 + 5)):
        draw, calls = Draw(policy_key(7), client, step), list[dict[str, Any]]()
        calls += [{"index": 10, "is": draw.index(10)}, {"uniform": True, "is": draw.uniform()}]
        calls += [{"normal": 3, "is": draw.normal(3).tolist()}, {"index": 7, "is": draw.index(7)}]
        calls += [{"normal": 2, "is": draw.normal(2).tolist()}, {"uniform": True, "is": draw.uniform()}]
        entries.append({"client": client, "step": step, "calls": calls})
    what = "Numbers drawn at a client's step, in this order."
    _write("draws", {"kind": "draws", "what": what, "needs": [], "key": policy_key(7).tolist(), "draws": entries})


def encodings() -> None:
    """Named values and their contexts."""
    features = fb.Features(
        context={"age": {"number": [0, 100]}, "é": "boolean", "country": {"category": ["de", "fr"], "other": True}},
        action={"kind": {"category": ["book", "film"]}, "tags": {"hash": 7}, "Price": {"number": [-1.5, 3.25]}},
        interactions=[("age", "kind"), ("kind", "tags")],
    )
    situation = {"age": 31.7, "é": False, "country": "fr"}
    book, film = (
        {"kind": "book", "tags": "crime", "Price": 1},
        {"kind": "film", "tags": ["new", 7, "ünïcode"], "Price": 9},
    )
    asked: list[tuple[Any, Any]] = [
        ([book, film], situation),
        ([film | {"tags": -(2**53) + 1, "Price": None}], situation | {"age": -5, "é": True, "country": "at"}),
        ([book | {"tags": [], "kind": None}], dict.fromkeys(situation)),
        ([book | {"kind": "disc"}], situation),
        ([book | {"tags": 0.5}], situation),
        ([book | {"tags": True}], situation),
        ([book], situation | {"age": "old"}),
        ([book], situation | {"é": 1}),
        ([book], {"age": 1}),
        ([book], situation | {"sex": "f"}),
        ([], situation),
    ]
    entries: list[dict[str, Any]] = []
    for actions, context in asked:
        try:
            entries.append(
                {"actions": actions, "context": context, "is": features.transform(actions, context).tolist()}
            )
        except FedbanditError:
            entries.append({"actions": actions, "context": context, "refused": True})
    what = "Named values and the contexts that they become, bit by bit."
    _write(
        "features", {"kind": "features", "what": what, "needs": [], "features": features.as_json(), "contexts": entries}
    )


def _write(name: str, case: dict[str, Any]) -> None:
    (FOLDER / f"{name}.json").write_text(json.dumps({"name": name, **case}, indent=1) + "\n")


if __name__ == "__main__":
    for make in (asynchronous, counting, synchronous, queue, two_parts, per_action, per_action_synchronous, exploring,
                 restarts, downloads, recalled, ties, refusals, messages, factors, blocks, dated, relays, servers,
                 draws, encodings):  # fmt: skip
        make()
