"""`fedbandit local-server`: simulated users behind one local server, against a real coordinator."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fedbandit.cli.arguments import add_require_flags, check_users, required, token_in
from fedbandit.errors import whole_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fedbandit.network.client.choices import Arm
    from fedbandit.network.client.local_server import LocalServer

SUMMARY = "Drive the simulated users of a local server against a coordinator."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which federation, and what its users are like."""
    command.add_argument("url", nargs="+", metavar="URL", help="of the coordinator, and of those that may take over")
    command.add_argument("--federation", required=True, metavar="NAME", help="which federation to take part in")
    command.add_argument("--name", metavar="NAME", help="of the local server (default: one that its state keeps)")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="the token of the local server")
    command.add_argument("--ca", metavar="FILE.pem", help="the authority that signed the coordinator's certificate")
    command.add_argument("--state", type=Path, metavar="FILE", help="where it keeps its state")
    command.add_argument("--interactions", type=int, default=1000, metavar="T", help="of each user (default: 1000)")
    command.add_argument("--pace", type=float, default=0.0, metavar="R", help="of each user a second (default: any)")
    command.add_argument("--arms", type=int, default=10, metavar="K", help="default: 10")
    command.add_argument("--spread", type=float, default=0.2, metavar="S", help="how much tastes differ (default: 0.2)")
    command.add_argument("--groups", type=int, default=1, metavar="G", help="of users with a taste each (default: 1)")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="default: 0")
    add_require_flags(command)


class _Served:
    """A local server, as one of its users sees it."""

    def __init__(self, server: LocalServer, user: int) -> None:
        self.server, self.user = server, user
        self.facts: dict[str, float] = {}

    def select(self, arms: ArrayLike) -> Arm:
        """Choose one of the arms."""
        return self.server.select(self.user, arms)

    def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice."""
        self.server.observe(reward, choice)


def run(options: argparse.Namespace) -> int:
    """Serve users, each so many times; print the result."""
    from fedbandit.cli.population import User
    from fedbandit.files import make_folder
    from fedbandit.network.client.local_server import LocalServer

    whole_number("--interactions", options.interactions, 0)
    check_users(options)
    groups = whole_number("--groups", options.groups)
    if options.state is not None:
        make_folder(options.state.parent)
    with LocalServer(
        options.url,
        federation=options.federation,
        token=token_in(options.token_file),
        name=options.name,
        state=options.state,
        ca=options.ca,
        require=required(options),
    ) as server:
        world, bound = server.agreement.world, server.agreement.reward_bound
        users = [User(i, world, options.arms, options.spread, options.seed + i % groups, bound) for i in server.users]
        user_of = {user: _Served(server, i) for user, i in zip(users, server.users, strict=True)}
        begun = time.monotonic()
        for t in range(options.interactions):
            if options.pace > 0:
                time.sleep(max(0.0, begun + t / options.pace - time.monotonic()))
            for user in users:
                user.meet(user_of[user])
        delivered, status = server.flush(), server.status()
    report = {
        "server": status["member"],
        "interactions": options.interactions * len(users),
        "regret": sum(user.regret for user in users),
        "regret_alone": sum(user.regret_alone for user in users),
        **{key: status[key] for key in ("clusters", "phase", "uploads", "problem")},
        "delivered": delivered,
    }
    if options.json:
        print(json.dumps(report))
        return 0
    print(
        f"local server {report['server']}: {report['interactions']:,} interactions of {len(users)} users in "
        f"{report['clusters']} clusters: regret {report['regret']:,.1f}, alone {report['regret_alone']:,.1f}; "
        f"{report['uploads']:,} uploads"
    )
    if report["problem"]:
        print(f"problem: {report['problem']}")
    return 0
