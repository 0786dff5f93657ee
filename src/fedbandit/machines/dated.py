"""A model that forgets as rounds go by; what is forgotten is found out when somebody looks."""

from __future__ import annotations

from fedbandit.forgetting import Fading, Forgetting
from fedbandit.model import RidgeModel
from fedbandit.sharing import LocalModel
from fedbandit.structures.action_model import ActionModel
from fedbandit.structures.window_model import WindowModel


class Dated:
    """A model, and the round in whose units it is (`forgetting`). Where nothing is forgotten, rounds do nothing."""

    def __init__(self, model: LocalModel, forgetting: Forgetting) -> None:
        self._model = model
        self.forgetting = forgetting
        self.now = self._looked = 0  # the round, and that in whose units the model is

    def at(self, round: int) -> None:
        """It is this round now, or later; there is no way back."""
        self.now = max(self.now, round)

    def put_back(self, round: int) -> None:
        """It was never later than this round, which a wrong clock had said: what is left of the model is of it."""
        self.fade()
        if isinstance(self._model, WindowModel):
            self._model.put_back(round)
        assert isinstance(self._model, RidgeModel | ActionModel)
        self._model.version = 0  # whatever the coordinator has is news
        self.now = self._looked = round

    @property
    def date(self) -> int | None:
        """The round that messages with statistics carry, where models forget."""
        return self.now if self.forgetting.dated else None

    def fade(self) -> None:
        """Let the model forget what it has to by now."""
        if not self.forgetting.dated or self._looked >= self.now:
            return
        if isinstance(self._model, WindowModel):
            self._model.slide(self.now)
        else:
            assert isinstance(self._model, RidgeModel | ActionModel)
            assert isinstance(self.forgetting, Fading)
            self._model.forget(self.forgetting.factor(self._looked, self.now))
        self._looked = self.now

    def go_on_at(self, round: int) -> None:
        """After a restart: the model is in units of this round."""
        self.now = self._looked = round
