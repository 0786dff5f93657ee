"""Systems on logs: the client machines of a federation decide again what was decided, and learn from what they may."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as altered
from typing import Any, Literal

import numpy as np

from fedbandit.environments.logged import LoggedDecisions
from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.evaluation.estimators import (
    Estimate,
    doubly_robust,
    effective_sample_size,
    inverse_propensity,
    mean,
    self_normalised,
)
from fedbandit.machines.link import Link
from fedbandit.messages import Download, Request, Upload, encoded_size
from fedbandit.privacy import Guarantee
from fedbandit.structures import Central, Everyone
from fedbandit.system import System
from fedbandit.tails import chi_square_tail
from fedbandit.types import Array, Ints
from fedbandit.world import World

TINY = 0.01
"""Propensities below this make one decision count for more than a hundred; the evaluation warns."""
FEW = 50
"""With an effective sample size below this a normal interval is not to be trusted; the evaluation warns."""


@dataclass(frozen=True)
class LogEvaluation:
    """What a log says about a system: estimates with standard errors, and the reasons to doubt them.

    estimates: of the mean reward per decision; logged: of the policy that wrote the log, on the same decisions.
    decisions: those that estimates are about; used: those of them whose reward entered.
    """

    system: str
    method: Literal["replay", "frozen"]
    question: str
    seed: int
    decisions: int
    used: int
    effective_sample_size: float
    estimates: tuple[Estimate, ...]
    logged: Estimate
    uploads: int
    downloads: int
    bytes: int
    warnings: tuple[str, ...]
    guarantee: Guarantee
    arms: Ints = field(repr=False)  # what the system chose in each decision

    @property
    def normalised(self) -> float | None:
        """The first estimate over the mean reward of uniformly logged arms; None if logging was not uniform."""
        uniform = self.method == "replay" and self.logged.value > 0
        return self.estimates[0].value / self.logged.value if uniform else None

    def as_json(self) -> dict[str, Any]:
        """All of it as a JSON-ready object."""
        return {
            "system": self.system.replace("_", "-"),
            "method": self.method,
            "question": self.question,
            "seed": self.seed,
            "decisions": self.decisions,
            "used": self.used,
            "effective_sample_size": self.effective_sample_size,
            "estimates": [estimate.as_json() for estimate in self.estimates],
            "logged": self.logged.as_json(),
            "normalised_reward": self.normalised,
            "uploads": self.uploads,
            "downloads": self.downloads,
            "bytes": self.bytes,
            "warnings": list(self.warnings),
            "guarantee": str(self.guarantee),
        }


def replay(system: System, log: LoggedDecisions, seed: int = 0) -> LogEvaluation:
    """What the system earns while it learns, by rejection sampling (Li, Chu, Langford & Wang 2011, Alg. 2).

    Each decision is put to the client again. If it chooses the logged arm it sees the reward, learns, and may speak; if
    not, the decision is skipped as if it had never been. Where arms were logged uniformly, independent of everything,
    the accepted decisions are distributed as in a live run, so their mean reward is an unbiased estimate of what the
    system earns in its first `used` interactions: about 1/K of the log, not all of it. A federation that is replayed
    has clients as active as in the log, but communicates as often as the shorter run does.
    """
    _require_log(log)
    if not log.uniform:
        raise FedbanditError(
            "Replay while learning needs arms that were logged uniformly (logged='uniform', or a propensity of 1/K for "
            "every arm); evaluate_frozen takes other propensities."
        )
    _require_plausible(log)
    seed = whole_number("seed", seed, 0)
    federation = _Federation(system, log, seed)
    arms = np.array([federation.decide(t) for t in range(log.n_decisions)], dtype=np.int64)
    accepted = arms == log.chosen
    used = int(accepted.sum())
    warnings = []
    if used < FEW:
        warnings.append(f"Only {used} decisions were accepted; the interval is not to be trusted.")
    return federation.evaluation(
        method="replay",
        question=f"mean reward while learning, over the first {used:,} interactions",
        seed=seed,
        decisions=log.n_decisions,
        used=used,
        effective_sample_size=float(used),
        estimates=(mean("replay", log.rewards[accepted]),),
        logged=mean("logged", log.rewards),
        warnings=tuple(warnings),
        arms=arms,
    )


def evaluate_frozen(system: System, log: LoggedDecisions, seed: int = 0, *, train: float = 0.5) -> LogEvaluation:
    """What the system earns with the models it learned from the first part of the log, on the rest of it.

    The first `train` of the decisions teach: clients observe the logged arms and exchange what their protocol says.
    Then they learn no more, and on each other decision their choice is compared with the logged one: doubly robust
    (r̂: one ridge regression on the first part), self-normalised and inverse propensity estimates with standard errors.
    They answer for the frozen models only; what the system would earn while it goes on learning, they do not tell.
    """
    _require_log(log)
    if not log.propensities.size:
        raise FedbanditError(
            "The log has no propensities, so it says nothing about policies other than its own; name their column, or "
            "say logged='uniform' (--logged uniform) if all offered arms were equally likely."
        )
    if log.uniform:
        _require_plausible(log)
    number(train, "train", "a share strictly between 0 and 1")
    require(0 < train < 1, "train", train, "a share strictly between 0 and 1")
    seed, split = whole_number("seed", seed, 0), int(train * log.n_decisions)
    require(split >= 1 and log.n_decisions - split >= 2, "train", train, "a share that leaves decisions on both sides")
    federation = _Federation(system, log, seed)
    for t in range(split):
        federation.teach(t)
    rest = slice(split, log.n_decisions)
    arms = np.array([federation.ask(t) for t in range(split, log.n_decisions)], dtype=np.int64)
    agree = arms == log.chosen[rest]
    p, rewards = log.propensities[rest], log.rewards[rest]
    weights = np.where(agree, 1 / p, 0.0)
    theta = _ridge(log, split)
    later = np.arange(split, log.n_decisions)
    of_logged, of_policy = (log.contexts(later, chosen) @ theta for chosen in (log.chosen[later], arms))
    ess = effective_sample_size(weights)
    return federation.evaluation(
        method="frozen",
        question=f"mean reward of the models learned from the first {split:,} decisions, on the other {later.size:,}",
        seed=seed,
        decisions=later.size,
        used=int(agree.sum()),
        effective_sample_size=ess,
        estimates=(
            doubly_robust(weights, rewards, of_logged, of_policy),
            self_normalised(weights, rewards),
            inverse_propensity(weights, rewards),
        ),
        logged=mean("logged", rewards),
        warnings=tuple(_doubts(p, weights, ess)),
        arms=arms,
    )


class _Federation:
    """The machines of a system, for the clients of a log. A round is a decision from which something was learned."""

    def __init__(self, system: System, log: LoggedDecisions, seed: int) -> None:
        if not isinstance(system, System):
            raise FedbanditError(f"The system is {system!r}, but must be a System; did you forget to call the preset?")
        together = isinstance(system.structure, Central)  # one model for all is one client that makes all decisions
        if system.protocol.says == "gossip" or not (together or system.structure.separate):
            kept = "peers in rounds in which all act" if system.protocol.says == "gossip" else "models in one place"
            raise FedbanditError(
                f"{system.name} cannot be evaluated on a log: it has {kept}, and logs are replayed by client machines, "
                "each of which decides and learns for itself, and a coordinator."
            )
        n_clients = 1 if together else log.n_clients
        world = World(n_clients, log.dim, log.n_decisions, noise=0.5 * float(np.ptp(log.rewards)), bound=log.bound)
        self.log = log
        self.system = system
        self.clients = np.zeros_like(log.clients) if together else log.clients
        self.link = Link(altered(system, structure=Everyone()) if together else system, world, seed)
        self.rounds = 0

    def decide(self, t: int) -> int:
        """Choose; learn if the logged arm was chosen."""
        client = self._client(t)
        choice = client.select(self.log.offered(t))
        if choice.arm == self.log.chosen[t]:
            self._learn(client, choice.number, t)
        else:
            client.forget(choice.number)
        return choice.arm

    def teach(self, t: int) -> None:
        """Learn from the logged arm, as if it had been the only one."""
        client = self._client(t)
        choice = client.select(self.log.offered(t)[self.log.chosen[t]][None, :])
        self._learn(client, choice.number, t)

    def ask(self, t: int) -> int:
        """Choose, and learn nothing."""
        client = self.link.client(int(self.clients[t]))
        choice = client.select(self.log.offered(t))
        client.forget(choice.number)
        return choice.arm

    def evaluation(self, **found: Any) -> LogEvaluation:
        """What was found, with what the machines said to each other."""
        return LogEvaluation(
            system=self.system.name,
            uploads=self.link.uploads,
            downloads=self.link.downloads,
            bytes=carried_bytes(self.link),
            guarantee=self.system.guarantee,
            **found,
        )

    def _learn(self, client: Any, choice: int, t: int) -> None:
        """See the logged reward, say what follows, and end the round: some coordinators act between rounds."""
        self.link.say(client.observe(choice, float(self.log.rewards[t])))
        self.rounds += 1
        if self.link.next_wake(self.rounds - 1) == self.rounds:
            self.link.end_round(self.rounds)

    def _client(self, t: int) -> Any:
        i = int(self.clients[t])
        self.link.greet(i)
        return self.link.client(i)


def carried_bytes(link: Link) -> int:
    """The encoded size of all that was carried."""
    dim = link.system.structure.shared_dim(link.world)
    sizes = (encoded_size(kind, dim) for kind in (Upload, Download, Request))
    counts = (link.uploads, link.downloads, link.control_messages)
    return sum(size * count for size, count in zip(sizes, counts, strict=True))


def _require_log(log: LoggedDecisions) -> None:
    if not isinstance(log, LoggedDecisions):
        raise FedbanditError(f"The log is {log!r}, but must come from fedbandit.environments.from_frame.")


def _require_plausible(log: LoggedDecisions) -> None:
    """Refuse a log that is said to be uniform and clearly is not: χ² over positions, p < 10⁻⁶."""
    offered = np.arange(log.counts.max()) < log.counts[:, None]
    expected = (offered / log.counts[:, None]).sum(axis=0)
    seen = np.bincount(log.chosen, minlength=expected.size)
    statistic = float(((seen - expected) ** 2 / expected).sum())
    if expected.size > 1 and expected.min() >= 5 and chi_square_tail(statistic, expected.size - 1) < 1e-6:
        a = int(np.argmax(np.abs(seen - expected) / np.sqrt(expected)))
        raise FedbanditError(
            f"The log is said to be uniform, but arm {a} was chosen {seen[a]:,} times where {expected[a]:,.0f} are "
            "to be expected; give its propensities instead."
        )


def _ridge(log: LoggedDecisions, split: int) -> Array:
    """θ of one ridge regression (λ = 1) of logged rewards on contexts."""
    x = log.contexts(np.arange(split), log.chosen[:split])
    theta: Array = np.linalg.solve(x.T @ x + np.eye(log.dim), x.T @ log.rewards[:split]).astype(np.float64)
    return theta


def _doubts(propensities: Array, weights: Array, ess: float) -> list[str]:
    doubts = []
    if propensities.min() < TINY:
        doubts.append(
            f"The smallest propensity is {propensities.min():.2g}: such a decision counts "
            f"{1 / propensities.min():,.0f}-fold if it agrees, and intervals may be too short."
        )
    if ess < FEW:
        doubts.append(f"The effective sample size is {ess:.0f}; intervals are not to be trusted.")
    if weights.sum() > 0 and weights.max() > 0.05 * weights.sum():
        doubts.append(f"One decision carries {weights.max() / weights.sum():.0%} of the weight.")
    return doubts
