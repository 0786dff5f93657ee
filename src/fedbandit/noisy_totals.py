"""Noisy totals: what members are sent whose coordinator knows nobody's statistics exactly, or may not tell them."""

from __future__ import annotations

from fedbandit.sharing import Groups, Members, Noise, Share
from fedbandit.sums import EXACT, Sums


class NoisyTotals(Groups):
    """A member is sent the noisy sum of its group, its own part included, and what is known about the noise.

    What it makes of that is its own affair (`machines.mixing`): it takes its own part out and puts its exact data in
    place of it, or learns from nothing else.
    """

    as_it_is = False

    def share(self, member: int, members: Members, noise: Noise | None, ridge: float) -> Share:  # noqa: ARG002
        """The group's sum as it is, and the variance of its noise."""
        g = int(self.group_of[member])

        def share() -> Share:
            who = self._groups[g]
            sums = Sums(members.V[g].copy(), members.b[g].copy(), int(members.n[who].sum()))
            if noise is None:
                return Share(sums, EXACT, own=False)
            variance = members.variance
            if variance is None:  # everybody noises for itself
                variance = sum(members.noise_in(int(i), noise) for i in who)
            return Share(sums, noise.slack_of(variance), own=False)

        return members.once((g, noise is None), share)
