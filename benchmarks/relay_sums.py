"""How many bytes of one secure sum the root exchanges with a relay that passes it on, in bundles and without.

    python benchmarks/relay_sums.py --clients 200 --dim 25

All clients are behind one relay, in this process; each step of all of them is one bundle. Bytes are counted, of steps
with their members' tokens and sessions; headers of HTTP and TLS, which bundles spare too, are not.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from fedbandit.machines.sums.client import SumClient
from fedbandit.machines.sums.masks import Identity
from fedbandit.machines.sums.messages import SumMessage, encode_step
from fedbandit.machines.sums.server import SumServer
from fedbandit.machines.sums.terms import NO_CERTIFICATE, Acquaintances, MaskTerms
from fedbandit.messages import Contribution
from fedbandit.network.sums import Outcome, SentStep, pack_outcomes, pack_steps, steps_as_bytes

TOKEN, SESSION = "Bearer " + 43 * "x", 40 * "x"


def count_bytes(clients: int, dim: int) -> dict[str, int]:
    """Of one sum in which everybody is there to the end."""
    words = dim * (dim + 3) // 2
    terms = MaskTerms(b"benchmark", words, clients, clients * 3 // 4 + 1)
    server = SumServer(terms, 1, range(clients))
    counts = dict.fromkeys(("up", "down", "up in bundles", "down in bundles"), 0)
    zero = np.zeros(words, dtype=np.uint64)

    def member(i: int) -> SumClient:
        made = Contribution(i, 1, 1, zero, np.zeros((0, words), dtype=np.uint64))
        return SumClient(terms, i, 1, Identity.new(), Acquaintances(), NO_CERTIFICATE, lambda: made)

    members = [member(i) for i in range(clients)]
    steps = [one.begin() for one in members]
    while steps:
        counts["up"] += sum(len(encode_step(step)) + len(TOKEN) + len(SESSION) for step in steps)
        counts["up in bundles"] += len(pack_steps([SentStep(TOKEN, "", SESSION, encode_step(s)) for s in steps]))
        told: list[SumMessage] = [said for step in steps for said in server.receive(step)]
        counts["down"] += sum(len(steps_as_bytes([said])) for said in told)
        counts["down in bundles"] += len(pack_outcomes([Outcome(200, [said]) for said in told]))
        steps = [answer for said in told for answer in members[said.member].receive(said)]
    assert server.opened is not None
    return counts


def main() -> None:
    """Print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--dim", type=int, default=25)
    options = parser.parse_args()
    print(json.dumps(count_bytes(options.clients, options.dim)))


if __name__ == "__main__":
    main()
