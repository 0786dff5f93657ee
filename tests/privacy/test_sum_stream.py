"""Secure sums, the arithmetic: what totals hold, and an attack on them that planted faults do not survive."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.mechanism import noise_std
from fedbandit.privacy.noise import gram_neighbours
from fedbandit.privacy.secure import SecureSource
from fedbandit.privacy.sum_stream import OpenedTotal, SumStream, draw_integers
from fedbandit.privacy.sum_terms import SumTerms, grid_for
from fedbandit.sums import Sums, add, zero_sums

N, D, EPOCHS = 5, 2, 12
WORLD = fb.World(n_clients=N, dim=D, horizon=1000)


def terms_for(**keywords: Any) -> SumTerms:
    part = PrivateStatistics(1.0, 1e-5, trust="sums", **keywords).told(WORLD, EPOCHS)
    return part.sum_terms


def silent(terms: SumTerms) -> SumTerms:
    """The same terms without noise."""
    return replace(terms, mechanism=replace(terms.mechanism, scale=0.0))


def record(x: list[float], y: float) -> Sums:
    a = np.array(x)
    return Sums(np.outer(a, a), y * a, 1)


def source(k: int) -> np.random.Generator:
    return np.random.default_rng(k)


def run(terms: SumTerms, present: np.ndarray, opened: np.ndarray, kind: type[SumStream] = SumStream) -> list[Any]:
    """Clients with one record an epoch, present as said; sums are opened as said. Totals, and what they should hold."""
    streams = [kind(terms, source) for _ in range(N)]
    total, rng, results = OpenedTotal(terms), np.random.default_rng(0), list[Any]()
    pending, entered = [zero_sums(D)] * N, [zero_sums(D)] * N
    included = [0] * N
    for epoch in range(1, EPOCHS + 1):
        words = np.zeros(terms.words, dtype=np.uint64)
        for i, stream in enumerate(streams):
            x = rng.standard_normal(D)
            new = record((x / np.linalg.norm(x)).tolist(), float(rng.uniform(-1, 1)))
            pending[i] = add(pending[i], new)
            if present[epoch - 1, i]:
                words += stream.contribute(epoch, included[i], pending[i])
                entered[i], pending[i] = add(entered[i], pending[i]), zero_sums(D)
        who = [i for i in range(N) if present[epoch - 1, i]]
        if opened[epoch - 1] and len(who) >= terms.quorum:
            for i in who:
                included[i] = epoch
            noisy = total.opened(epoch, words, len(who), 0)
            parts = [stream.part_at(epoch, included[i]) for i, stream in enumerate(streams)]
            results.append((noisy, parts, list(entered), who))
    return results


everywhere = np.ones((EPOCHS, N), dtype=bool), np.ones(EPOCHS, dtype=bool)


@pytest.mark.parametrize("kind", ["blt", "tree", "independent"])
def test_without_noise_totals_are_exact(kind: str) -> None:
    terms = silent(terms_for(kind=kind))
    for noisy, _, entered, _ in run(terms, *everywhere):
        assert np.allclose(noisy.V, sum(sums.V for sums in entered), atol=N * EPOCHS * terms.grid)
        assert np.allclose(noisy.b, sum(sums.b for sums in entered), atol=N * EPOCHS * terms.grid)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.4]))
def test_clients_know_what_the_total_has_of_them_and_who_is_there_is_in_it(seed: int, absent: float) -> None:
    rng = np.random.default_rng(seed)
    terms = replace(silent(terms_for()), levels=(1,), planned=math.inf)
    present, opened = rng.random((EPOCHS, N)) > absent, rng.random(EPOCHS) > 0.2
    for noisy, parts, entered, who in run(terms, present, opened):
        assert np.allclose(noisy.V, sum(part.V for part in parts), atol=1e-6)
        assert np.allclose(noisy.b, sum(part.b for part in parts), atol=1e-6)
        for i in who:  # nothing is held back without a plan: all of it is there again
            assert np.allclose(parts[i].V, entered[i].V, atol=1e-6)


class Unbounded(SumStream):
    """Planted: nothing is held back."""

    def contribute(self, epoch: int, included: int, sums: Sums) -> Any:
        self.terms = replace(self.terms, planned=math.inf)
        return super().contribute(epoch, included, sums)


class OpenedOnly(SumStream):
    """Planted: the client believes the coordinator, and counts only sums of which it is told that they were opened."""

    def contribute(self, epoch: int, included: int, sums: Sums) -> Any:
        before = self.squares.copy()
        words = super().contribute(epoch, included, sums)
        self.squares = before
        return words


class Reused(SumStream):
    """Planted: one share of noise for all epochs."""

    def _noise(self, epoch: int) -> Any:  # noqa: ARG002
        return super()._noise(1)


def attack(terms: SumTerms, present: np.ndarray, told: np.ndarray, kind: type[SumStream] = SumStream) -> float:
    """The exact ε of all sums that a client was in, opened secretly, from the worst record in its first contribution.

    Both worlds have the same noise, so that contributions differ by the shift alone. Each sum has the noise of
    `honest` clients, independent in each epoch unless the same share comes twice, which gives the shift away exactly.
    """
    a, b = gram_neighbours(1.0, 1.0, terms.mechanism.reward_weight, D)
    kappa = terms.mechanism.reward_weight
    shifts, noises = [], []
    worlds = [kind(terms, source) for _ in range(2)]
    included = 0
    for epoch in range(1, EPOCHS + 1):
        if not present[epoch - 1]:
            continue
        words = []
        for stream, M in zip(worlds, (a, b), strict=True):
            first = stream.spent == 0
            sums = Sums(M[:D, :D], M[:D, D] / kappa, 1) if first else record([0.6, 0.8], 0.5)
            words.append(stream.contribute(epoch, included, sums).view(np.int64))
        shifts.append((words[1] - words[0]) / terms.stds / math.sqrt(terms.honest))
        noises.append(words[0])
        included = epoch if told[epoch - 1] else included
    if len({noise.tobytes() for noise in (kind(terms, source)._noise(k) for k in (1, 2))}) == 1:
        return math.inf  # two sums with the same noise: their difference has none
    return gaussian_epsilon(float(np.linalg.norm(shifts)), terms.mechanism.delta)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.0, 0.5, 1.0]))
def test_no_pattern_of_absences_and_lies_exceeds_the_claim(seed: int, absent: float, lies: float) -> None:
    rng = np.random.default_rng(seed)
    epsilon = attack(terms_for(), rng.random(EPOCHS) >= absent, rng.random(EPOCHS) >= lies)
    assert epsilon <= 1.0 + 1e-6


def test_the_plan_is_used_and_not_wasted() -> None:
    always = np.ones(EPOCHS, dtype=bool)
    assert 0.85 < attack(terms_for(), always, always) <= 1.0


@pytest.mark.parametrize("fault", [Unbounded, OpenedOnly, Reused])
def test_planted_faults_of_clients_fail_the_attack(fault: type[SumStream]) -> None:
    """A coordinator that always says "you were not included" has everything sent again and again."""
    assert attack(terms_for(), np.ones(EPOCHS, dtype=bool), np.zeros(EPOCHS, dtype=bool), fault) > 1.2


@pytest.mark.parametrize(
    ("factor", "fault"), [(1.0, False), (0.85, True), (math.sqrt(0.8), True)], ids=["right", "0.85", "all are honest"]
)
def test_the_noise_of_the_honest_is_enough(factor: float, fault: bool) -> None:
    """The sum of `honest` shares has the variance of the mechanism: χ² on 4,000 sums, by the secure source."""
    terms = terms_for()
    scale = factor * terms.stds[1] * terms.grid  # off the diagonal
    drawn = draw_integers(SecureSource(), scale / terms.grid, 4000 * terms.honest).reshape(4000, -1).sum(axis=1)
    squares = float((drawn.astype(np.float64) ** 2).sum()) * terms.grid**2 / terms.mechanism.scale**2
    assert (squares < 4000 - 5 * math.sqrt(8000)) == fault


def test_totals_say_how_noisy_they_are() -> None:
    terms = terms_for()
    total, members = OpenedTotal(terms), terms.honest
    noise = noise_std(terms.mechanism)
    for k in range(1, EPOCHS + 1):
        noisy = total.opened(k, np.zeros(terms.words, dtype=np.uint64), members + 1, 0)
        assert noisy.variance == pytest.approx(noise[k - 1] ** 2 * (members + 1) / terms.honest)
    total = OpenedTotal(terms)  # everybody takes back what is too much
    assert total.opened(1, np.zeros(terms.words, dtype=np.uint64), N, N).variance == pytest.approx(noise[0] ** 2)


@pytest.mark.parametrize("all_of_it", [False, True], ids=["right", "planted: all of it is taken back"])
@pytest.mark.parametrize("members", [4, 5, 6])
def test_what_is_left_after_taking_back_is_the_noise_of_one(members: int, all_of_it: bool) -> None:
    """χ² on what all but the colluding have left in 600 sums: never less than the mechanism's, and hardly more."""
    world = replace(WORLD, n_clients=6)
    terms = PrivateStatistics(1.0, 1e-5, trust="sums", honest=3, colluding=1).told(world, 1000).sum_terms
    assert terms.levels == (4, 5, 6)
    stream, left = SumStream(terms, source), list[Any]()
    for epoch in range(1, 601):
        words = stream.contribute(epoch, 0, zero_sums(D)).view(np.int64)
        back = stream.excess[: terms.taken_back(6 if all_of_it else members)]
        left.append((words - back.view(np.int64).sum(axis=0)) / terms.unit_stds * math.sqrt(members - 1))
    squares, n = float((np.array(left) ** 2).sum()), np.array(left).size
    assert (squares < n - 5 * math.sqrt(2 * n)) == (all_of_it and members < 6)
    assert squares < n + 5 * math.sqrt(2 * n)


def test_an_epoch_takes_one_contribution_and_one_sum() -> None:
    terms = terms_for()
    stream, total = SumStream(terms, source), OpenedTotal(terms)
    words = stream.contribute(2, 0, record([1.0, 0.0], 1.0))
    for epoch in (1, 2):
        with pytest.raises(FedbanditError, match="epoch"):
            stream.contribute(epoch, 0, record([1.0, 0.0], 1.0))
    total.opened(2, words, N, 0)
    with pytest.raises(FedbanditError, match="no sum is over twice"):
        total.opened(2, words, N, 0)
    with pytest.raises(FedbanditError, match=f"must be {terms.quorum} or more"):
        total.opened(3, words, terms.quorum - 1, 0)


def test_what_is_restored_goes_on_as_if_nothing_had_happened() -> None:
    terms = terms_for()
    first, second = SumStream(terms, source), SumStream(terms, source)
    first.contribute(1, 0, record([1.0, 0.0], 1.0))
    second.restore(first.state())
    with pytest.raises(FedbanditError):
        second.contribute(1, 0, record([1.0, 0.0], 1.0))
    words = [stream.contribute(3, 1, record([0.0, 1.0], 1.0)) for stream in (first, second)]
    assert (words[0] == words[1]).all()
    total, again = OpenedTotal(terms), OpenedTotal(terms)
    total.opened(1, words[0], N, 0)
    again.restore(total.state())
    assert again.variance == total.variance
    assert (again.opened(2, words[0], N, 0).V == total.opened(2, words[0], N, 0).V).all()


def test_what_may_enter_is_bounded_where_that_is_the_unit() -> None:
    stream = SumStream(terms_for(contribution=2), source)
    stream.contribute(1, 0, Sums(np.eye(2), np.ones(2), 2))
    assert not stream.may_release(1)
    with pytest.raises(FedbanditError, match="too many"):
        stream.contribute(2, 1, record([1.0, 0.0], 1.0))


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(FedbanditError, match="do not fit 64 bits"):
        grid_for(1e-9, 1e12)


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"trust": "friends"}, "'friends'"),
        ({"own": "mine"}, "'mine'"),
        ({"honest": 3}, "honest is 3, but must be None without trust='sums'"),
        ({"trust": "sums", "honest": 6}, "honest \\+ colluding is 6, but must be at most 5"),
        ({"trust": "sums", "honest": 1}, "honest is 1"),
        ({"trust": "sums", "calibration": "published"}, "trust is 'sums'"),
        ({"trust": "sums", "epsilon": [1.0] * 5}, "one number where one total is noised"),
        ({"trust": "coordinator", "contribution": 5}, "contribution is 5"),
        ({"trust": "sums", "kind": "endless"}, "kind is 'endless'"),
    ],
)
def test_bad_terms_are_refused(keywords: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedbanditError, match=sentence):
        PrivateStatistics(**keywords).told(WORLD, EPOCHS)


def test_too_few_clients_for_a_sum() -> None:
    with pytest.raises(FedbanditError, match="the number of clients is 2"):
        PrivateStatistics(trust="sums").told(fb.World(n_clients=2, dim=2, horizon=10), 3)


@pytest.mark.parametrize("late", [1, 7, EPOCHS])
@pytest.mark.parametrize("absent", [False, True])
def test_the_ledger_has_what_has_left(late: int, absent: bool) -> None:
    """A record that enters in the last of all sums has its whole weight in one contribution, and ε with it."""
    terms = terms_for()
    stream = SumStream(terms, source)
    assert stream.spent_epsilon == 0.0
    a, b = gram_neighbours(1.0, 1.0, terms.mechanism.reward_weight, D)
    shift, included = np.zeros(0), 0
    for epoch in range(late, EPOCHS + 1):
        stream.contribute(epoch, included, record([1.0, 0.0], 1.0) if epoch == late else zero_sums(D))
        included = included if absent else epoch
        shift = np.append(shift, stream.offered[late - 1])
        far = np.linalg.norm(shift) * np.linalg.norm(a - b) / (math.sqrt(2) * terms.mechanism.scale)
        true = gaussian_epsilon(float(far), terms.mechanism.delta)
        assert true * (1 - 1e-6) <= stream.spent_epsilon <= 1.0 + 1e-6
    assert stream.spent_epsilon == pytest.approx(1.0, rel=0.01 if late == EPOCHS or absent else 0.5)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=EPOCHS, max_size=EPOCHS),
    present=st.lists(st.booleans(), min_size=EPOCHS, max_size=EPOCHS),
)
def test_all_records_of_a_client_together_weigh_what_was_planned(sizes: list[int], present: list[bool]) -> None:
    """Where a contribution is the unit: replaced alike, whenever they enter and whoever is absent; crashes included."""
    portions = (4, 4, 4, 6, 9, 13)
    part = PrivateStatistics(1.0, 1e-5, trust="sums", contribution=40).told(WORLD, EPOCHS).planned(portions)
    terms = part.sum_terms
    assert terms.load < 40  # ‖C P‖ in place of the triangle inequality
    stream, included, shift, entered = SumStream(terms, source), 0, [], 0
    for epoch, (n, there) in enumerate(zip(sizes, present, strict=True), start=1):
        n = n if entered + n <= 40 else 0
        entered += n
        stream.contribute(epoch, included, Sums(n * np.eye(D), n * np.ones(D), n))
        included = epoch if there else included
        shift.append(abs(stream.offered) @ stream.entered)
        saved, stream = stream.state(), SumStream(terms, source)
        stream.restore(saved)
    far = np.linalg.norm(shift) * terms.mechanism.sensitivity / terms.load / (math.sqrt(2) * terms.mechanism.scale)
    true = gaussian_epsilon(float(far), 1e-5) if far else 0.0
    assert true * (1 - 1e-6) <= stream.spent_epsilon <= 1.0 + 1e-6


def test_whole_contributions_are_whole_where_everybody_answers() -> None:
    """Nothing is held back if records enter as planned."""
    portions = (4, 4, 4, 6, 9, 13)
    terms = PrivateStatistics(1.0, 1e-5, trust="sums", contribution=40).told(WORLD, EPOCHS).planned(portions).sum_terms
    stream = SumStream(terms, source)
    for epoch in range(1, EPOCHS + 1):
        n = portions[epoch - 1] if epoch <= len(portions) else 0
        stream.contribute(epoch, epoch - 1, Sums(n * np.eye(D), n * np.ones(D), n))
    stream.advance(EPOCHS, EPOCHS)
    np.testing.assert_allclose(stream.weight[: len(portions)], 1.0, rtol=1e-6)
    assert stream.spent_epsilon == pytest.approx(1.0, rel=1e-6)
