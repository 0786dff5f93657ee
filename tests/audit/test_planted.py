"""Planted faults: each breaks a claim in its own way, and each must be found by a check of the audit.

`FAULTS` is the table: what is wrong → how it is planted, in which system, and the check that finds it. `SUMS` is that
of what clients put into secure sums; those of stores, copies, masks, keys and lists are in `test_planted_network`.
`test_faults_table` holds the table of docs/privacy-faults.md to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.audit import audit_system
from fedbandit.audit.neighbours import RecordLimits
from fedbandit.audit.total_attack import total_checks
from fedbandit.machines.client import ClientMachine
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Contribution, Message, Request, Tell, Upload
from fedbandit.model import RidgeModel
from fedbandit.network.client import options as network_noise
from fedbandit.privacy import NoisyRewards, PrivateStatistics
from fedbandit.privacy.blt import blt
from fedbandit.privacy.mechanism import Mechanism, gram_mechanism
from fedbandit.privacy.noise import Kind, Source, perturb
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.privacy.reward_sums import RewardSums
from fedbandit.privacy.secure import SecureSource
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.privacy.sum_terms import SumTerms
from fedbandit.protocols import CountTriggered, Growth, Never, Scheduled, Synchronous
from fedbandit.rewards import RewardRule
from fedbandit.state import State
from fedbandit.streams import Purpose, generator
from fedbandit.structures import WeightedGraph
from fedbandit.sums import Sums
from fedbandit.types import Array
from fedbandit.world import World

BY_COUNTS = Synchronous(growth=1.5, batch=16)


# In a mechanism


@dataclass(frozen=True)
class Faulty(PrivateStatistics):
    """Statistics with another mechanism than their claim needs."""

    change: Callable[[Mechanism], Mechanism] = lambda right: right

    def _mechanism(self, epsilon: float, releases: int, world: World) -> Mechanism:
        return self.change(super()._mechanism(epsilon, releases, world))


def scaled(factor: float) -> Callable[[Mechanism], Mechanism]:
    """Less noise."""
    return lambda right: replace(right, scale=factor * right.scale)


def low_from_nine(right: Mechanism) -> Mechanism:
    """Less noise from d = 9 on."""
    return replace(right, scale=0.85 * right.scale) if right.dim >= 9 else right


def for_few(most: int) -> Callable[[Mechanism], Mechanism]:
    """The sensitivity of the first releases only."""

    def change(right: Mechanism) -> Mechanism:
        norm = right.factorisation.column_norm
        return replace(right, scale=right.scale * norm(2, min(most, right.n_max)) / norm(2))

    return change


def without_kappa(right: Mechanism) -> Mechanism:
    """The sensitivity of contexts alone."""
    return replace(right, scale=right.scale / (1 + right.reward_weight**2))


def larger_delta(right: Mechanism) -> Mechanism:
    """Calibrated for 100 δ."""
    other = gram_mechanism(1.0, 100 * right.delta, right.n_max, right.dim, reward_weight=right.reward_weight)
    return replace(right, scale=other.scale, factorisation=other.factorisation)


def half_increment(right: Mechanism) -> Mechanism:
    """A sensitivity that believes records change by half."""
    return replace(right, scale=right.scale / 2, sensitivity=right.sensitivity / 2)


@dataclass(frozen=True)
class FaultyRewards(NoisyRewards):
    """Rewards with less noise than their claim needs."""

    epsilon: float = 1.0
    factor: float = 0.85

    @property
    def reward_rule(self) -> RewardRule:
        right = super().reward_rule
        return right._replace(scale=self.factor * right.scale)


@dataclass(frozen=True)
class FaultySums(RewardSums):
    """Half of the gamma noise."""

    @property
    def mechanism(self) -> Mechanism:
        right = super().mechanism
        return replace(right, scale=right.scale / 2)


@dataclass(frozen=True)
class WiderSums(RewardSums):
    """Rewards are clipped to [−1, 1], and noised as if it were [0, 1]."""

    @property
    def reward_rule(self) -> RewardRule:
        return super().reward_rule._replace(low=-1.0)


def statistics(change: Callable[[Mechanism], Mechanism], **keywords: Any) -> fb.System:
    """A system with a faulty mechanism."""
    return fb.System(protocol=BY_COUNTS, privacy=Faulty(change=change, **keywords))


def sums(privacy: RewardSums) -> fb.System:
    """Users on a graph that release sums."""
    return fb.System(
        protocol=CountTriggered(2.0, 2.0), structure=WeightedGraph(central=False, fresh=False), privacy=privacy
    )


# In a client


class Planted(ClientMachine):
    """A client whose noise passes through `plant`."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.seed = arguments[3]
        assert self.stream is not None
        self.right = self.stream.source
        self.stream.source = self.plant

    def plant(self, k: int) -> Source:
        return self.right(k)


class Altered:
    """A source that adds noise in its own way."""

    def __init__(self, source: Source, how: Callable[[Source, Kind, Array, float], Array]) -> None:
        self.source, self.how = source, how

    def perturb(self, kind: Kind, values: Array, scale: float) -> Array:
        return self.how(self.source, kind, values, scale)

    def standard_normal(self, size: tuple[int, ...]) -> Array:
        return self.source.standard_normal(size)

    def standard_gamma(self, shape: float, size: tuple[int, ...]) -> Array:
        return self.source.standard_gamma(shape, size)

    def laplace(self, loc: float, scale: float, size: tuple[int, ...]) -> Array:
        return self.source.laplace(loc, scale, size)


def quiet(source: Source, kind: Kind, values: Array, scale: float) -> Array:
    return perturb(source, kind, values, 0.85 * scale)


def bare_rewards(source: Source, kind: Kind, values: Array, scale: float) -> Array:
    noisy = perturb(source, kind, values, scale)
    noisy[..., :-1, -1] = values[..., :-1, -1]
    noisy[..., -1, :-1] = values[..., -1, :-1]
    return noisy


def bare_diagonal(source: Source, kind: Kind, values: Array, scale: float) -> Array:
    noisy, i = perturb(source, kind, values, scale), np.arange(values.shape[-1])
    noisy[..., i, i] = values[..., i, i]
    return noisy


def by_data(source: Source, kind: Kind, values: Array, scale: float) -> Array:
    return perturb(source, kind, values, scale * (1 + abs(float(values[0, -1]))))


def altered(how: Callable[[Source, Kind, Array, float], Array]) -> type[ClientMachine]:
    """A client that adds noise in its own way."""

    class Client(Planted):
        def plant(self, k: int) -> Source:
            return Altered(self.right(k), how)

    return Client


class OneNoise(Planted):
    """The same noise in every release."""

    def plant(self, k: int) -> Source:
        return self.right(0 * k)


class SharedNoise(Planted):
    """The same noise for all clients."""

    def plant(self, k: int) -> Source:
        return generator(self.seed, Purpose.NOISE, 99, k)


class FixedNoise(Planted):
    """Noise that does not depend on the seed: whoever has one client knows all."""

    def plant(self, k: int) -> Source:
        return generator(0, Purpose.NOISE, self.member, k)


class Tired(Planted):
    """No noise from the fourth release on."""

    def plant(self, k: int) -> Source:
        return Altered(self.right(k), lambda *a: a[2]) if k >= 3 else self.right(k)


class Nervous(ClientMachine):
    """A raw trigger, whatever the system says."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.trigger, self.threshold = Growth(np.array([1.0])), 1.0


class Talkative(ClientMachine):
    """Uploads say how large the determinant of exact data is."""

    def upload(self) -> Upload:
        return replace(super().upload(), known=self.model.logdet)


class LaterTalkative(ClientMachine):
    """The same, from the first download on."""

    def upload(self) -> Upload:
        upload = super().upload()
        return replace(upload, known=self.model.logdet) if self.version > 0 else upload


class Leaky(ClientMachine):
    """Requests say how large the determinant of exact data is."""

    def observe(self, number: int, reward: float) -> list[Message]:
        sent = super().observe(number, reward)
        return [replace(m, growth=self.model.logdet) if isinstance(m, Request) else m for m in sent]


class Counting(ClientMachine):
    """Uploads say how many rewards were positive."""

    positive = 0

    def observe(self, number: int, reward: float) -> list[Message]:
        self.positive += reward > 0.5
        return super().observe(number, reward)

    def upload(self) -> Upload:
        upload = super().upload()
        return replace(upload, sums=upload.sums._replace(n=upload.sums.n + self.positive))


class CountingInSums(Counting):
    """Contributions to secure sums say how many rewards were positive."""

    def contribute(self, epoch: int, included: int) -> list[Message]:
        said = super().contribute(epoch, included)
        return [replace(m, n=m.n + self.positive) if isinstance(m, Contribution) else m for m in said]


class Shy(ClientMachine):
    """Nothing is said while all pending rewards are 0."""

    def speak(self) -> list[Message]:
        return super().speak() if self.model.pending().b.any() else []


class Frank(ClientMachine):
    """Says how many interactions it has observed, where counts are to be padded."""

    def upload(self) -> Upload:
        observed = self.model.n_pending
        upload = super().upload()
        return replace(upload, sums=upload.sums._replace(n=max(observed, 1)))


class Idle(ClientMachine):
    """Releases nothing where nothing was observed, though counts are to be padded."""

    def upload(self) -> Upload:
        observed = self.model.n_pending
        upload = super().upload()
        return upload if observed else replace(upload, sums=self.form.zero())


class Hesitant(ClientMachine):
    """Speaks some rounds later if its first reward was low."""

    first: float | None = None

    def observe(self, number: int, reward: float) -> list[Message]:
        self.first = reward if self.first is None else self.first
        return super().observe(number, reward)

    def speak(self) -> list[Message]:
        assert self.first is not None
        return super().speak() if self.first > 0 or self.model.n_pending > 20 else []


class Renoising(ClientMachine):
    """Fresh noise when an upload is sent again."""

    @property
    def outbox(self) -> dict[int, Upload]:
        """What is to be sent again."""
        fresh = np.random.default_rng()
        return {
            number: replace(upload, sums=upload.sums._replace(b=upload.sums.b + fresh.standard_normal(self.dim)))
            for number, upload in self._kept.items()
        }

    @outbox.setter
    def outbox(self, kept: dict[int, Upload]) -> None:
        self._kept = kept

    def upload(self) -> Upload:
        upload = super().upload()
        self._kept[upload.sequence] = upload
        return upload


class Forgetful(ClientMachine):
    """What was released on request is not noted, and released again."""

    def receive(self, message: Message) -> list[Message]:
        before = self.model.dump()
        sent = super().receive(message)
        self.model.load(*before)
        return sent


class Unlimited(ClientMachine):
    """A cap that is not the one that the noise was calibrated for."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        assert self.stream is not None
        self.stream = ReleaseStream(replace(self.stream.mechanism, factorisation=blt(1000)), self.stream.source)


class Amnesiac(ClientMachine):
    """The noise stream is not restored after a restart."""

    def restore(self, state: State) -> None:
        assert self.stream is not None
        before = self.stream.state()
        super().restore(state)
        self.stream.restore(before)


class Hasty(ClientMachine):
    """After a restart what was uploaded and not acknowledged is pending again."""

    def state(self) -> State:
        header, arrays = super().state()
        return State(
            {**header, "epoch": max(header["epoch"] - 1, 0), "sequence": max(header["sequence"] - 1, 0)}, arrays
        )


class Unbooked(ClientMachine):
    """The ledger forgets the second release."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        stream = self.stream
        assert isinstance(stream, ReleaseStream)

        class Stream(ReleaseStream):
            @property
            def spent(self) -> int:
                made = super().spent
                return made - (made >= 2)

        stream.__class__ = Stream


class Unbounded(ClientMachine):
    """‖x‖ ≤ L is not enforced."""

    def checked(self, arms: Any) -> Array:
        return np.ascontiguousarray(arms, dtype=np.float64)


class Unclipped(ClientMachine):
    """Rewards beyond B are learnt as they are."""

    def perceive(self, reward: float) -> float:
        return float(reward)


class Peeking(ClientMachine):
    """Chooses by exact data, where releases alone may be used."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.exact = RidgeModel(self.context_dim, self.ridge)

    def learn(self, x: Array, y: float) -> None:
        super().learn(x, y)
        self.exact.observe(x, y)

    def select(self, arms: Any, **keywords: Any) -> Any:
        used, self._model = self._model, self.exact
        try:
            return super().select(arms, **keywords)
        finally:
            self._model = used


class Answering(PeerMachine):
    """A peer that answers when its raw determinant has grown."""

    def receive(self, sender: int, message: Message) -> None:
        if self.estimators[0].model.logdet > 1.0:
            super().receive(sender, message)


class Urging(PeerMachine):
    """A peer that tells at once whenever a reward is as large as can be."""

    def observe(self, choice: int, reward: float) -> None:
        super().observe(choice, reward)
        if reward > 0.999:
            self._tell(0)


class Confiding(PeerMachine):
    """A peer whose answers have its raw determinant in a field that is not noised."""

    def send(self) -> Any:
        grown = int(1000 * self.estimators[0].model.logdet)
        return [(to, replace(m, sequence=grown) if isinstance(m, Tell) else m) for to, m in super().send()]


# Elsewhere


def low_secure(patch: pytest.MonkeyPatch) -> None:
    """Secure noise is 15 % low, and only that."""
    right = SecureSource.perturb
    patch.setattr(SecureSource, "perturb", lambda self, kind, values, scale: right(self, kind, values, 0.85 * scale))


def numpy_on_the_network(patch: pytest.MonkeyPatch) -> None:
    """A network client draws noise from the coordinator's seed."""
    patch.setattr(network_noise, "noise_source", lambda *_, **__: None)


def half_at_the_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A trusted coordinator draws half of the noise."""
    right = fb.System.coordinator

    def coordinator(self: fb.System, world: World, seed: int = 0) -> Any:
        machine = right(self, world, seed)
        if machine is not None and machine.privatise is not None:
            made = machine.privatise

            def privatise(i: int) -> Any:
                stream: Any = made(i)
                stream.mechanism = replace(stream.mechanism, scale=stream.mechanism.scale / 2)
                return stream

            machine.privatise = privatise
        return machine

    patch.setattr(fb.System, "coordinator", coordinator)


class Fault(NamedTuple):
    """How a fault is planted, and the check that must find it."""

    check: str
    system: fb.System = fb.feducb()
    client: type[ClientMachine] = ClientMachine
    peer: type[PeerMachine] = PeerMachine
    patch: Callable[[pytest.MonkeyPatch], None] | None = None


EXACT, CONTENTS, TIMES = "mechanism, exact", "client, contents", "client, times and counts"
PADDED = fb.System(protocol=Scheduled(growth=1.5, batch=4), privacy=PrivateStatistics(counts="padded"))
PEERS = fb.feducb(topology="complete")
TRUSTED = fb.dp_colin(mechanism="sums", gamma_upload=2.0, gamma_download=2.0)
FAULTS = {
    "κ forgotten in the sensitivity": Fault(EXACT, statistics(without_kappa)),
    "√2 forgotten in the sensitivity": Fault(EXACT, statistics(scaled(math.sqrt(0.5)))),
    "records believed to change by half": Fault(EXACT, statistics(half_increment)),
    "noise at 0.85": Fault(EXACT, statistics(scaled(0.85))),
    "noise at 0.85 from d = 9 on": Fault("mechanism, d = 12", statistics(low_from_nine)),
    "one tree level too few": Fault(EXACT, statistics(scaled(math.sqrt(2 / 3)), kind="tree")),
    "sensitivity for half of the releases": Fault(EXACT, statistics(for_few(3), kind="blt")),
    "sensitivity for 16 releases only": Fault("mechanism, d = 12", statistics(for_few(16), kind="blt")),
    "δ wrong by 100": Fault(EXACT, statistics(larger_delta)),
    "a contribution with √k noise": Fault(CONTENTS, statistics(scaled(40**-0.5), contribution=40)),
    "noise on rewards at 0.85": Fault("client, noised rewards", fb.System(protocol=Never(), privacy=FaultyRewards())),
    "half of the gamma noise": Fault(EXACT, sums(FaultySums())),
    "Laplace per coordinate, ℓ2 sensitivity": Fault(EXACT, fb.dp_colin(calibration="published")),
    "sums clipped to [−1, 1], noised for [0, 1]": Fault("client, bounds", sums(WiderSums())),
    "L not enforced": Fault("client, bounds", client=Unbounded),
    "B not enforced": Fault("client, bounds", client=Unclipped),
    "a client that draws 0.85": Fault(CONTENTS, client=altered(quiet)),
    "no noise on b": Fault(CONTENTS, client=altered(bare_rewards)),
    "no noise on the diagonal": Fault(CONTENTS, client=altered(bare_diagonal)),
    "noise that depends on the data": Fault(CONTENTS, client=altered(by_data)),
    "no noise from the fourth release on": Fault(CONTENTS, client=Tired),
    "the same noise in every release": Fault("members, independent noise", client=OneNoise),
    "the same noise for all clients": Fault("members, independent noise", client=SharedNoise),
    "noise that does not depend on the seed": Fault("members, independent noise", client=FixedNoise),
    "a raw trigger": Fault(TIMES, client=Nervous),
    "a raw determinant in uploads": Fault(TIMES, client=Talkative),
    "a raw determinant after the first download": Fault(TIMES, client=LaterTalkative),
    "a raw determinant in requests": Fault(TIMES, client=Leaky),
    "a count of rewards in uploads": Fault(TIMES, client=Counting),
    "a count of rewards in contributions to sums": Fault(TIMES, fb.feducb(trust="sums"), client=CountingInSums),
    "silence while rewards are 0": Fault(TIMES, fb.count_linucb(privacy=PrivateStatistics()), client=Shy),
    "a padded count that tells how much was observed": Fault(TIMES, PADDED, client=Frank),
    "an empty upload where nothing was observed, and counts are padded": Fault(TIMES, PADDED, client=Idle),
    "silence after a low reward": Fault(TIMES, fb.dp_linucb(delta=1e-5), client=Hesitant),
    "fresh noise on a retry": Fault("client, retries", client=Renoising),
    "the same data released twice": Fault("client, retries", client=Forgetful),
    "a cap that is not kept": Fault("client, long life", client=Unlimited),
    "a stream not restored after a crash": Fault("client, restarts", client=Amnesiac),
    "an upload forgotten in a crash": Fault("client, restarts", client=Hasty),
    "a release that the ledger forgets": Fault("client, ledger", client=Unbooked),
    "choices by exact data": Fault("client, choices", fb.dp_linucb(delta=1e-5), client=Peeking),
    "choices by exact data, where sums are released": Fault(
        "client, choices", fb.feducb(trust="sums", own="released"), client=Peeking
    ),
    "choices by exact data, where a trusted coordinator publishes": Fault(
        "client, choices", fb.feducb(trust="coordinator", own="released"), client=Peeking
    ),
    "a peer that answers by its raw determinant": Fault("peers, times and counts", PEERS, peer=Answering),
    "a raw determinant in a peer's answers": Fault("peers, times and counts", PEERS, peer=Confiding),
    "a peer that tells large rewards at once": Fault("peers, times and counts", PEERS, peer=Urging),
    "secure noise at 0.85": Fault("secure noise, scale", patch=low_secure),
    "noise of the coordinator's seed on a network": Fault("network client, noise", patch=numpy_on_the_network),
    "half of the noise at a trusted coordinator": Fault("coordinator, exact", TRUSTED, patch=half_at_the_coordinator),
    "half of the noise in the total that a trusted coordinator publishes": Fault(
        "coordinator, publications", statistics(scaled(0.5), trust="coordinator", own="exact")
    ),
}


class HalfShares(SumStream):
    """Half of the noise in every share of a secure sum."""

    def _noise(self, epoch: int) -> Any:
        return super()._noise(epoch) // 2


class OneShare(SumStream):
    """The same share of noise in every epoch: two sums tell their difference."""

    def _noise(self, epoch: int) -> Any:
        return super()._noise(min(epoch, 1))


class Overweight(SumStream):
    """What was missed is sent again whatever it weighs."""

    def contribute(self, epoch: int, included: int, sums: Sums) -> Any:
        self.squares[:] = 0.0
        words = super().contribute(epoch, included, sums)
        if epoch > 1:
            self.offered *= 2
        return words


SUMS = {
    "half of the noise in shares of sums": (HalfShares, "sums, shares of noise"),
    "one share of noise for all epochs": (OneShare, "sums, shares of noise"),
    "records sent again after an absence, whatever they weigh": (Overweight, "sums, contributions"),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_fault_of_sums_is_found(name: str) -> None:
    """By what a client contributes; without the fault all checks pass."""
    world = World(10, 2, 1_000, per_round=10)
    told = fb.feducb(trust="sums").told(world)
    assert isinstance(told.privacy, PrivateStatistics)
    limits = RecordLimits.of(world, told.privacy.reward_rule, told.guarantee.protects)
    kind, check = SUMS[name]

    def make(terms: SumTerms, seed: int) -> SumStream:
        return kind(terms, lambda k: generator(seed, Purpose.NOISE, 0, k))

    found = total_checks(told.privacy, limits, told.guarantee, make=make)
    assert check in {one.name for one in found if one.verdict == "FAIL"}
    assert all(one.passed for one in total_checks(told.privacy, limits, told.guarantee))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check that is meant to, and so the audit fails."""
    fault = FAULTS[name]
    if "secure" in fault.check or "network" in fault.check:
        pytest.importorskip("opendp", reason="secure noise needs fedbandit[secure]")
    if fault.patch is not None:
        fault.patch(monkeypatch)
    found = audit_system(
        fault.system, trials=6_000 if fault.check == CONTENTS else 1_000, rounds=100,
        make_machine=fault.client, make_peer=fault.peer,
    )  # fmt: skip
    failed = {check.name for check in found.checks if check.verdict == "FAIL"}
    assert fault.check in failed, str(found)
    assert not found.passed


def test_without_a_fault_all_of_these_pass() -> None:
    """So none of the faults above is found by accident."""
    for system in (
        statistics(lambda right: right),
        sums(RewardSums()),
        PEERS,
        TRUSTED,
        PADDED,
        fb.feducb(trust="sums"),
    ):
        found = audit_system(system, trials=1_000, rounds=100)
        assert found.passed, str(found)
