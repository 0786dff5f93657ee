"""`fedbandit peer`: one peer of a federation that has no coordinator, with a simulated user."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import secrets
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.network.addresses import bind, is_loopback, parse_address

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fedbandit.network.client.choices import Arm
    from fedbandit.network.peer.rounds import PeerRounds

SUMMARY = "Run one peer of a federation without a coordinator: decentralised FedUCB."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which peer it is, its neighbours, privacy, and what its user is like."""
    command.add_argument("--member", type=int, required=True, metavar="I", help="this peer's number, from 0")
    command.add_argument("--peers", type=int, required=True, metavar="N", help="how many peers there are")
    command.add_argument("--listen", required=True, metavar="HOST:PORT", help="where neighbours find this peer")
    command.add_argument("--neighbours", required=True, metavar="J=HOST:PORT,…", help="whom it talks to")
    command.add_argument("--dim", type=int, required=True, metavar="D", help="length of contexts")
    command.add_argument("--ttl", type=int, default=1, metavar="HOPS", help="how far messages travel (default: 1)")
    command.add_argument(
        "--rounds", type=int, default=100, metavar="T", help="interactions of each peer (default: 100)"
    )
    command.add_argument(
        "--epsilon", type=float, default=1.0, metavar="E", help="budget; inf for no noise (default: 1)"
    )
    command.add_argument("--delta", type=float, default=1e-5, metavar="D", help="default: 1e-5")
    command.add_argument("--patience", type=float, default=10.0, metavar="S", help="seconds to wait for a neighbour")
    command.add_argument("--pace", type=float, default=0.0, metavar="R", help="rounds a second (default: any)")
    command.add_argument("--state", type=Path, metavar="FILE", help="to go on after a crash")
    command.add_argument("--keys", type=Path, metavar="FOLDER", help="certificate and credentials; needed off loopback")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="this peer's token, of the name peer-I")
    command.add_argument("--arms", type=int, default=10, metavar="K", help="default: 10")
    command.add_argument("--spread", type=float, default=0.0, metavar="S", help="how much tastes differ (default: 0)")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="of the simulated users (default: 0)")


class Agent:
    """A peer as a user sees it."""

    def __init__(self, rounds: PeerRounds) -> None:
        self.machine = rounds.machine
        self.facts: dict[str, float] = {}

    def select(self, arms: ArrayLike) -> Arm:
        """Choose one of the arms."""
        from fedbandit.network.client.choices import Arm, id_of

        choice = self.machine.select(arms)
        return Arm(choice.arm, id_of(choice.number))

    def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice."""
        from fedbandit.network.client.choices import number_of

        self.machine.observe(number_of(choice), reward)


def run(options: argparse.Namespace) -> int:
    """Take part until all rounds are over; print the result."""
    from fedbandit.cli.population import User
    from fedbandit.cli.serve import log_to_stderr
    from fedbandit.network.credentials import Credentials
    from fedbandit.network.peer.peering import Peering
    from fedbandit.network.stores import open_store

    neighbours = addresses(options)
    host, port = parse_address(options.listen)
    for place in (host, *(near for near, _ in neighbours.values())):
        if options.keys is None and not is_loopback(place):
            raise FedbanditError(f"{place!r} is not loopback, so --keys are required; see fedbandit keys init.")
    number(options.patience, "--patience", "a number of seconds ≥ 0", at_least=0.0)
    tls, trust, token = security(options)
    store = open_store(options.state)
    try:
        rounds, world = make_rounds(options, neighbours, store)
        user, agent = User(options.member, world, options.arms, options.spread, options.seed), Agent(rounds)
        agreement = {"peers": options.peers, "dim": options.dim, "ttl": options.ttl, "rounds": options.rounds,
                     "epsilon": repr(options.epsilon), "delta": options.delta}  # fmt: skip
        peering = Peering(
            rounds,
            neighbours,
            agreement,
            patience=options.patience,
            credentials=None if options.keys is None else Credentials(options.keys),
            token=token,
            trust=trust,
            pause=1 / options.pace if options.pace > 0 else 0.0,
        )

        for _ in range(rounds.machine.rounds + rounds.acted):
            user.skip()  # visits before a restart
        log_to_stderr()
        asyncio.run(peering.run(lambda: user.meet(agent), options.rounds, bind(host, port), tls))
    finally:
        store.close()
    _tell(options, rounds, user, peering.problem)
    return 0


def make_rounds(options: argparse.Namespace, neighbours: dict[int, Any], store: Any) -> tuple[PeerRounds, Any]:
    """The peer, going on from its store, and its world."""
    from fedbandit.machines.peer import PeerMachine
    from fedbandit.network.coordinator.limits import Limits
    from fedbandit.network.peer.rounds import PeerRounds
    from fedbandit.presets import feducb
    from fedbandit.privacy.secure import SecureSource
    from fedbandit.world import World

    N = whole_number("--peers", options.peers, 2)
    require(0 <= options.member < N, "--member", options.member, f"a number from 0 to {N - 1}")
    for j in neighbours:
        require(0 <= j < N and j != options.member, "a neighbour", j, f"another number from 0 to {N - 1}")
    rounds, dim = whole_number("--rounds", options.rounds), whole_number("--dim", options.dim)
    world = World(n_clients=N, dim=dim, horizon=rounds * N, per_round=N)
    # Who is whose neighbour each peer knows only of itself: a line has the largest diameter that there can be.
    system = feducb(epsilon=options.epsilon, delta=options.delta, topology="unknown", ttl=options.ttl)
    source = None if math.isinf(options.epsilon) else SecureSource()
    machine = PeerMachine(
        options.member, system, world, options.seed, neighbours=tuple(sorted(neighbours)), source=source
    )
    limits = Limits.of(system.told(world), world, reward_bound=10.0)
    return PeerRounds(store, machine, limits, lambda: secrets.randbits(63)), world


def addresses(options: argparse.Namespace) -> dict[int, tuple[str, int]]:
    """Neighbours by number."""
    found: dict[int, tuple[str, int]] = {}
    for entry in options.neighbours.split(","):
        who, equals, where = entry.partition("=")
        if not equals or not who.isdigit():
            raise FedbanditError(f"--neighbours has {entry!r}, but must be like 1=127.0.0.1:9001,2=127.0.0.1:9002.")
        found[int(who)] = parse_address(where)
    return found


def security(options: argparse.Namespace) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None, str | None]:
    """The TLS context to listen with, the one to trust neighbours by, and this peer's token."""
    if options.keys is None:
        return None, None, None
    from fedbandit.network.certificates import AUTHORITY, CERTIFICATE, KEY

    folder: Path = options.keys
    if options.token_file is None:
        raise FedbanditError("--keys needs --token-file too: neighbours must know which peer it is.")
    try:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / CERTIFICATE, folder / KEY)
        trust = ssl.create_default_context(cafile=str(folder / AUTHORITY))
        token = options.token_file.read_text().strip()
    except (OSError, ssl.SSLError) as error:
        raise FedbanditError(f"The keys cannot be used: {error}.") from None
    return tls, trust, token


def _tell(options: argparse.Namespace, rounds: PeerRounds, user: Any, problem: str | None) -> None:
    machine = rounds.machine
    heard: dict[int, int] = {}
    for (origin, _), tell in machine.node.told.items():
        heard[origin] = heard.get(origin, 0) + tell.sums.n
    report = {
        "member": machine.member,
        "rounds": machine.rounds,
        "observed": machine.observed,
        "told": rounds.told,
        "heard": {str(origin): n for origin, n in sorted(heard.items())},
        "trace": float(sum(tell.sums.V.trace() for _, tell in sorted(machine.node.told.items()))),
        "regret": user.regret,
        "regret_alone": user.regret_alone,
        "guarantee": str(machine.guarantee),
        "problem": problem,
    }
    if options.json:
        print(json.dumps(report))
        return
    print(f"peer {report['member']}: {report['rounds']:,} rounds, regret {report['regret']:,.1f}, "
          f"alone {report['regret_alone']:,.1f}; statistics sent {report['told']:,} times")  # fmt: skip
    for origin, n in report["heard"].items():
        print(f"  of peer {origin}: {n:,} observations")
    print(f"  privacy: {report['guarantee']}")
    if problem is not None:
        print(f"problem: {problem}")
