"""Systems on logs: the client machines of a federation decide again what was decided, and learn from what they may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    rewarded,
    self_normalised,
)
from fedbandit.evaluation.plausible import FEW, doubts, few_rewards, require_uniform
from fedbandit.machines.link import Link
from fedbandit.messages import Download, Request, Upload, encoded_size
from fedbandit.model import RidgeModel
from fedbandit.policies import Greedy, Policy
from fedbandit.privacy import Guarantee
from fedbandit.structures import Central, Everyone
from fedbandit.structures.action_model import ActionModel
from fedbandit.system import System, check_system
from fedbandit.types import Array, Ints
from fedbandit.world import World


@dataclass(frozen=True)
class LogEvaluation:
    """What a log says about a system: estimates with standard errors, and the reasons to doubt them.

    estimates: of the mean reward per decision; logged: of the policy that wrote the log, on the same decisions.
    decisions: those that estimates are about; used: those of them whose reward entered; rewarded: those of these whose
    reward was not zero, which is what an estimate of a click rate rests on.
    """

    system: str
    method: Literal["replay", "frozen"]
    question: str
    seed: int
    decisions: int
    used: int
    rewarded: int
    effective_sample_size: float
    estimates: tuple[Estimate, ...]
    logged: Estimate
    uploads: int
    downloads: int
    bytes: int
    warnings: tuple[str, ...]
    guarantee: Guarantee
    arms: Ints = field(repr=False)  # what the system chose in each decision
    weights: Array = field(repr=False)  # π(a)/p of the logged arm in each decision
    first: int = 0  # the log's decision that these begin with

    @property
    def normalised(self) -> float | None:
        """The first estimate over the mean reward of uniformly logged arms; None if logging was not uniform."""
        uniform = self.method == "replay" and self.logged.value > 0
        return self.estimates[0].value / self.logged.value if uniform else None

    def __str__(self) -> str:
        """For people."""
        return "\n".join([self.summary("a log"), *(f"  beware: {warning}" for warning in self.warnings)])

    def summary(self, where: str) -> str:
        """What is estimated, in lines."""
        lines = [
            f"{self.system.replace('_', '-')} on {where}: an estimate, not a simulation",
            f"  {self.question}; seed {self.seed}",
            f"  decisions {self.decisions:,}; of use {self.used:,}, of which rewarded {self.rewarded:,}; "
            f"effective {self.effective_sample_size:,.0f}",
        ]
        for estimate in (*self.estimates, self.logged):
            name, (low, high) = estimate.name, estimate.interval
            name = "the log's own policy" if estimate is self.logged else name
            lines.append(f"  {name:20}  {estimate.value:9.4f}   95 %: {low:.4f} … {high:.4f}")
        if self.normalised is not None:
            lines.append(f"  {'over random arms':20}  {self.normalised:9.4f}")
        lines.append(f"  uploads {self.uploads:,}, downloads {self.downloads:,}, bytes {self.bytes:,}")
        return "\n".join([*lines, f"  guarantee  {self.guarantee}"])

    def as_json(self) -> dict[str, Any]:
        """All of it as a JSON-ready object."""
        return {
            "system": self.system.replace("_", "-"),
            "method": self.method,
            "question": self.question,
            "seed": self.seed,
            "decisions": self.decisions,
            "used": self.used,
            "rewarded": self.rewarded,
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


Progress = Callable[[int], object] | None
"""Called with the number of decisions done since its last call."""


def replay(system: System, log: LoggedDecisions, seed: int = 0, *, progress: Progress = None) -> LogEvaluation:
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
    require_uniform(log)
    seed = whole_number("seed", seed, 0)
    federation = _Federation(system, log, seed)
    arms = np.array([federation.decide(t) for t in counted(log.n_decisions, progress)], dtype=np.int64)
    accepted = arms == log.chosen
    used = int(accepted.sum())
    if used < 2:
        raise FedbanditError(f"The replay rests on {used} of the logged decisions; at least 2 are needed.")
    weights = accepted.astype(np.float64)
    paired = self_normalised(weights, log.rewards)  # the same mean, with a term for each decision
    plain = mean("replay", log.rewards[accepted])
    estimate = altered(plain, terms=paired.terms, shares=paired.shares, rewards=paired.rewards)
    hits = rewarded(weights, log.rewards)
    warnings = [f"Only {used} decisions were accepted; the interval is wide."] if used < FEW else []
    return federation.evaluation(
        method="replay",
        question=f"mean reward while learning, over the first {used:,} interactions",
        seed=seed,
        decisions=log.n_decisions,
        used=used,
        rewarded=hits,
        effective_sample_size=float(used),
        estimates=(estimate,),
        logged=mean("logged", log.rewards),
        warnings=(*warnings, *few_rewards(used, hits)),
        arms=arms,
        weights=weights,
    )


def evaluate_frozen(
    system: System,
    log: LoggedDecisions,
    seed: int = 0,
    *,
    train: float = 0.5,
    greedy: bool = False,
    progress: Progress = None,
) -> LogEvaluation:
    """What the system earns with the models it learned from the first part of the log, on the rest of it.

    The first `train` of the decisions teach: clients observe the logged arms and exchange what their protocol says.
    Then they learn no more, and on each other decision the probabilities with which they would choose (one and zeros,
    for a policy without chance) are compared with the logged choice: doubly robust (r̂: one ridge regression on the
    first part), self-normalised and inverse propensity estimates. They answer for the frozen models only; what the
    system would earn while it goes on learning, they do not tell. The policy explores as it did, unless `greedy`:
    then the arm with the largest estimated mean is taken, which is what the models are worth when learning is over; a
    policy that only explores (`uniform`) stays the yardstick that it is.
    """
    _require_log(log)
    if not log.propensities.size:
        raise FedbanditError(
            "The log has no propensities, so it says nothing about policies other than its own; name their column, or "
            "say logged='uniform' (--logged uniform) if all offered arms were equally likely."
        )
    if (log.propensities[log.counts > 1] > 1 - 1e-9).all():
        raise FedbanditError(
            "Every arm of the log was chosen with probability 1, so it says nothing about other choices; let the "
            "policy draw (policy='igw'), or explore now and then (select(…, explore=0.05))."
        )
    if log.uniform:
        require_uniform(log)
    number(train, "train", "a share strictly between 0 and 1")
    require(0 < train < 1, "train", train, "a share strictly between 0 and 1")
    seed, split = whole_number("seed", seed, 0), int(train * log.n_decisions)
    require(split >= 1 and log.n_decisions - split >= 2, "train", train, "a share that leaves decisions on both sides")
    federation = _Federation(system, log, seed)
    greedy = greedy and not system.policy.only_explores
    for t in counted(split, progress):
        federation.teach(t)
    later = np.arange(split, log.n_decisions)
    p, rewards, predict = log.propensities[later], log.rewards[later], _regression(log, split)
    arms, taken, of_policy = np.zeros(later.size, dtype=np.int64), np.zeros(later.size), np.zeros(later.size)
    for i in counted(later.size, progress):
        chances = federation.ask(split + i, Greedy() if greedy else None)
        arms[i], taken[i] = chances.argmax(), chances[log.chosen[split + i]]
        of_policy[i] = chances @ predict(log.offered(split + i))
    weights = taken / p
    of_logged = predict(log.contexts(later, log.chosen[later]))
    ess, hits = effective_sample_size(weights), rewarded(weights, rewards)
    manner = "taking the largest estimated mean" if greedy else "exploring as the policy does"
    return federation.evaluation(
        method="frozen",
        question=f"mean reward of the models learned from the first {split:,} decisions, {manner}, "
        f"on the other {later.size:,}",
        seed=seed,
        decisions=later.size,
        used=int(np.count_nonzero(weights)),
        rewarded=hits,
        effective_sample_size=ess,
        estimates=(
            doubly_robust(weights, rewards, of_logged, of_policy),
            self_normalised(weights, rewards),
            inverse_propensity(weights, rewards),
        ),
        logged=mean("logged", rewards),
        warnings=(*doubts(p, weights, ess), *few_rewards(int(np.count_nonzero(weights)), hits)),
        arms=arms,
        weights=weights,
        first=split,
    )


def counted(n: int, progress: Progress) -> Iterator[int]:
    """0, …, n − 1, telling how far it is."""
    for t in range(n):
        yield t
        if progress is not None:
            progress(1)


class _Federation:
    """The machines of a system, for the clients of a log. A round is a decision from which something was learned."""

    def __init__(self, system: System, log: LoggedDecisions, seed: int) -> None:
        check_system(system)
        together = isinstance(system.structure, Central)  # one model for all is one client that makes all decisions
        if system.protocol.says == "gossip" or not (together or system.structure.separate):
            kept = "peers in rounds in which all act" if system.protocol.says == "gossip" else "models in one place"
            raise FedbanditError(
                f"{system.name} cannot be evaluated on a log: it has {kept}, and logs are replayed by client machines, "
                "each of which decides and learns for itself, and a coordinator."
            )
        n_clients = 1 if together else log.n_clients
        world = World(n_clients, log.dim, log.n_decisions, noise=log.noise, bound=log.bound, actions=log.n_actions)
        world = altered(world, measured_bound=log.measured_bound)
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

    def ask(self, t: int, policy: Policy | None) -> Array:
        """The probabilities of the offered arms, as the client chooses or by another policy; nothing is learnt."""
        return self.link.client(int(self.clients[t])).propensities(self.log.offered(t), policy)

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
        self.link.now = t
        self.link.client(i).at(t)
        return self.link.client(i)


def carried_bytes(link: Link) -> int:
    """The encoded size of all that was carried."""
    dim, blocks = link.system.structure.shared_dim(link.world), 0 if link.world.actions else None
    sizes = (encoded_size(kind, dim, blocks) for kind in (Upload, Download, Request))
    counts = (link.uploads, link.downloads, link.control_messages)
    one = encoded_size(Upload, dim, 1) - encoded_size(Upload, dim, 0)
    return sum(size * count for size, count in zip(sizes, counts, strict=True)) + one * int(link.blocks.sum())


def _require_log(log: LoggedDecisions) -> None:
    if not isinstance(log, LoggedDecisions):
        raise FedbanditError(f"The log is {log!r}, but must come from fedbandit.environments.from_frame.")


def _regression(log: LoggedDecisions, split: int) -> Callable[[Array], Array]:
    """A ridge regression (λ = 1) of logged rewards on contexts, or one for each action."""
    rows, y = log.contexts(np.arange(split), log.chosen[:split]), log.rewards[:split]
    model = ActionModel(log.n_actions, log.dim, 1.0) if log.n_actions else RidgeModel(log.dim, 1.0)
    for x, reward in zip(rows, y.tolist(), strict=True):
        model.observe(x, reward)
    return model.means
