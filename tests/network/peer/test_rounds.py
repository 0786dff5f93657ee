"""A peer's rounds: crashes, absences, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.population import User
from fedbandit.messages import Ask, Receipt, Tell, encode
from fedbandit.network.peer.peer import MOST_ROUNDS
from fedbandit.network.peer.rounds import MOST_AHEAD, MOST_BUNDLES, MOST_TO_COME, PeerRounds, bundle, unbundle
from fedbandit.network.peer.terms import Terms
from fedbandit.network.stores import MemoryStore, Store
from fedbandit.sums import Sums
from fedbandit.testing.crashing import Crash, CrashingStore
from tests.network.peer.peers import DIM, ROUNDS, TTL, Agent, machine


def peer(i: int, store: Store | None = None, epsilon: float = float("inf")) -> PeerRounds:
    one = machine(i, epsilon)
    terms = Terms(peers=4, dim=DIM, ttl=TTL, observations=ROUNDS, epsilon=epsilon, reward_bound=10.0)
    return PeerRounds(MemoryStore() if store is None else store, one, terms, lambda: 41 + i)


def exchange(peers: list[PeerRounds], i: int) -> None:
    """Peer i sends what its neighbours have not acknowledged."""
    for j, kept in peers[i].waiting.items():
        for number, data in sorted(kept.items()):
            peers[j].take(i, number, data)


def test_one_that_crashes_anywhere_tells_the_same_again() -> None:
    """Private peers, one of which crashes before or after any write: what it had sent, it sends again as it was."""
    rng = np.random.default_rng(0)
    stores = [CrashingStore() for _ in range(4)]
    peers = [peer(i, stores[i], epsilon=2.0) for i in range(4)]
    users = [User(i, fb.World(4, DIM, 4 * ROUNDS), 10, 0.0, 0) for i in range(4)]
    sent: dict[tuple[int, int, int], bytes] = {}
    crashes = 0
    for _ in range(90):
        for i in range(4):
            stores[i].crash = str(rng.choice(["", "", "", "before", "after"]))  # type: ignore[assignment]
            try:
                if not peers[i].acted:
                    users[i].meet(Agent(peers[i].machine))
                    peers[i].finish_acting()
                exchange(peers, i)
                if rng.random() < 0.3:
                    exchange(peers, i)
                for j, number in peers[i].end_round().items():
                    peers[j].acknowledged(i, number)
            except Crash:
                crashes += 1
                stores[i].crash = ""
                spent = [one.stream.spent for one in peers[i].machine.estimators if one.stream is not None]
                peers[i] = peer(i, stores[i], epsilon=2.0)
                again = [one.stream.spent for one in peers[i].machine.estimators if one.stream is not None]
                assert all(now in (before, before - 1) for now, before in zip(again, spent, strict=True))
            for kept in peers[i].waiting.values():
                for data in kept.values():
                    for message in unbundle(data):
                        if isinstance(message, Tell):
                            identity = (message.member, message.estimator, message.sequence)
                            body = message.sums.V.tobytes() + message.sums.b.tobytes()
                            assert sent.setdefault(identity, body) == body, "noise was drawn twice"
    assert crashes > 20
    assert len(sent) >= 8
    for one in peers:
        for (origin, g), tell in one.machine.node.told.items():
            own = peers[origin].machine.node.told[origin, g]
            assert tell.sequence <= own.sequence
            if tell.sequence == own.sequence:
                assert np.array_equal(tell.sums.V, own.sums.V)
        assert sum(one.machine.node.own(g).n for g in range(TTL)) <= one.machine.observed


def test_a_neighbour_that_is_down_holds_nobody_up_for_long_and_catches_up() -> None:
    peers = [peer(i) for i in range(4)]
    users = [User(i, fb.World(4, DIM, 4 * ROUNDS), 10, 0.0, 0) for i in range(4)]

    def act(i: int, up: tuple[int, ...]) -> None:
        users[i].meet(Agent(peers[i].machine))
        peers[i].finish_acting()
        exchange([one if k in up else peer(k) for k, one in enumerate(peers)], i)

    def one_round(up: tuple[int, ...]) -> None:
        for i in up:
            act(i, up)
        while (late := min(up, key=lambda i: peers[i].round)) and peers[late].round < peers[up[0]].round:
            peers[late].end_round()  # the others wait for it
            act(late, up)
        for i in up:
            for j, number in peers[i].end_round().items():
                if j in up:
                    peers[j].acknowledged(i, number)

    for _ in range(5):
        one_round((0, 1, 2, 3))
    assert peers[1].missing() == [0, 2]
    for _ in range(40):
        one_round((0, 1, 3))
    assert peers[1].down == {2}
    assert peers[1].missing() == [0], "nobody waits for the one that is down"
    assert len(peers[1].waiting[2]) <= MOST_BUNDLES, "what nobody takes does not grow for ever"
    for _ in range(3):
        one_round((0, 1, 2, 3))
    assert peers[2].machine.rounds == peers[1].machine.rounds, "it goes on where the others are"
    assert not peers[1].down
    newest = {key: tell.sequence for key, tell in peers[1].machine.node.told.items() if key[0] == 1}
    assert newest
    for key, sequence in newest.items():
        assert peers[2].machine.node.told[key].sequence == sequence, "it has heard what it missed"


@pytest.mark.parametrize(
    ("sender", "data", "sentence"),
    [
        (2, b"", "not a neighbour"),
        (1, b"\x05\0\0\0ab", "ends in the middle"),
        (1, bundle([Receipt(1, 1)]), "does not take a Receipt"),
        (1, bundle([Ask(1, 7, 1, 1)]), "estimator 7"),
        (1, bundle([Ask(1, 0, 1, 99)]), "99 hops"),
        (1, bundle([Ask(4, 0, 1, 1)]), "peer 4"),
        (1, bundle([Tell(1, 0, 1, 1, Sums(-np.eye(DIM), np.zeros(DIM), 1))]), "semi-definite"),
        (1, bundle([Tell(1, 0, 1, 1, Sums(np.eye(2), np.zeros(2), 9))]), "dimension"),
    ],
)
def test_nothing_wrong_gets_in(sender: int, data: bytes, sentence: str) -> None:
    one = peer(0)
    before = one.state().header
    with pytest.raises(fb.FedbanditError, match=sentence):
        one.take(sender, 1, data)
    assert one.state().header == before
    assert one.heard == {1: 0, 3: 0}


def test_nobody_is_sent_beyond_the_last_round() -> None:
    one = peer(0)
    with pytest.raises(fb.FedbanditError, match="rounds at most"):
        one.take(1, 2**40, bundle([]))
    assert one.heard == {1: 0, 3: 0}


def test_one_that_lies_about_its_round_ends_nothing() -> None:
    """One bundle of the last round there is had all peers there at once, for ever: nothing was taken any more."""

    def lasting(i: int) -> PeerRounds:
        one = peer(i)
        one.machine.most_rounds = MOST_ROUNDS
        return one

    peers = [lasting(i) for i in range(4)]
    honest = (0, 1, 3)  # 2 lies to its neighbours, 1 and 3, and is down
    for i in (1, 3):
        peers[i].take(2, MOST_ROUNDS, bundle([]))
    users = [User(i, fb.World(4, DIM, 4 * ROUNDS), 10, 0.0, 0) for i in range(4)]
    for _ in range(ROUNDS):
        for i in honest:
            users[i].meet(Agent(peers[i].machine))
            peers[i].finish_acting()
            exchange([one if k in honest else lasting(k) for k, one in enumerate(peers)], i)
        for i in honest:
            for j, number in peers[i].end_round().items():
                if j in honest:
                    peers[j].acknowledged(i, number)
    assert all(peers[i].machine.rounds <= (ROUNDS + 1) * (MOST_AHEAD + 1) < MOST_ROUNDS / 2**20 for i in honest)
    for i, j in ((0, 1), (1, 0), (0, 3), (3, 0)):
        assert any(origin == j for origin, _ in peers[i].machine.node.told), "they hear one another"


def test_bundles_of_rounds_to_come_do_not_fill_the_memory() -> None:
    one = peer(0)
    one.machine.most_rounds = MOST_ROUNDS
    for number in range(2, MOST_TO_COME + 2):
        one.take(1, number, bundle([]))
    with pytest.raises(fb.FedbanditError, match="bundles of rounds to come"):
        one.take(1, MOST_TO_COME + 2, bundle([]))
    one.finish_acting()
    one.end_round()
    one.take(1, MOST_TO_COME + 2, bundle([]))
    assert one.heard[1] == MOST_TO_COME + 2, "it comes again"


def test_a_peer_that_lost_its_state_is_recognised() -> None:
    one = peer(0)
    one.meet(1, 5)
    one.meet(1, 5)
    with pytest.raises(fb.FedbanditError, match="lost its state"):
        one.meet(1, 6)
    store = MemoryStore()
    assert peer(0, store).incarnation == peer(0, store).incarnation
    assert len(encode(Ask(0, 0, 1, 1))) > 0
