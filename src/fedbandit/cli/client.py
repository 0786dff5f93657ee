"""`fedbandit client`: simulated users, each behind a client of its own, against a real coordinator."""

from __future__ import annotations

import argparse
import contextlib
import json
import time

from fedbandit.errors import FedbanditError, whole_number


def run(options: argparse.Namespace) -> int:
    """Serve users until each has come often enough; print what came of it."""
    from fedbandit.cli.population import User
    from fedbandit.network.client.client import Client

    whole_number("--clients", options.clients)
    whole_number("--interactions", options.interactions, 0)
    if options.token_file is not None and options.clients != 1:
        raise FedbanditError("A token is for one client: run one fedbandit client for each token.")
    token = None
    if options.token_file is not None:
        try:
            token = options.token_file.read_text().strip()
        except OSError as error:
            raise FedbanditError(f"{str(options.token_file)!r} cannot be read: {error.strerror}.") from None
    if options.state is not None:
        options.state.mkdir(parents=True, exist_ok=True)
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
                    report=options.report,
                )
            )
            for i in numbers
        ]
        world = clients[0].agreement.world
        users = [User(i, world, options.arms, options.spread, options.seed) for i in numbers]
        begun = time.monotonic()
        for t in range(options.interactions):
            if options.pace > 0:
                time.sleep(max(0.0, begun + t / options.pace - time.monotonic()))
            for client, user in zip(clients, users, strict=True):
                user.meet(client)
        delivered = not [client for client in clients if not client.flush()]
        if options.report:
            time.sleep(1.2)  # the last report goes out within a second
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
