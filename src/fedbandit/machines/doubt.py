"""How far a client believes in its group: groups that were found from noisy releases may be wrong.

A client has its own data as they are, G and b, and what it has mixed in of its group's, M and m (`mixing`). With
A = G + λI and θ̂ = A⁻¹b, the gap g = m − Mθ̂ has at most the second moment

    C = σ²M + ν²I/d + MA⁻¹(σ²G + λ²I)A⁻¹M        if the group's parameter is the client's, ‖θ‖ ≤ 1,

and then gᵀC⁻¹g is d on average, or less; the further the group's parameter is away, the larger it is. So the client
moves from its own estimate towards both together by the part c = min(1, (d − 3)/gᵀC⁻¹g) only, as James & Stein do: what
the group has is multiplied by

    w = c/(1 + (1 − c)μ),        μ the largest eigenvalue of A⁻¹M,

which moves it by that part in the direction in which the group knows most, and by less in the others. It happens at the
client when it adopts a download, with its own data, and never leaves it.

*What holds.* For Gaussian rewards, fixed contexts and estimates whose covariances are multiples of I, the mean squared
error is at most that of the client's own estimate, whatever the group's parameter (Green & Strawderman 1991; with any
number up to 2(d − 2) in place of d − 3, for d ≥ 3). That regret is then not above that of learning alone is no theorem:
it is measured (`python -m benchmarks doubt`, docs/clusters-fclub.md).

Reference: Green & Strawderman 1991, A James–Stein type estimator for combining unbiased and possibly biased estimators.

Deviations:
    D1. c is cut off at 1, where both are weighed by their variances, instead of where the own estimate is given up.
    D2. d − 3 for their d − 2, as where one direction is fitted (Efron & Morris 1973): in one, a constant feature,
        clients are mostly alike, so that they differ in d − 1. With d − 2 regret where all users differ was up to 1.09
        times that of learning alone at d = 4 and 1.02 at d = 10. Half of d − 2 is the same at d = 4 and 0.01 to 0.02
        better at d = 10, but costs more where groups are right (`m_theta`, ε = 10: 0.82 of learning alone with d − 2,
        0.83 with d − 3, 0.88 with the half).
    D3. With d ≤ 3 there is no such number; there c = min(1, 1/gᵀC⁻¹g). A client without data, whose ‖θ‖ ≤ 1, has
        gᵀC⁻¹g ≤ 1, and nothing to doubt with.
"""

from __future__ import annotations

import numpy as np

from fedbandit.sums import Slack, Sums


def doubted(own: Sums, mixed: Sums, slack: Slack, ridge: float, sigma: float) -> tuple[Sums, Slack]:
    """What was mixed, with as much of the group's as the client's own data let it believe.

    The number of observations stays that of `mixed`: an upload tells it, and must not tell what was found here.

    >>> from fedbandit.sums import EXACT
    >>> own, others = Sums(99 * np.eye(3), np.array([50, 0, 0]), 9), Sums(300 * np.eye(3), np.array([152, 1, 1]), 99)
    >>> wrong = others._replace(b=np.array([0, 150, 0]))
    >>> found = [doubted(own, mixed, EXACT, 1.0, sigma=0.5)[0] for mixed in (others, wrong)]
    >>> [(round(float(sums.V[0, 0])), sums.n) for sums in found]
    [(300, 99), (99, 99)]
    """
    d = own.b.size
    M, m, eye = mixed.V - own.V, mixed.b - own.b, np.eye(d)
    half = np.linalg.solve(own.V + ridge * eye, M)  # A⁻¹M
    gap = m - half.T @ own.b
    C = sigma**2 * M + slack.noise**2 / d * eye + half.T @ (sigma**2 * own.V + ridge**2 * eye) @ half
    against = float(gap @ np.linalg.pinv((C + C.T) / 2, hermitian=True) @ gap)
    allowed = max(d - 3, 1)
    if against <= allowed:
        return mixed, slack
    c = allowed / against
    w = c / (1 + (1 - c) * float(np.linalg.eigvals(half).real.max()))
    return Sums(own.V + w * M, own.b + w * m, mixed.n), slack._replace(noise=w * slack.noise)
