"""What ranking, rewards, deadlines and shadow mode mean; no HTTP.

Theory of operation
-------------------
An event is ranked once and rewarded once, however often it is asked: the answer is kept under its `event_id`. Its
features are kept too, so that rewards may come as late as the deadline allows. Order of writing:

| rank: client chooses → decision log → event, *waiting* → answer                           |
| reward: event, *learning* → client learns, once for each choice → log → event, *rewarded* |

A process that is killed before the event is written has not answered: the application asks again, and the last decision
of that id in the log counts. One that is killed while learning repeats it when it starts; the client knows that it has.
One that could not write all of it – the disk was full – repeats it when it is asked again, and every second.

The terms of a federation can change while an event waits: a reward beyond a bound that has been lowered, the default
reward too, is learnt by nobody any more, and the event is over. Everything else goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import numpy as np

from fedbandit.environments.decision_log import DecisionLog
from fedbandit.errors import FedbanditError, number, require, shown, unknown
from fedbandit.features import Features
from fedbandit.gateway.events import Event, Events
from fedbandit.gateway.report import report
from fedbandit.gateway.requests import MOST_ACTIONS, EventRefusal, an_id, an_object, own_choice, vectors
from fedbandit.gateway.watch import Watch
from fedbandit.network.client.choices import Ranking
from fedbandit.network.client.client import Client
from fedbandit.network.clock import now
from fedbandit.network.coordinator.pacing import QuietLog
from fedbandit.network.stores import StoreError
from fedbandit.parts import name_of
from fedbandit.rewards import refused
from fedbandit.types import Array

Mode = Literal["online", "shadow"]
log = logging.getLogger("fedbandit.gateway")


class Gateway:
    """A member of a federation that ranks and takes rewards for an application.

    `features` says how named values become vectors; it is the federation's own where that has one, and without either
    actions come with vectors of numbers. `explore` mixes in uniformly random actions. `deadline` (seconds) is how long
    rewards are awaited; then the `default_reward` is learnt, or nothing if there is none. Finished events are
    remembered for `remember` seconds: so long a repeated request gets its first answer. `decisions` logs what was
    decided, for `fedbandit replay`.
    """

    def __init__(
        self,
        client: Client,
        events: Events,
        *,
        features: Features | None = None,
        mode: Mode = "online",
        explore: float = 0.0,
        deadline: float | None = 3600.0,
        default_reward: float | None = None,
        remember: float = 86_400.0,
        decisions: DecisionLog | None = None,
        clock: Callable[[], float] = now,
    ) -> None:
        if mode not in get_args(Mode):
            raise unknown("mode", str(mode), get_args(Mode))
        require(0 <= number(explore, "explore", "a probability") <= 1, "explore", explore, "a probability")
        if deadline is not None:
            number(deadline, "deadline", "a number of seconds > 0", at_least=1e-3)
        number(remember, "remember", "a number of seconds ≥ 0", at_least=0.0)
        if default_reward is not None:
            number(default_reward, "default_reward", "a finite number")
            if client.alone:  # else it is the federation's bound, which may have changed: `trouble` says so
                self._within(client, default_reward, "default_reward")
        self.client, self.events, self.decisions, self.clock = client, events, decisions, clock
        self.features = _agreed(client, features)
        self.actions = client.agreement.world.actions
        """How many actions have a θ of their own; 0: one θ for all."""
        names = client.agreement.action_names
        self._models = {id: k for k, id in enumerate(names or map(str, range(self.actions)))}
        self._gives_models = self.actions > 0 and client.alone and not names and not events.numbered
        """Whether a new id takes a free model; in a federation all members mean the same by an id."""
        if self._gives_models:
            self._models = events.models
        self.mode, self.explore, self.deadline, self.default_reward = mode, float(explore), deadline, default_reward
        self.remember = remember
        self.counts: Counter[str] = Counter()
        """What was done since the start: ranked, rewarded, default, expired, repeated."""
        self.rewards = 0.0
        self._one_at_a_time = threading.RLock()
        self._closed = False
        self._quiet = QuietLog()
        self._watch: Watch | None = None
        self._finish(events.interrupted())

    # Ranking

    def rank(self, asked: Any) -> dict[str, Any]:
        """Choose one of the actions of an event; asked again, the same answer."""
        said = an_object(asked, ("event_id", "actions", "context", "choice", "propensity"))
        event_id = secrets.token_hex(8) if said.get("event_id") is None else an_id("event_id", said["event_id"])
        ids, F = self._actions(said)
        taken, p = own_choice(said, ids, shadow=self.mode == "shadow")
        digest = hashlib.sha256(json.dumps({**said, "event_id": event_id}, sort_keys=True).encode()).digest()
        with self._turn():
            before = self.events.find(event_id)
            if before is not None:
                if before.asked != digest:
                    raise EventRefusal("conflict", f"Event {event_id!r} was ranked before, with another request.")
                self.counts["repeated"] += 1
                return dict(json.loads(before.answer))
            return self._decide(event_id, digest, ids, F, taken, p)

    def _decide(
        self, event_id: str, digest: bytes, ids: list[str], F: Array, taken: int | None, p: float | None
    ) -> dict[str, Any]:
        models, new = self._models_of(ids)
        numbers = [models[id] for id in ids] if self.actions else None
        try:
            with np.errstate(over="ignore"):  # the norm of what is far too long
                ranking = self.client.rank(F, actions=numbers, explore=self.explore)
        except StoreError:
            raise
        except FedbanditError as error:
            raise EventRefusal("malformed", str(error)) from None
        arm, at = ranking.arm, self.clock()
        rows = F if numbers is None else np.column_stack([np.array(numbers, dtype=np.float64), F])
        chosen = int(arm) if taken is None else taken
        weight = None
        if taken is not None and p is not None and p < 1:
            weight = float(ranking.propensities[taken]) / p
        deadline = None if self.deadline is None else at + self.deadline
        answer = {
            "event_id": event_id,
            "chosen": ids[chosen],
            "propensity": float(ranking.propensities[chosen]) if taken is None else p,
            "ranking": _ranked(ids, ranking),
            "mode": self.mode,
            "deadline": deadline,
        }
        if new:
            self.events.name(new)
        if self.decisions is not None:
            known = taken is not None or ranking.policy.randomness != "unknown"
            with self._written():
                self.decisions.decided(
                    event_id, rows, chosen, (arm.propensity if taken is None else p or 1.0), known=known,
                    policy=name_of(type(ranking.policy)) if taken is None else "caller", at=at, actions=self.actions,
                )  # fmt: skip
        self.events.add(
            Event(event_id, at, deadline, digest, json.dumps(answer), arm.id, rows[chosen], chosen == int(arm), weight)
        )
        self.counts["ranked"] += 1
        return answer

    def _actions(self, said: Mapping[str, Any]) -> tuple[list[str], Array]:
        actions, context = said.get("actions"), said.get("context")
        if not isinstance(actions, list) or not 1 <= len(actions) <= MOST_ACTIONS:
            wanted = f"a list of 1 to {MOST_ACTIONS:,} actions"
            raise EventRefusal("malformed", f"actions is {shown(actions)}, but must be {wanted}.")
        ids, rows = [], []
        for action in actions:
            given = an_object(action, ("id", "features"), "an action")
            ids.append(an_id("an action's id", given.get("id")))
            rows.append(given.get("features"))
        if len(set(ids)) < len(ids):
            twice = next(id for id, count in Counter(ids).items() if count > 1)
            raise EventRefusal("malformed", f"Action {twice!r} occurs twice.")
        try:
            if self.features is not None:
                empty: dict[str, Any] = {}
                F = self.features.transform([empty if row is None else row for row in rows], context)
            else:
                F = vectors(ids, rows, context, self.client.given)
        except EventRefusal:
            raise
        except FedbanditError as error:
            raise EventRefusal("malformed", str(error)) from None
        return ids, F

    def _models_of(self, ids: list[str]) -> tuple[Mapping[str, int], dict[str, int]]:
        """Which model each action has, and which of them are new: they take free ones."""
        strange = [id for id in ids if id not in self._models] if self.actions else []
        if strange and not self._gives_models:
            named = self.client.agreement.action_names
            range_of = f"each has a model of its own, numbered 0 to {self.actions - 1}"
            raise EventRefusal(
                "malformed",
                str(unknown("action", strange[0], named[:50]))
                if named
                else f"There is no action {strange[0]!r}: {range_of}.",
            )
        taken, free = len(self._models), self.actions - len(self._models)
        if len(strange) > free:
            sentence = (
                f"There is no model for action {strange[free]!r}: all {self.actions} are taken by others (--actions)."
            )
            raise EventRefusal("malformed", sentence)
        new = {id: taken + k for k, id in enumerate(strange)}
        return {**self._models, **new} if new else self._models, new

    # Rewards

    def reward(self, asked: Any) -> dict[str, Any]:
        """Learn the reward of an event, once."""
        said = an_object(asked, ("event_id", "reward"))
        event_id = an_id("event_id", said.get("event_id"))
        try:
            y = self._within(self.client, said.get("reward"), "reward")
        except FedbanditError as error:
            raise EventRefusal("malformed", str(error)) from None
        with self._turn():
            event = self.events.find(event_id)
            if event is None:
                raise EventRefusal("unknown", f"There is no event {event_id!r}: it was not ranked here, or long ago.")
            if event.state == "waiting" and event.deadline is not None and event.deadline <= self.clock():
                self._finish([event])
                event = self.events.find(event_id) or event
            if event.state in ("default", "expired"):
                learnt = "nothing" if event.reward is None else f"its default reward {event.reward:g}"
                raise EventRefusal("expired", f"The deadline of event {event_id!r} is over, and {learnt} was learnt.")
            if event.state != "waiting" and event.reward != y:
                raise EventRefusal("conflict", f"Event {event_id!r} has the reward {event.reward:g}, not {y:g}.")
            repeated = event.state == "rewarded"
            if repeated:
                self.counts["repeated"] += 1
            else:
                if event.state == "waiting":
                    self.events.move(event_id, "learning", y, None)
                self._learn(event, y, "rewarded")
        return {"event_id": event_id, "reward": y, "repeated": repeated}

    def expire(self) -> int:
        """Give the default reward to events whose deadline is over, and forget old ones; how many were over."""
        with self._turn():
            self.events.try_again()
            self.events.forget(self.clock() - self.remember)
            overdue = self.events.overdue(self.clock())
            self._finish([*self.events.interrupted(), *overdue])
        return len(overdue)

    def _finish(self, events: list[Event]) -> None:
        """Learn what was interrupted, and of what is overdue the default reward. A fault with one keeps no other."""
        faults = []
        for event in events:
            try:
                if event.state == "learning":
                    self._learn(event, event.reward or 0.0, "rewarded")
                elif self.default_reward is not None:
                    self._learn(event, self.default_reward, "default")
                else:
                    self._let_go(event)
            except StoreError:  # which the others would have, too
                raise
            except EventRefusal as error:  # it is over all the same
                if self._quiet.says("refused"):
                    log.warning("a reward cannot be learnt", extra={"reason": str(error)})
            except Exception as error:
                faults.append(error)
        if faults:
            raise faults[0]

    def _learn(self, event: Event, y: float, state: Literal["rewarded", "default"]) -> None:
        """Learn a reward, once; under terms that do not take it any more the event is over."""
        action, x = (int(event.features[0]), event.features[1:]) if self.actions else (None, event.features)
        try:
            self.client.redeem(y, event.choice, x, action)
            self.client.write()  # also what a full disk has kept in memory: from now on nobody learns it again
        except StoreError:
            raise
        except FedbanditError as error:
            self._let_go(event)
            why = f"Event {event.event!r} is over, and nothing was learnt: {error}"
            raise EventRefusal("expired", why) from None
        if self.decisions is not None:
            with self._written():
                self.decisions.rewarded(event.event, y)
        self.events.move(event.event, state, y, self.clock())
        self.counts[state] += 1
        self.rewards += y

    def _let_go(self, event: Event) -> None:
        """Nothing is learnt from this event any more."""
        self.client.forget(event.choice)
        self.events.move(event.event, "expired", None, self.clock())
        self.counts["expired"] += 1

    @staticmethod
    def _within(client: Client, reward: Any, name: str) -> float:
        most = client.agreement.reward_bound
        if isinstance(reward, bool):
            reward = str(reward).lower()  # true is not 1
        y = number(reward, name, "a finite number")
        whose = "--reward-bound of this gateway" if client.alone else "reward_bound of this federation"
        require(abs(y) <= most, name, reward, f"within ±{most:g}, the {whose}")
        rule = client.agreement.build().privacy.reward_rule
        if not (rule.clip or rule.low <= y <= rule.high):
            raise refused(rule, y)
        return y

    # What is going on

    def report(self) -> dict[str, Any]:
        """What was earned, and in shadow mode what would have been; of events that are remembered."""
        return {"mode": self.mode, **report(self.events.finished(), shadow=self.mode == "shadow")}

    def status(self) -> dict[str, Any]:
        """Plain numbers."""
        counts = self.events.counts()
        return {"mode": self.mode, "waiting": counts.get("waiting", 0), "client": self.client.status()}

    def trouble(self) -> str:
        """What is wrong, and fails again and again; empty if all is well. Being offline is well."""
        try:
            self.events.check()
            if self.default_reward is not None:
                self._within(self.client, self.default_reward, "default_reward")
        except FedbanditError as error:
            return str(error)
        return "" if self._watch is None else self._watch.trouble

    def start(self, every: float = 1.0) -> None:
        """Look for deadlines in the background."""
        self._watch = Watch(self._expire_all, every)

    def _expire_all(self) -> None:
        while self.expire() >= 1000:
            pass

    def close(self) -> None:
        """Stop, and close client, events and log, each of them also if another cannot be."""
        if self._watch is not None:
            self._watch.end()
        with self._one_at_a_time, ExitStack() as stack:
            self._closed = True
            stack.callback(self._close_log)
            stack.callback(self.events.close)
            stack.callback(self.client.close)

    def _close_log(self) -> None:
        if self.decisions is not None:
            with self._written():
                self.decisions.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One request at a time, and none after the end."""
        with self._one_at_a_time:
            if self._closed:
                raise StoreError("The gateway has been closed.")
            yield

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Around what is written to the log of decisions."""
        try:
            yield
        except (OSError, FedbanditError) as error:
            raise StoreError(f"The log of decisions cannot be written: {error}") from None


def _agreed(client: Client, features: Features | None) -> Features | None:
    """The federation's encoding, or the gateway's own if the federation has none."""
    agreed = client.features
    if agreed is not None and features not in (None, agreed):
        raise FedbanditError("The federation has agreed on other features than these; leave them out, or use its own.")
    chosen = agreed or features
    if chosen is not None and chosen.dim != client.given:
        raise FedbanditError(f"The features have {chosen.dim} entries, but the federation's contexts {client.given}.")
    if chosen is not None and not chosen.action and not client.agreement.world.actions:
        raise FedbanditError(
            "The features have columns of the situation only, which cannot change a choice, since they are the same "
            "for every action: declare columns of actions, or one model for each action (--actions A)."
        )
    return chosen


def _ranked(ids: list[str], ranking: Ranking) -> list[dict[str, Any]]:
    """The choice first, then the others by the reward that is expected of them."""
    order = sorted(range(len(ids)), key=lambda k: (k != int(ranking.arm), -ranking.means[k]))
    p, means = ranking.propensities, ranking.means
    return [{"id": ids[k], "propensity": float(p[k]), "mean": float(means[k])} for k in order]
