"""Features become contexts within the declared norm, or are refused with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedbandit.errors import FedbanditError
from fedbandit.network.client.client import Client
from fedbandit.network.client.features import OutOfRange, Scaling
from fedbandit.network.invitation import Agreement
from fedbandit.world import World

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)


def test_features_with_intercept_and_scaling_have_the_declared_norm() -> None:
    plain = Scaling(3, 1.0, intercept=False, longest=None)
    np.testing.assert_array_equal(plain.transform(np.eye(3)), np.eye(3))
    scaled = Scaling(3, 1.0, intercept=False, longest=50.0).transform(50 * np.eye(3))
    np.testing.assert_allclose(scaled, np.eye(3))
    with_constant = Scaling(4, 2.0, intercept=True, longest=50.0).transform(50 * np.eye(3))
    np.testing.assert_allclose(np.linalg.norm(with_constant, axis=1), 2.0)
    assert (with_constant[:, -1] == with_constant[0, -1]).all()
    np.testing.assert_allclose(
        np.linalg.norm(Scaling(4, 1.0, intercept=True, longest=None).transform(np.eye(3) / 2**0.5), axis=1), 1.0
    )
    with pytest.raises(FedbanditError, match="longest"):
        Scaling(3, 1.0, intercept=False, longest=-1.0)


@given(arrays(np.float64, (3, 4), elements=ANY), st.sampled_from(["clip", "scale"]), st.booleans())
def test_whatever_comes_is_within_the_norm(F: Any, way: Any, intercept: bool) -> None:
    features = Scaling(4 + intercept, 2.0, intercept=intercept, longest=5.0, out_of_range=way)
    X = features.transform(F)
    assert (np.linalg.norm(X, axis=1) <= 2.0 * (1 + 1e-9)).all()
    with np.errstate(over="ignore", invalid="ignore"):
        fine = np.linalg.norm(F, axis=1) <= 5.0
    np.testing.assert_allclose(X[fine, :4], F[fine] * features.scale)
    assert features.changed == (~fine).sum()


def test_clipping_spares_the_other_features_and_scaling_the_direction() -> None:
    wild = [[0.3, 30.0, 0.0]]
    clipped = Scaling(3, 1.0, out_of_range="clip").transform(wild)
    np.testing.assert_allclose(clipped, [[0.3, 3**-0.5, 0.0]])
    scaled = Scaling(3, 1.0, out_of_range="scale").transform(wild)
    np.testing.assert_allclose(scaled, np.array(wild) / np.linalg.norm(wild))


class Sparse:
    """Like SciPy's."""

    def toarray(self) -> Any:
        return np.eye(2)


@pytest.mark.parametrize(
    ("arms", "sentence"),
    [
        ([["1", "2"]], "array of numbers"),
        ("ab", "array of numbers"),
        (None, "array of numbers"),
        ([[1.0, None]], "array of numbers"),
        ([[1.0], [1.0, 2.0]], "array of numbers"),
        (Sparse(), r"sparse Sparse.*\.toarray"),
        ([1.0, 2.0], "the shape of arms is"),
        ([[1j, 2.0]], "array of numbers"),
        (np.zeros((0, 2)), "the shape of arms is"),
    ],
)
def test_what_is_no_array_of_features_gets_one_sentence(arms: Any, sentence: str) -> None:
    ways: tuple[OutOfRange, ...] = ("refuse", "clip", "scale")
    for way in ways:
        with pytest.raises(FedbanditError, match=sentence):
            Scaling(2, 1.0, out_of_range=way).transform(arms)


@pytest.mark.parametrize("kind", ["csr_matrix", "csr_array", "coo_matrix", "lil_matrix"])
def test_sparse_arms_are_refused_by_a_client(kind: str) -> None:
    """By `select`, `rank` and `learn`, with one θ and with one for each action; nothing is learnt or lost."""
    sparse = getattr(pytest.importorskip("scipy.sparse"), kind)(np.eye(3) / 2)
    for actions in (0, 3):
        agreement = Agreement("linucb", {}, World(n_clients=1, dim=3, horizon=100, actions=actions))
        with Client(None, agreement=agreement) as client:
            uses = (client.select, client.rank, lambda arms: client.learn(arms, np.zeros(3)))
            for use in uses:
                with pytest.raises(
                    FedbanditError, match=rf"arms is a sparse {kind}, but must be a .* use \.toarray\(\)"
                ):
                    use(sparse)
            client.observe(0.5, client.select(sparse.toarray(), actions=[0, 1, 2] if actions else None))
            assert client.status()["observed"] == 1


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(FedbanditError, match="no way out_of_range 'cut'"):
        Scaling(2, 1.0, out_of_range="cut")  # type: ignore[arg-type]
