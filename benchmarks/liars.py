"""Members that lie, against a federation in robust mode: `python -m benchmarks liars`.

N clients of which some lie, in one process with the coordinator's own checks (`Federation.receive`), no network.
A liar observes honestly, and uploads statistics that pass every check: rewards of the other sign (*flipped*), observed
three times as often (*scaled*: sums and count), rewards of one other parameter that all liars agree on (*colluding*),
or one upload of a thousand observations at its first word (*early*). `held_out` has four more: as colluding, with the
noise that honest rewards have (*posing*), half-way to another parameter (*subtle*), rewards of the other sign in one
direction of contexts only (*sideways*), and honest for the first third (*late*). Constants of robust mode were set on
seeds 0 to 2 of d = 10, N = 20, σ = 0.1 and of d = 10, N = 60, σ = 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

import fedbandit as fb
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Message, Upload, encode
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.rules import Robust, Rules
from fedbandit.network.envelope import Envelope, extend, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.sums import Sums
from fedbandit.types import Array

LIES = ("flipped", "scaled", "colluding", "early")
MORE_LIES = ("posing", "subtle", "sideways", "late")
HELD_OUT = ((5, 12, 0.3), (20, 40, 0.1), (10, 60, 0.5), (8, 30, 1.0))
"""Worlds: d, clients, σ; of the third, other seeds."""


@dataclass
class Outcome:
    """What honest clients lost, and who was put in quarantine."""

    regret: float
    accused: set[int]
    honest: int


class Lying:
    """Clients and a federation in one process; the last `liars` of the clients lie in one way."""

    def __init__(
        self, n_clients: int, liars: int, lie: str, seed: int, dim: int = 10, rules: Rules | None = None,
        horizon: int = 100_000, noise: float = 0.1,
    ) -> None:  # fmt: skip
        world = fb.World(n_clients=n_clients, dim=dim, horizon=horizon, noise=noise)
        agreement = Agreement("async-linucb", {"gamma_upload": 1.5, "gamma_download": 1.5}, world, reward_bound=2.0)
        self.federation = Federation("f", agreement, MemoryStore(), rules=rules)
        self.noise, self.rounds, self.round = noise, 1, 0
        self.rng = np.random.default_rng(seed)
        self.dim, self.lie, self.first_liar = dim, lie, n_clients - liars
        self.theta, self.other = (self._direction() for _ in range(2))
        system = agreement.build()
        self.machines = [ClientMachine(i, system, world, seed) for i in range(n_clients)]
        self.chain, self.regret = dict.fromkeys(range(n_clients), 0), 0.0
        for machine in self.machines:
            self.federation.invite(str(machine.member), 0.0)
            self._send(machine, machine.join()[0])

    def _direction(self) -> Array:
        x = self.rng.standard_normal(self.dim)
        return x / np.linalg.norm(x)

    def run(self, rounds: int, n_arms: int = 10) -> Outcome:
        """Let everybody act so often."""
        self.rounds = rounds
        for self.round in range(rounds):
            for machine in self.machines:
                X = self.rng.standard_normal((n_arms, self.dim))
                X /= np.linalg.norm(X, axis=1, keepdims=True)
                choice, means = machine.select(X), X @ self.theta
                if machine.member < self.first_liar:
                    self.regret += float(means.max() - means[choice.arm])
                y = means[choice.arm] + self.noise * self.rng.standard_normal()
                for message in machine.observe(choice.number, float(np.clip(y, -2, 2))):
                    self._send(machine, message)
        quarantined = {r.member for r in self.federation.register.by_number if r.quarantined}
        return Outcome(self.regret, quarantined, self.first_liar)

    def _send(self, machine: ClientMachine, message: Message) -> None:
        i = machine.member
        if isinstance(message, Upload) and i >= self.first_liar:
            message = Upload(i, message.sequence, self._lie(message), message.known)
        envelope = Envelope(i + 1, 1, 1, machine.sequence, self.chain[i], self.federation.digest)
        data = encode(message)
        (outcome,) = self.federation.receive([(str(i), seal(envelope, data))], 0.0)
        messages = [] if isinstance(outcome, Refusal) else outcome
        if isinstance(message, Upload) and not isinstance(outcome, Refusal):
            self.chain[i] = extend(self.chain[i], data)
        for answer in [*messages, *self.federation.unsent]:
            self.machines[answer.member].receive(answer)
        self.federation.unsent.clear()

    def _lie(self, upload: Upload) -> Sums:
        V, b, n = upload.sums
        if self.lie == "flipped":
            return Sums(V, -b, n)
        if self.lie == "scaled":
            return Sums(3 * V, 3 * 2 * b, 3 * n)
        if self.lie == "early" and upload.sequence == 1:
            X = self.rng.standard_normal((1000, self.dim))
            X /= np.linalg.norm(X, axis=1, keepdims=True)
            return Sums(X.T @ X, -2 * X.T @ (X @ self.theta), 1000)
        if self.lie == "subtle":
            return Sums(V, V @ (self.theta + self.other) / 2, n)
        if self.lie == "sideways":
            return Sums(V, V @ (self.theta - 2 * (self.theta @ self.other) * self.other), n)
        if self.lie == "late":
            return Sums(V, b if self.round < self.rounds / 3 else -b, n)
        if self.lie == "posing":  # b of n rewards with this noise is normal with the covariance σ² V
            values, vectors = np.linalg.eigh(V)
            noise = vectors @ (np.sqrt(np.maximum(values, 0.0)) * self.rng.standard_normal(self.dim))
            return Sums(V, V @ self.other + self.noise * noise, n)
        return Sums(V, V @ self.other, n)


def main(clients: int = 20, rounds: int = 300, seeds: int = 3) -> None:
    """A table: regret of honest clients with liars, in units of that without, and who was put in quarantine."""
    robust = Rules(robust=Robust(liars=0.3, false_alarm=1e-3))
    honest = accused = 0
    print(
        f"{clients} clients, {rounds} rounds, {seeds} seeds: regret of honest clients, in units of that without liars"
    )
    for part in (0.1, 0.2, 0.3):
        liars = round(part * clients)
        alone = [Lying(clients - liars, 0, "none", seed, rules=robust).run(rounds) for seed in range(seeds)]
        without = np.mean([outcome.regret for outcome in alone])
        for lie in LIES:
            found = [Lying(clients, liars, lie, seed, rules=robust).run(rounds) for seed in range(seeds)]
            plain = [Lying(clients, liars, lie, seed).run(rounds) for seed in range(seeds)]
            ratio, as_it_is = (np.mean([o.regret for o in those]) / without for those in (found, plain))
            caught = np.mean([sum(i >= o.honest for i in o.accused) for o in found]) / liars
            for outcome in [*alone, *found]:
                honest += outcome.honest
                accused += sum(i < outcome.honest for i in outcome.accused)
            print(
                f"{part:4.0%} {lie:10s} robust {ratio:6.2f}   not robust {as_it_is:7.2f}   caught {caught:4.0%}",
                flush=True,
            )
    print(f"{accused} of {honest} honest clients were put in quarantine")


def held_out(
    parts: tuple[float, ...] = (0.1, 0.2, 0.3), rounds: int = 200, seeds: tuple[int, ...] = (200, 201)
) -> None:
    """The same in worlds, and with lies and seeds, that the constants were not set on."""
    robust, honest, accused = Rules(robust=Robust(liars=0.3, false_alarm=1e-3)), 0, 0
    for (dim, clients, noise), part in product(HELD_OUT, parts):
        liars = int(part * clients)
        one = partial(Lying, dim=dim, noise=noise)
        alone = [one(clients - liars, 0, "none", seed, rules=robust).run(rounds) for seed in seeds]
        print(f"d {dim:2d} N {clients:3d} σ {noise:.1f} {part:4.0%}", end="", flush=True)
        for lie in (*LIES, *MORE_LIES):
            found = [one(clients, liars, lie, seed, rules=robust).run(rounds) for seed in seeds]
            honest += sum(outcome.honest for outcome in [*alone, *found])
            accused += sum(i < outcome.honest for outcome in [*alone, *found] for i in outcome.accused)
            ratio = sum(o.regret for o in found) / sum(o.regret for o in alone)
            print(f"  {lie} {ratio:.2f}", end="", flush=True)
        print()
    print(f"{accused} of {honest} honest clients were put in quarantine")


if __name__ == "__main__":
    main()
