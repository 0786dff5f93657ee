"""Attacks on what a client does over its life: bounds, restarts, other members, its ledger, its choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from fedbandit.audit.client_attack import portions_of, released_scale, released_sums
from fedbandit.audit.likelihood import Handed, epsilon_of_shift, whiten
from fedbandit.audit.neighbours import History, Record, RecordLimits, pairs_of, some_history, with_first
from fedbandit.audit.observer import MakeMachine, Seen, observe_client
from fedbandit.audit.report import SURE, TOLERANCE, Check, skip
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Contribution, Download, Request, Upload
from fedbandit.noisy_totals import NoisyTotals
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism, noise_std
from fedbandit.privacy.private_statistics import PrivateStatistics
from fedbandit.sharing import Others
from fedbandit.sums import EXACT, Sums
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World

MakeDownload = Callable[[ClientMachine, int, int], Download]
"""What a client is sent in a round, after so many releases."""
BEYOND = 3.0
"""How many times too long contexts and rewards are."""
ARMS = 20
INDEPENDENT = 5.0
"""Standard deviations of a correlation that chance may explain."""


def wild_records(limits: RecordLimits) -> tuple[list[Record], Record]:
    """Records beyond L and B, and one within."""
    x = np.zeros(limits.dim)
    x[0] = limits.bound
    wild = [Record(x, BEYOND * limits.high), Record(x, min(BEYOND * limits.low, -BEYOND))]
    if limits.contexts:
        wild += [Record(BEYOND * x, limits.high), Record(np.roll(BEYOND * x, 1), limits.high)]
    return wild, Record(x, min(max(0.0, limits.low), limits.high))


def bounds_check(
    make: MakeMachine,
    mechanism: Mechanism,
    limits: RecordLimits,
    claim: Guarantee,
    *,
    rounds: int,
    calls: Collection[int] = (),
) -> Check:
    """Whether a record beyond L and B is refused, or moves what is handed to the noise no further than one within."""
    name = "client, bounds"
    wild, tame = wild_records(limits)
    largest, refused = 0.0, 0
    handed: list[tuple[Array, float]] = []
    for record in wild:
        source = Handed()
        try:
            client = make(0, source)
            observe_client(client, with_first([tame] * rounds, record, 1), calls=calls)
        except FedbanditError:
            refused += 1
        else:
            if not source.scales:
                return Check(name, False, 0.0, "nothing was noised by the source that the client was given")
            handed.append((np.array(source.values), source.scales[0]))
    for i, (first, scale) in enumerate(handed):
        for second, _ in handed[:i]:
            if first.shape != second.shape:
                return Check(name, False, math.inf, "records beyond the bounds change what is released when")
            largest = max(largest, epsilon_of_shift(replace(mechanism, delta=claim.delta), (first - second) / scale))
    passed = largest <= claim.epsilon * TOLERANCE
    detail = f"{len(wild)} records beyond the bounds: {refused} refused, ε = {largest:.4f} between the others"
    return Check(name, passed, 0.0 if passed else largest, detail)


def restart_check(
    make: MakeMachine, limits: RecordLimits, rng: np.random.Generator, *, rounds: int, calls: Collection[int] = ()
) -> Check:
    """Whether a client that crashes after each message, and is restored, sends what one that does not would send.

    Noise that is drawn anew, or again for later data, would tell more than either.
    """

    def crash(client: ClientMachine) -> ClientMachine:
        other = make(0)
        other.restore(client.state())
        return other

    name, history = "client, restarts", some_history(limits, rounds, rng)
    whole = observe_client(make(0), history, calls=calls)
    broken = observe_client(make(0), history, calls=calls, crash=crash)
    for k, (first, second) in enumerate(zip(whole.sent, broken.sent, strict=False), start=1):
        if first != second:
            return Check(name, False, 0.0, f"after a restart upload {k} differs from what would have been sent")
    if len(whole.sent) != len(broken.sent):
        return Check(name, False, 0.0, f"{len(broken.sent)} uploads with restarts, {len(whole.sent)} without")
    return Check(name, True, 0.0, f"{len(whole.sent)} uploads, the same to the bit with a restart after each")


def ledger_check(
    make: MakeMachine, mechanism: Mechanism, limits: RecordLimits, rng: np.random.Generator, *, rounds: int,
    calls: Collection[int] = (),
) -> Check:  # fmt: skip
    """Whether the client's own book of what it has released agrees with what was seen."""
    name, source = "client, ledger", Handed()
    client = make(0, source)
    asked = client.protocol.says == "request" or bool(calls)
    seen = observe_client(client, some_history(limits, rounds, rng), ask=asked)
    booked = -1 if client.stream is None else client.stream.spent
    if booked != len(seen.n) or booked != len(source.scales):
        return Check(
            name, False, 0.0, f"{booked} releases in the ledger, {len(seen.n)} seen, {len(source.scales)} noised"
        )
    return Check(
        name, True, 0.0, f"{booked} releases in the ledger, as many seen and noised; at most {mechanism.n_max} a stream"
    )


def independence_check(
    members: Sequence[tuple[MakeMachine, Mechanism]],
    limits: RecordLimits,
    rng: np.random.Generator,
    *,
    rounds: int,
    runs: int,
    calls: Collection[int] = (),
) -> Check:
    """Whether noise is drawn anew, with its scale: for each release, for each of two members, whatever the seed.

    Also where a mechanism has made all its releases, and another follows.
    """
    name, history = "members, independent noise", some_history(limits, rounds, rng)
    noise: list[list[Array]] = []
    for seed in range(runs):
        rows = []
        for make, mechanism in members:
            seen = observe_client(make(seed), history, calls=calls)
            if sum(seen.n) > rounds:
                return Check(name, False, 0.0, f"{sum(seen.n)} interactions were released, but there were {rounds}")
            rows.append(_stream_noise(mechanism, history, seen, 0))
        fewest = min(len(row) for row in rows)
        noise.append([row[:fewest] for row in rows])
    for k, (_, mechanism) in enumerate(members):
        low, high = released_scale(mechanism, np.array([rows[k] for rows in noise]), SURE)
        if high < 1:
            which = ("one member", "another member")[k]
            return Check(name, False, 0.0, f"the noise of {which} has {low:.2f}–{high:.2f} of its scale")
    z = _numbers(members[0][1], np.array(noise))  # runs × 2 × releases × numbers
    pairs = {"two members": (z[:, 0], z[:, 1])}
    if z.shape[2] > 1:
        pairs["two releases"] = z[:, :, :-1], z[:, :, 1:]
    if runs > 1:
        pairs["two runs"] = z[:-1], z[1:]
    make, mechanism = members[0]
    streams = [_two_streams(make(seed), mechanism, history, bool(calls)) for seed in range(min(runs, 5))]
    if all(len(second) for _, second in streams):
        first, second = (_numbers(mechanism, np.array(rows)) for rows in zip(*streams, strict=True))
        pairs["two streams"] = first, second
    for what, (a, b) in pairs.items():
        found = float((a * b).mean() / math.sqrt(float((a * a).mean() * (b * b).mean())))
        if abs(found) > INDEPENDENT / math.sqrt(a.size):
            return Check(name, False, 0.0, f"the noise of {what} has a correlation of {found:.2f}")
    return Check(name, True, 0.0, f"{z.size:,} numbers: no correlation between members, releases or runs")


def _stream_noise(mechanism: Mechanism, history: History, seen: Seen, first: int) -> Array:
    """The noise of the stream that begins with this release, whitened: one row for each of its releases."""
    part, before = slice(first, first + mechanism.n_max), max(first - 1, 0)
    V, b = (numbers[part] - (numbers[before] if first else 0.0) for numbers in (seen.V, seen.b))
    one = seen._replace(V=V, b=b, n=seen.n[part])
    exact = portions_of(mechanism, history[sum(seen.n[:first]) :], one)
    return whiten(mechanism, exact, released_sums(mechanism, one)[:, None])[:, 0]


def _two_streams(client: ClientMachine, mechanism: Mechanism, history: History, called: bool) -> tuple[Array, Array]:
    """The noise of a mechanism's releases, and of those that follow when it has made all; nothing if none do."""
    n, made = mechanism.n_max, observe_client(client, history, ask=called or client.protocol.says == "request")
    if len(made.n) <= n or sum(made.n) > len(history):  # padded counts do not say what was released when
        return np.empty(0), np.empty(0)
    first, second = (_stream_noise(mechanism, history, made, k) for k in (0, n))
    return first[: len(second)], second


def _numbers(mechanism: Mechanism, z: Array) -> Array:
    if mechanism.noise != "symmetric":
        return z
    rows, columns = (index[:-1] for index in np.triu_indices(mechanism.dim + 1))
    return np.asarray(z[..., rows, columns])


def choices_check(
    make: MakeMachine,
    mechanism: Mechanism | None,
    limits: RecordLimits,
    claim: Guarantee,
    rng: np.random.Generator,
    *,
    rounds: int,
    calls: Collection[int] = (),
    downloads: MakeDownload | None = None,
) -> Check:
    """Whether arms depend on a record otherwise than through releases; several arms are offered.

    After each release both worlds are sent the same download (`downloads`), as if it were the releases that are
    neighbouring data's: whatever is chosen then follows from public numbers, or from exact ones.

    Where the claim takes later records as given this is not covered: then the ε of everything that is released is
    measured, that of later choices included, and not counted as a pass; without a `mechanism`, of a client whose noise
    is that of a total, only the choices are.
    """
    name, given = "client, choices", claim.definition == "given later records"
    contexts = rng.standard_normal((rounds, ARMS, limits.dim))
    contexts *= limits.bound / np.linalg.norm(contexts, axis=2, keepdims=True)
    direction = rng.standard_normal(limits.dim)
    means = (1 + contexts @ direction / (limits.bound * np.linalg.norm(direction))) / 2
    rewards = np.where(rng.random((rounds, ARMS)) < means, limits.high, limits.low)  # they are worth learning from
    sources = Handed(), Handed()
    (arms, releases, until), (others, _, _) = (
        _arms(
            make(0, None if mechanism is None else source),
            contexts,
            rewards,
            first,
            calls,
            None if given else downloads,
        )
        for source, first in zip(sources, (limits.high, limits.low), strict=True)
    )
    differ = np.array(arms[1:]) != np.array(others[1:])
    if given:
        said = f"not covered by the claim: one reward changes {100 * float(differ.mean()):.0f} % of the later choices"
        if mechanism is not None:
            found = _epsilon_between(*sources, replace(mechanism, delta=claim.delta))
            said += f"; all that is released then tells it by ε = {found:,.0f}"
        return skip(name, said)
    counted = until - 1
    if counted < 1:
        return skip(name, "not attacked: no arm is chosen before a release, and there are no downloads after it")
    if differ[:counted].any():
        t = int(np.argmax(differ)) + 1
        return Check(
            name, False, math.inf,
            f"{int(differ[:counted].sum())} of {counted} arms depend on a reward by exact data, the first in round {t}",
        )  # fmt: skip
    return Check(
        name,
        True,
        0.0,
        f"{counted} arms, with the same download after each of {releases} releases: none depends on a reward",
    )


def _epsilon_between(one: Handed, other: Handed, mechanism: Mechanism) -> float:
    """The ε of two streams by what was handed to their noise; ∞ if they differ in length, 0 if nothing was handed."""
    if one.scales != other.scales or not one.scales:
        return math.inf if one.scales != other.scales else 0.0
    difference = np.array(one.values) - np.array(other.values)
    return epsilon_of_shift(mechanism, difference / np.array(one.scales).reshape((-1,) + (1,) * (difference.ndim - 1)))


def _arms(
    client: ClientMachine,
    contexts: Array,
    rewards: Array,
    first: float,
    calls: Collection[int],
    downloads: MakeDownload | None,
) -> tuple[list[int], int, int]:
    """The arms that are pulled, how many releases there were, and the round up to which arms are to be the same.

    Without downloads that is the first release, or the end if there is none.
    """
    arms: list[int] = []
    releases, until, epoch = 0, len(contexts), 0
    for t, (X, y) in enumerate(zip(contexts, rewards, strict=True)):
        choice = client.select(X)
        arms.append(choice.arm)
        said = client.observe(choice.number, first if t == 0 else float(y[choice.arm]))
        if t + 1 in calls or any(isinstance(message, Request) for message in said):
            epoch += 1
            said = client.receive(Collect(client.member, epoch, epoch - 1))
        if any(
            isinstance(message, Contribution) or (isinstance(message, Upload) and message.sums.n) for message in said
        ):
            releases += 1
            until = min(until, t + 1) if downloads is None else until
            if downloads is not None:
                client.receive(downloads(client, t + 1, releases))
    return arms, releases, until


def downloads_of(told: System, world: World) -> MakeDownload:
    """What an attacker may send after a release: public numbers, as noisy as the coordinator's would be.

    They have the member's own releases in them or not, as the system's do; those of a structure that looks at members
    now have them, now not.
    """
    sharing, noise = told.sharing(world), told.pool_noise()
    apart = isinstance(sharing, Others | NoisyTotals)
    privacy = told.privacy
    variance = float(noise_std(privacy.mechanisms[0])[0]) ** 2 if isinstance(privacy, PrivateStatistics) else 0.0

    def download(client: ClientMachine, t: int, releases: int) -> Download:
        d, secure = client.dim, client.secure_sums
        theta = np.cos(np.arange(d) + releases)
        n = t * world.n_clients
        V = np.eye(d) * (n * world.bound**2 / d)
        own = not apart and not (privacy.waits and releases % 2)
        slack = EXACT if own or noise is None else noise.slack_of(variance)
        version, known = (releases, releases) if secure else (client.version + 1, client.sequence)
        return Download(client.member, version, known, Sums(V, V @ theta / math.sqrt(d), n), slack, own=own)

    return download


def twin_check(make: Callable[[], ClientMachine], mechanism: Mechanism, limits: RecordLimits, rounds: int) -> Check:
    """Whether two clients on a network with one seed and the same data draw different noise."""
    name = "network client, noise"
    history = [next(iter(pairs_of(limits, mechanism).values()))[0]] * rounds
    first, second = (observe_client(make(), history, ask=make().protocol.says == "request") for _ in range(2))
    if not first.n:
        return skip(name, f"nothing was released in {rounds} rounds")
    if any((a == b).all() for a, b in zip(first.b, second.b, strict=True)):
        return Check(name, False, math.inf, "two clients with one seed sent the same: whoever knows it knows the noise")
    return Check(name, True, 0.0, f"{len(first.n)} releases, all different for two clients with one seed")
