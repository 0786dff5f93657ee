"""How many messages the root sees of a relay's clients, and of as many clients without a relay.

    python benchmarks/relay.py --clients 1000 --interactions 20

The relay, the root and all clients are in this process, with stores in memory: messages are counted, not timed.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter

import numpy as np

import fedbandit as fb
from fedbandit.encoded_messages import is_a
from fedbandit.messages import Message, Upload, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.envelope import unseal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.relay.federation import RelayFederation
from fedbandit.network.stores import MemoryStore

SYSTEMS = {
    "async-linucb": {"gamma_upload": 1.5, "gamma_download": 1.5},
    "count-linucb": {"factor_upload": 1.3, "factor_download": 1.3},
}


def count_messages(agreement: Agreement, clients: int, interactions: int, *, relayed: bool) -> dict[str, int]:
    """Play, and count what comes to the root and what it sends."""
    numbers, seen = itertools.count(1), Counter[str]()
    root = Federation("f", agreement, MemoryStore())
    relay = None
    if relayed:
        member = root.invite("relay", 0.0).member
        relay = RelayFederation("f", agreement, MemoryStore(), member, lambda: next(numbers))
    coordinator = root if relay is None else relay
    nodes = [
        DurableClient(MemoryStore(), agreement, coordinator.invite(f"c{i}", 0.0).member, lambda: next(numbers))
        for i in range(clients)
    ]
    down: list[Message] = []
    if relay is not None:
        relay.deliver = down.extend

    def say(to: Federation, name: str, frames: list[bytes]) -> None:
        for frame in frames:
            (outcome,) = to.receive([(name, frame)], 0.0)
            if isinstance(outcome, Refusal):
                raise outcome
            if to is root:
                seen["messages"] += 1 + len(outcome)
                seen["uploads"] += is_a(Upload, unseal(frame)[1])
            for message in outcome:
                receive(to, message)

    def receive(source: Federation, message: Message) -> None:
        if source is root and relay is not None:
            relay.node.receive(decode(encode(message)))
            for one in [*down]:
                nodes[one.member].receive(one)
            down.clear()
        else:
            nodes[message.member].receive(decode(encode(message)))

    def up() -> None:
        if relay is not None:
            while frames := relay.node.outgoing():
                say(root, "relay", [frame.data for frame in frames])

    if relay is not None:
        say(root, "relay", [relay.node.greeting() or b""])
    for i, node in enumerate(nodes):
        say(coordinator, f"c{i}", [node.greeting() or b""])
    rng = np.random.default_rng(0)
    for _ in range(interactions):
        for i, node in enumerate(nodes):
            X = rng.uniform(-1, 1, (5, agreement.world.dim)) / np.sqrt(agreement.world.dim)
            choice = node.select(X)
            node.observe(choice.number, float(np.clip(X[choice.arm].sum() + rng.normal(0, 0.1), -1, 1)))
            while frames := node.outgoing():
                say(coordinator, f"c{i}", [frame.data for frame in frames])
                up()
    return {**seen, "observations": root.machine.gathered().n}


def main() -> None:
    """Print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--interactions", type=int, default=20)
    parser.add_argument("--dim", type=int, default=10)
    options = parser.parse_args()
    world = fb.World(options.clients, options.dim, 10 * options.clients * options.interactions)
    for system, keywords in SYSTEMS.items():
        agreement = Agreement(system, keywords, world)
        counts = {
            name: count_messages(agreement, options.clients, options.interactions, relayed=name == "relay")
            for name in ("relay", "direct")
        }
        share = counts["relay"]["messages"] / counts["direct"]["messages"]
        print(json.dumps({"system": system, **counts, "share": round(share, 5)}), flush=True)


if __name__ == "__main__":
    main()
