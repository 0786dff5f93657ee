"""`fedbandit client`: simulated users, each behind a client of its own, against a real coordinator."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from pathlib import Path

from fedbandit.cli.arguments import add_require_flags, check_users, required, token_in
from fedbandit.errors import FedbanditError, whole_number

SUMMARY = "Drive simulated users against a coordinator."


def add_flags(command: argparse.ArgumentParser) -> None:
    """Which federation, and what its users are like."""
    command.add_argument("url", nargs="+", metavar="URL", help="of the coordinator, and of those that may take over")
    command.add_argument("--federation", required=True, metavar="NAME", help="which federation to take part in")
    command.add_argument("--clients", type=int, default=1, metavar="N", help="how many clients (default: 1)")
    command.add_argument("--name", default="user", metavar="NAME", help="of the clients, with a number each")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="a token for a single client")
    command.add_argument("--ca", metavar="FILE.pem", help="the authority that signed the coordinator's certificate")
    command.add_argument("--certificate", metavar="FILE", help="of a single client's key, for secure sums")
    command.add_argument("--state", type=Path, metavar="FOLDER", help="where clients keep their state")
    command.add_argument("--interactions", type=int, default=1000, metavar="T", help="of each client (default: 1000)")
    command.add_argument("--pace", type=float, default=0.0, metavar="R", help="interactions a second (default: any)")
    command.add_argument("--arms", type=int, default=10, metavar="K", help="default: 10")
    command.add_argument("--spread", type=float, default=0.2, metavar="S", help="how much tastes differ (default: 0.2)")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="default: 0")
    command.add_argument("--first", type=int, default=0, metavar="I", help="number of the first user (default: 0)")
    add_require_flags(command)
    command.add_argument("--report", action="store_true", help="tell the live page about reward and regret")


def run(options: argparse.Namespace) -> int:
    """Serve users, each so many times; print the result."""
    from fedbandit.cli.population import User
    from fedbandit.files import make_folder
    from fedbandit.network.client.client import Client

    whole_number("--clients", options.clients)
    whole_number("--interactions", options.interactions, 0)
    whole_number("--first", options.first, 0)
    check_users(options)
    if options.token_file is not None and options.clients != 1:
        raise FedbanditError("A token is for one client: run one fedbandit client for each token.")
    if options.certificate is not None and options.clients != 1:
        raise FedbanditError("A certificate is for one client: run one fedbandit client for each.")
    token = token_in(options.token_file)
    if options.state is not None:
        make_folder(options.state)
    numbers = range(options.first, options.first + options.clients)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(
                Client(
                    options.url,
                    federation=options.federation,
                    token=token,
                    name=f"{options.name}-{i}",
                    state=None if options.state is None else options.state / f"{options.name}-{i}.db",
                    ca=options.ca,
                    certificate=options.certificate,
                    report=options.report,
                    require=required(options),
                )
            )
            for i in numbers
        ]
        world, bound = clients[0].agreement.world, clients[0].agreement.reward_bound
        users = [User(i, world, options.arms, options.spread, options.seed, bound) for i in numbers]
        begun = time.monotonic()
        for t in range(options.interactions):
            if options.pace > 0:
                time.sleep(max(0.0, begun + t / options.pace - time.monotonic()))
            for client, user in zip(clients, users, strict=True):
                user.meet(client)
        delivered = not [client for client in clients if not client.flush()]
        report = {
            "interactions": options.interactions * options.clients,
            "regret": sum(user.regret for user in users),
            "regret_alone": sum(user.regret_alone for user in users),
            "uploads": sum(client.status()["uploads"] for client in clients),
            "delivered": delivered,
            "problems": sorted({client.problem for client in clients if client.problem}),
        }
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{report['interactions']:,} interactions: regret {report['regret']:,.1f}, "
              f"alone {report['regret_alone']:,.1f}; {report['uploads']:,} uploads")  # fmt: skip
        for problem in report["problems"]:
            print(f"problem: {problem}")
    return 0
