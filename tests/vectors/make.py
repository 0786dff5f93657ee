"""Write the corpus: `python -m tests.vectors.make`.

Lives of one client of a real federation: its coordinator and a second client run beside it, in memory, and what the
first one is given and does is noted. Numbers are short decimals, so that files can be read.

Files that have landed are kept as they are (`git checkout` those that differ), unless a case itself changes: clients
in other languages were written against them, and invitations of older coordinators must be read.
"""

from __future__ import annotations

import json

import numpy as np

from fedbandit.messages import (
    Collect,
    Download,
    Join,
    Recall,
    Receipt,
    Threshold,
    encode,
)
from fedbandit.network.coordinator.config import on_a_network
from fedbandit.sums import Slack, Sums
from tests.vectors.life import Life, agreed
from tests.vectors.tables import blocks, dated, draws, encodings, factors, messages, relays, servers

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


if __name__ == "__main__":
    for make in (asynchronous, counting, synchronous, queue, two_parts, per_action, per_action_synchronous, exploring,
                 restarts, downloads, recalled, ties, refusals, messages, factors, blocks, dated, relays, servers,
                 draws, encodings):  # fmt: skip
        make()
