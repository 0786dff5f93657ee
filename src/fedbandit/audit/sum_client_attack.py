"""Attacks on a client whose statistics leave it in secure sums: what it contributes over its life.

A source without noise shows what is in a contribution, in both worlds, so that the ε of all of them is exact. The same
life with noise shows by its difference what noise was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fedbandit.audit.life_attack import INDEPENDENT, wild_records
from fedbandit.audit.likelihood import Handed
from fedbandit.audit.neighbours import History, Pair, RecordLimits, pairs_of, some_history, with_first
from fedbandit.audit.observer import MakeMachine
from fedbandit.audit.report import TOLERANCE, Check, skip
from fedbandit.audit.total_attack import epsilon_of_words
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Contribution, Request
from fedbandit.privacy.calibration import special_functions
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.privacy.sum_terms import SumTerms, Words
from fedbandit.types import Array

Pattern = Callable[[int], bool]
"""Whether the client is in the sum of an epoch."""
PATTERNS: tuple[Pattern, ...] = (lambda _: True, lambda epoch: epoch % 2 == 0, lambda _: False)


class Silent(Handed):
    """A source whose shares of noise are nothing."""

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:  # noqa: ARG002 - of any scale
        """Nothing."""
        return np.zeros(size, dtype=np.int64)


def contribute(
    client: ClientMachine,
    history: History,
    *,
    calls: Collection[int] = (),
    ask: bool = False,
    since: int = 1,
    present: Pattern = PATTERNS[0],
    crash: Callable[[ClientMachine], ClientMachine] | None = None,
) -> tuple[ClientMachine, list[Contribution]]:
    """Let a client live through a history; it, and what it contributed. It is called when it asks to be, and `calls`.

    With `ask` also after every interaction. Each call comes twice, the first ones for the epoch `since`. After a
    contribution the client may `crash`.
    """
    made: list[Contribution] = []
    epoch, included = since - 1, 0
    for t, (x, y) in enumerate(history):
        said = client.observe(client.select(x[None]).number, y)
        if not (ask or t + 1 in calls or any(isinstance(message, Request) for message in said)):
            continue
        epoch += 1
        for call in (Collect(client.member, epoch, included), Collect(client.member, epoch, included)):
            made += [message for message in client.receive(call) if isinstance(message, Contribution)]
        included = epoch if present(epoch) and made and made[-1].epoch == epoch else included
        client = client if crash is None else crash(client)
    return client, made


def words_of(made: list[Contribution]) -> Words:
    """One row for each contribution."""
    return np.array([message.words for message in made], dtype=np.uint64)


def sum_client_checks(
    make: MakeMachine,
    other: MakeMachine,
    terms: SumTerms,
    limits: RecordLimits,
    claim: Guarantee,
    rng: np.random.Generator,
    *,
    records: int,
    rounds: int,
    runs: int,
    calls: Collection[int],
) -> Iterator[Check]:
    """All of them."""
    live = partial(contribute, calls=calls)
    rest = some_history(limits, rounds, rng)
    pair = next(iter(pairs_of(limits, terms.mechanism).values()))
    histories = [with_first(rest, record, records) for record in pair]
    if not live(make(0, Silent()), rest)[1]:
        yield Check("client, contents", False, 0.0, f"nothing was contributed in {rounds} rounds; audit a longer one")
        return
    yield _contents_check(make, terms, claim, histories, live, runs)
    yield _retries_check(make, rest, live)
    yield _restarts_check(make, rest, live)
    longer = some_history(limits, 2 * max(rounds, records, terms.epochs), rng)
    twice = [with_first(longer, record, records) for record in pair]
    yield _long_life_check(make, terms, claim, twice)
    yield _bounds_check(make, terms, limits, claim, rest[:50], live)
    yield _ledger_check(make, terms, claim, pair, rest, live)
    yield _independence_check(make, other, terms, rest, live, min(runs, 20))


Live = Callable[..., tuple[ClientMachine, list[Contribution]]]


def _contents_check(
    make: MakeMachine, terms: SumTerms, claim: Guarantee, histories: list[History], live: Live, runs: int
) -> Check:
    """The ε of all contributions of neighbouring histories, and the scale of the noise that is really in them."""
    name, largest = "client, contents", 0.0
    for present in PATTERNS:
        one, other = (words_of(live(make(0, Silent()), history, present=present)[1]) for history in histories)
        if one.shape != other.shape:
            return Check(name, False, math.inf, "neighbouring histories are contributed in different portions")
        largest = max(largest, epsilon_of_words(terms, one - other, claim.delta))
    exact = [words_of(live(make(0, Silent()), history)[1]) for history in histories]
    noise = [
        [(words_of(live(make(seed), history)[1]) - bare).view(np.int64) for seed in range(runs)]
        for history, bare in zip(histories, exact, strict=True)
    ]
    if not np.array_equal(*np.array(noise)):
        return Check(name, False, math.inf, "the noise that is drawn depends on the data")
    z = np.array(noise[0]) / terms.stds
    seen, least = _scale(z)
    passed = largest <= claim.epsilon * TOLERANCE and seen >= least
    detail = f"{len(exact[0])} sums: ε = {largest:.4f} at the stated scale, of which {seen:.2f} was seen in {runs} runs"
    return Check(name, passed, 0.0 if passed else max(largest, claim.epsilon), detail)


def _scale(z: Array) -> tuple[float, float]:
    """The scale of standard normals that was seen, and the least that chance explains (10⁻⁹)."""
    least = float(special_functions().gammaincinv(z.size / 2, 1e-9))
    return math.sqrt(float((z * z).mean())), math.sqrt(2 * least / z.size)


def _retries_check(make: MakeMachine, rest: History, live: Live) -> Check:
    name = "client, retries"
    made = live(make(0), rest, ask=True)[1]
    epochs = [message.epoch for message in made]
    if len(set(epochs)) < len(epochs):
        return Check(name, False, math.inf, "called twice in an epoch, the client contributes twice")
    return Check(name, True, 0.0, f"{len(epochs)} epochs, each called twice: one contribution to each")


def _restarts_check(make: MakeMachine, rest: History, live: Live) -> Check:
    """Whether a client that crashes after each contribution goes on as one that does not, absences included."""

    def crash(client: ClientMachine) -> ClientMachine:
        after = make(0)
        after.restore(client.state())
        return after

    name, compared = "client, restarts", 0
    for present in PATTERNS:
        whole, broken = (live(make(0), rest, ask=True, present=present, crash=how)[1] for how in (None, crash))
        if not np.array_equal(words_of(whole), words_of(broken)):
            return Check(name, False, 0.0, "after a restart a contribution differs from what it would have been")
        compared += len(whole)
    return Check(name, True, 0.0, f"{compared} contributions, the same to the bit with a restart after each")


def _long_life_check(make: MakeMachine, terms: SumTerms, claim: Guarantee, histories: list[History]) -> Check:
    """A client that is called in every round, for longer than sums were planned, and now and then left out."""
    name, true = "client, long life", 0.0
    for present in PATTERNS:
        one, other = (
            words_of(contribute(make(0, Silent()), history, ask=True, present=present)[1]) for history in histories
        )
        if one.shape != other.shape:
            return Check(name, False, math.inf, "how often a client contributes depends on its data")
        true = max(true, epsilon_of_words(terms, one - other, claim.delta))
    passed = true <= claim.epsilon * TOLERANCE
    detail = f"{len(one)} contributions in {len(histories[0])} rounds, ε = {true:.4f} for all of them"
    return Check(name, passed, 0.0 if passed else true, detail)


def _bounds_check(
    make: MakeMachine, terms: SumTerms, limits: RecordLimits, claim: Guarantee, rest: History, live: Live
) -> Check:
    """Whether a record beyond L and B is refused, or moves contributions no further than one within."""
    name, refused, largest = "client, bounds", 0, 0.0
    wild, tame = wild_records(limits)
    found: list[Words] = []
    for record in wild:
        try:
            found.append(words_of(live(make(0, Silent()), with_first([tame] * len(rest), record, 1), ask=True)[1]))
        except FedbanditError:
            refused += 1
    for i, one in enumerate(found):
        for other in found[:i]:
            if one.shape != other.shape:
                return Check(name, False, math.inf, "records beyond the bounds change what is contributed when")
            largest = max(largest, epsilon_of_words(terms, one - other, claim.delta))
    passed = largest <= claim.epsilon * TOLERANCE
    detail = f"{len(wild)} records beyond the bounds: {refused} refused, ε = {largest:.4f} between the others"
    return Check(name, passed, 0.0 if passed else largest, detail)


def _ledger_check(make: MakeMachine, terms: SumTerms, claim: Guarantee, pair: Pair, rest: History, live: Live) -> Check:
    """Whether the client's book has every contribution, and no less ε than what left so far really tells.

    Also of a client that comes late: what it contributes first has its full weight.
    """
    name, most, true = "client, ledger", 0.0, 0.0
    for since, present in product({1, (terms.epochs + 1) // 2, terms.epochs}, PATTERNS):
        lives = [
            live(make(0, Silent()), with_first(rest, record, 1), ask=True, since=since, present=present)
            for record in pair
        ]
        (client, made), (_, others) = lives
        stream = client.stream
        booked = stream.spent if isinstance(stream, SumStream) else -1
        if booked != len(made):
            return Check(name, False, 0.0, f"{booked} contributions in the ledger, {len(made)} seen")
        assert isinstance(stream, SumStream)
        true = epsilon_of_words(terms, words_of(made) - words_of(others), claim.delta)
        if true > stream.spent_epsilon * TOLERANCE:
            return Check(name, False, true, f"ε = {true:.4f} has left, ε = {stream.spent_epsilon:.4f} is in the ledger")
        most = max(most, stream.spent_epsilon)
    return Check(name, True, 0.0, f"{booked} contributions in the ledger and seen; at most ε = {most:.4f} is booked")


def _independence_check(
    make: MakeMachine, other: MakeMachine, terms: SumTerms, rest: History, live: Live, runs: int
) -> Check:
    """Whether noise is drawn anew, with its scale: for each epoch, for each of two members, whatever the seed."""
    name = "members, independent noise"
    exact = [words_of(live(member(0, Silent()), rest)[1]) for member in (make, other)]
    z = np.array(
        [
            [
                (words_of(live(member(seed), rest)[1]) - bare).view(np.int64) / terms.stds
                for member, bare in zip((make, other), exact, strict=True)
            ]
            for seed in range(max(runs, 2))
        ]
    )  # runs × 2 × epochs × numbers
    for k, which in enumerate(("one member", "another member")):
        seen, least = _scale(z[:, k])
        if seen < least:
            return Check(name, False, 0.0, f"the noise of {which} has {seen:.2f} of its scale")
    pairs = {"two members": (z[:, 0], z[:, 1]), "two runs": (z[:-1], z[1:])}
    if z.shape[2] > 1:
        pairs["two epochs"] = z[:, :, :-1], z[:, :, 1:]
    for what, (a, b) in pairs.items():
        found = float((a * b).mean() / math.sqrt(float((a * a).mean() * (b * b).mean())))
        if abs(found) > INDEPENDENT / math.sqrt(a.size):
            return Check(name, False, 0.0, f"the noise of {what} has a correlation of {found:.2f}")
    return Check(name, True, 0.0, f"{z.size:,} numbers: no correlation between members, epochs or runs")


def sum_twin_check(make: Callable[[], ClientMachine], history: History) -> Check:
    """Whether two clients on a network with one seed and the same data draw different noise."""
    name = "network client, noise"
    first, second = (words_of(contribute(make(), history, ask=True)[1]) for _ in range(2))
    if not len(first):
        return skip(name, f"nothing was contributed in {len(history)} rounds")
    if any((a == b).all() for a, b in zip(first, second, strict=True)):
        return Check(name, False, math.inf, "two clients with one seed sent the same: whoever knows it knows the noise")
    return Check(name, True, 0.0, f"{len(first)} contributions, all different for two clients with one seed")
