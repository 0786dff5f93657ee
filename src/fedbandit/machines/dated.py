"""A model that forgets as rounds go by; what has faded is found out when somebody looks."""

from __future__ import annotations

from fedbandit.model import RidgeModel
from fedbandit.sharing import LocalModel
from fedbandit.structures.action_model import ActionModel


class Dated:
    """A model, and the round in whose units it is (`forgetting`). Where nothing is forgotten, rounds do nothing."""

    def __init__(self, model: LocalModel, discount: float) -> None:
        self._model = model
        self.discount = discount
        """γ: what an observation counts a round later."""
        self.now = self._looked = 0  # the round, and that in whose units the model is

    def at(self, round: int) -> None:
        """It is this round now, or later; there is no way back."""
        self.now = max(self.now, round)

    @property
    def date(self) -> int | None:
        """The round that messages with statistics carry, where models forget."""
        return self.now if self.discount < 1 else None

    def fade(self) -> None:
        """Let the model forget what it has to by now."""
        if self.discount < 1 and self._looked < self.now:
            assert isinstance(self._model, RidgeModel | ActionModel)
            self._model.forget(self.discount ** (self.now - self._looked))
            self._looked = self.now

    def go_on_at(self, round: int) -> None:
        """After a restart: the model is in units of this round."""
        self.now = self._looked = round
