"""A private federation of hospitals: the coordinator sees sums over many of them, masked, with noise, and nothing else.

    python examples/hospitals.py

A simulation first, to see what privacy costs; then the claim that a hospital's privacy officer is asked to accept.
On a network it is `system = "feducb"` with `keywords = {trust = "sums", …}`: docs/howto/private-federation.md.
"""

from __future__ import annotations

import fedbandit as fb


def main(hospitals: int = 40, rounds: int = 150) -> dict[str, float]:
    """Regret per hospital, alone, with secure sums, and without privacy."""
    env = fb.environments.feducb(n_clients=hospitals, dim=5)
    systems = {
        "each alone": fb.linucb(),
        "secure sums, ε = 1": fb.feducb(epsilon=1.0, delta=1e-5, trust="sums"),
        "not private": fb.feducb(epsilon=float("inf")),
    }
    regret = {}
    for name, system in systems.items():
        result = fb.simulate(system, env, rounds, seed=0)
        regret[name] = float(result.regret[-1]) / hospitals
        print(f"{name:20} regret per hospital {regret[name]:7.2f}, {result.communication.uploads:6,} uploads")
    world = fb.World(n_clients=hospitals, dim=5, horizon=hospitals * rounds, per_round=hospitals)
    print("\nWhat each hospital is promised:\n" + systems["secure sums, ε = 1"].told(world).guarantee.sentence())
    return regret


if __name__ == "__main__":
    main()
