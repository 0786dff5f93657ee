"""`fedbandit peer`: one peer of a federation that has no coordinator, with a simulated user."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedbandit.cli.arguments import check_users
from fedbandit.errors import FedbanditError, whole_number

if TYPE_CHECKING:
    from fedbandit.cli.population import User
    from fedbandit.network.peer.peer import Peer

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
    command.add_argument(
        "--keys", type=Path, metavar="FOLDER", help="of this peer (fedbandit keys peers); off loopback"
    )
    command.add_argument("--arms", type=int, default=10, metavar="K", help="default: 10")
    command.add_argument("--spread", type=float, default=0.0, metavar="S", help="how much tastes differ (default: 0)")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="of the simulated users (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Take part until all rounds are over; print the result."""
    from fedbandit.cli.population import User
    from fedbandit.network.logs import log_to_stderr
    from fedbandit.network.peer.peer import Peer

    check_users(options)
    peer = Peer(
        options.member,
        peers=options.peers,
        dim=options.dim,
        listen=options.listen,
        neighbours=addresses(options),
        observations=whole_number("--rounds", options.rounds),
        epsilon=options.epsilon,
        delta=options.delta,
        ttl=options.ttl,
        reward_bound=10.0,
        state=options.state,
        keys=options.keys,
        round_seconds=1 / options.pace if options.pace > 0 else 0.0,
        patience=options.patience,
        seed=options.seed,
    )
    try:
        user = User(options.member, peer.world, options.arms, options.spread, options.seed)
        for _ in range(peer.rounds.machine.rounds + peer.rounds.acted):
            user.skip()  # visits before a restart
        log_to_stderr()
        with _ended_by_sigterm(peer):
            peer.run(lambda: user.meet(peer), options.rounds)
    finally:
        peer.close()
    _tell(options, peer, user)
    return 0


@contextlib.contextmanager
def _ended_by_sigterm(peer: Peer) -> Iterator[None]:
    """Whoever tells the process to end, as systemd does, has it end in order: everything written, the result told."""
    if threading.current_thread() is not threading.main_thread():  # where there are no handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: peer.peering.close())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def addresses(options: argparse.Namespace) -> dict[int, str]:
    """Neighbours by number."""
    found: dict[int, str] = {}
    for entry in options.neighbours.split(","):
        who, equals, where = entry.partition("=")
        if not equals or not who.isdigit():
            raise FedbanditError(f"--neighbours has {entry!r}, but must be like 1=127.0.0.1:9001,2=127.0.0.1:9002.")
        found[int(who)] = where
    return found


def _tell(options: argparse.Namespace, peer: Peer, user: User) -> None:
    node, status = peer.rounds.machine.node, peer.status()
    report = {
        **{key: status[key] for key in ("member", "rounds", "observed", "told", "problem")},
        "heard": {str(origin): n for origin, n in status["heard"].items()},
        "trace": float(sum(tell.sums.V.trace() for _, tell in sorted(node.told.items()))),
        "regret": user.regret,
        "regret_alone": user.regret_alone,
        "guarantee": str(peer.guarantee),
    }
    if options.json:
        print(json.dumps(report))
        return
    print(f"peer {report['member']}: {report['rounds']:,} rounds, regret {report['regret']:,.1f}, "
          f"alone {report['regret_alone']:,.1f}; statistics sent {report['told']:,} times")  # fmt: skip
    for origin, n in report["heard"].items():
        print(f"  of peer {origin}: {n:,} observations")
    print(f"  privacy: {report['guarantee']}")
    if report["problem"] is not None:
        print(f"problem: {report['problem']}")
