"""`fedbandit gateway`: rank and reward over HTTP, for an application in any language."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.cli.arguments import add_require_flags, required, token_in
from fedbandit.errors import FedbanditError, whole_number

if TYPE_CHECKING:
    from fedbandit.features import Features
    from fedbandit.gateway.gateway import Gateway
    from fedbandit.network.coordinator.listener import Guard

SUMMARY = "Rank actions and take rewards over HTTP, as a member of a federation or alone."


def add_flags(command: argparse.ArgumentParser) -> None:
    """What to be a member of, and how to answer."""
    command.add_argument("--coordinator", metavar="URL", help="whose federation to take part in (default: learn alone)")
    command.add_argument("--federation", metavar="NAME", help="which federation")
    command.add_argument("--token-file", type=Path, metavar="FILE", help="the token for the coordinator")
    command.add_argument("--name", metavar="NAME", help="of the gateway among the clients, where there are no tokens")
    command.add_argument("--ca", metavar="FILE.pem", help="the authority that signed the coordinator's certificate")
    command.add_argument("--certificate", metavar="FILE", help="of the gateway's key, for secure sums")
    command.add_argument("--state", type=Path, metavar="FILE.db", help="where everything is kept (default: in memory)")
    command.add_argument("--features", type=Path, metavar="FILE", help=".json or .toml: what columns there are")
    command.add_argument("--dim", type=int, metavar="D", help="alone, without --features: numbers of an action")
    command.add_argument("--actions", type=int, default=0, metavar="A",
                         help="alone: one model for each action, A of them at most (default: one for all)")  # fmt: skip
    command.add_argument("--policy", default="igw", metavar="NAME", help="alone: how to choose (default: igw)")
    command.add_argument("--noise", type=float, default=0.5, metavar="S", help="alone: σ of rewards (default: 0.5)")
    command.add_argument("--reward-bound", type=float, default=1.0, metavar="R", help="alone: |reward| (default: 1)")
    command.add_argument("--out-of-range", default="refuse", choices=("refuse", "clip", "scale"),
                         help="what becomes of vectors that are too long (default: refuse)")  # fmt: skip
    command.add_argument("--mode", default="online", choices=("online", "shadow"),
                         help="shadow: learn from the application's own choices (default: online)")  # fmt: skip
    command.add_argument("--explore", type=float, default=0.0, metavar="P", help="share of random choices (default: 0)")
    command.add_argument("--deadline", type=float, default=3600.0, metavar="S", help="for rewards (default: 3600)")
    command.add_argument("--default-reward", type=float, metavar="R", help="after the deadline (default: none)")
    command.add_argument("--remember", type=float, default=86_400.0, metavar="S", help="events (default: a day)")
    command.add_argument("--decisions", type=Path, metavar="FOLDER", help="log decisions there, for fedbandit replay")
    command.add_argument("--host", default="127.0.0.1", metavar="H", help="default: 127.0.0.1")
    command.add_argument("--port", type=int, default=8770, metavar="P", help="default: 8770; 0: any that is free")
    command.add_argument("--access-token-file", type=Path, metavar="FILE", help="what applications have to show")
    command.add_argument("--connections", type=int, metavar="N",
                         help="open at a time (default: what the limit of open files allows)")  # fmt: skip
    command.add_argument("--connections-per-address", type=int, metavar="N", help="(default: half of them)")
    add_require_flags(command)
    command.add_argument("--workers", type=int, default=8, metavar="N", help="threads (default: 8)")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    try:
        from threadpoolctl import threadpool_limits

        from fedbandit.gateway.service import MOST_BYTES, make_app
        from fedbandit.network.addresses import bind, is_loopback
        from fedbandit.network.coordinator.listener import Listener
        from fedbandit.network.coordinator.serving import Patient, uvicorn_config
        from fedbandit.network.logs import log_to_stderr
    except ImportError as error:
        raise FedbanditError(f"A gateway needs {error.name}: pip install 'fedbandit[server]'.") from None
    token = token_in(options.access_token_file)
    if token is None and not is_loopback(options.host):
        raise FedbanditError(f"host is {options.host!r}, which is not loopback: --access-token-file is required.")
    guard = guard_of(options)
    threadpool_limits(1)  # matrices are small
    listener = bind(options.host, options.port)
    try:
        gateway = open_gateway(options)
    except BaseException:
        listener.close()
        raise
    log_to_stderr()
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{listener.getsockname()[1]}"
    where = "alone" if options.coordinator is None else f"with {options.federation} at {options.coordinator}"
    report = {"address": address, "mode": options.mode, "learns": where}
    print(json.dumps(report) if options.json else f"Gateway on {address}, learning {where}", flush=True)
    app = make_app(gateway, token=token, workers=options.workers, guard=guard)
    Patient(uvicorn_config(app, MOST_BYTES, {})).run(sockets=[Listener.around(listener, guard)])
    return 0


def guard_of(options: argparse.Namespace) -> Guard:
    """The guard of the listening socket. Applications come from one address, or through one proxy: it has half."""
    from fedbandit.network.coordinator.listener import Guard

    for flag in ("connections", "connections_per_address"):
        if getattr(options, flag) is not None:
            whole_number(f"--{flag.replace('_', '-')}", getattr(options, flag))
    guard = Guard(options.connections, options.connections_per_address)
    if options.connections_per_address is None:
        guard.most_per_address = max(1, guard.most // 2)
    return guard


def open_gateway(options: argparse.Namespace) -> Gateway:
    """The gateway that the flags describe."""
    from fedbandit.environments.decision_log import DecisionLog
    from fedbandit.gateway.events import Events
    from fedbandit.gateway.gateway import Gateway
    from fedbandit.network.client.client import Client

    whole_number("--workers", options.workers)
    whole_number("--actions", options.actions, 0)
    features = None if options.features is None else read_features(options.features)
    state = None if options.state is None else options.state.with_suffix(".client.db")
    keywords: dict[str, Any] = {"state": state, "out_of_range": options.out_of_range}
    if options.coordinator is None:
        keywords["agreement"] = _alone(options, features)
    elif options.federation is None:
        raise FedbanditError("A coordinator may have several federations: name one by --federation.")
    else:
        keywords |= {"federation": options.federation, "name": options.name, "ca": options.ca}
        keywords |= {"token": token_in(options.token_file), "certificate": options.certificate}
        keywords["require"] = required(options)
    events = Events(options.state)  # first: it says if another gateway has the state
    try:
        client = Client(options.coordinator, **keywords)
        try:
            log = (
                None if options.decisions is None else DecisionLog(options.decisions, client=options.name or "gateway")
            )
            return Gateway(
                client,
                events,
                features=features,
                mode=options.mode,
                explore=options.explore,
                deadline=options.deadline,
                default_reward=options.default_reward,
                remember=options.remember,
                decisions=log,
            )
        except BaseException:
            client.close()
            raise
    except BaseException:
        events.close()
        raise


def read_features(path: Path) -> Features:
    """The declarations in a .json or .toml file."""
    import tomllib

    from fedbandit.features import Features

    try:
        text = path.read_text(encoding="utf-8")
        declared = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise FedbanditError(f"{str(path)!r} cannot be read: {error}.") from None
    return Features.of_json(declared)


def _alone(options: argparse.Namespace, features: Features | None) -> Any:
    from fedbandit.network.invitation import Agreement, Schema
    from fedbandit.world import World

    if (features is None) == (options.dim is None):
        raise FedbanditError("To learn alone a gateway needs --features FILE, or --dim for plain vectors.")
    dim = options.dim if features is None else features.dim
    world = World(n_clients=1, dim=dim, horizon=10**6, noise=options.noise, actions=options.actions)
    schema = None if features is None else Schema.of(features)
    return Agreement("linucb", {"policy": options.policy}, world, reward_bound=options.reward_bound, schema=schema)
