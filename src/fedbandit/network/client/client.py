"""The client that a service embeds: it chooses at once, keeps everything on disk, and talks in the background.

```python
with fb.Client("https://host:8765", federation="shops", token=token, state="client.db") as client:
    arm = client.select(arms)          # an index of `arms`; never waits for the network
    client.observe(reward, arm)        # or arm.id: later, out of order, after a restart
```

An application with several workers has a client, a state and a name for each of them. A reward that may come to another
worker than the one that chose travels as a token: `token = client.export(arm)` there, `client.observe(reward, token)`
here, with the same `choice_key` in all of them.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError
from fedbandit.features import Features
from fedbandit.machines.client import ClientMachine
from fedbandit.network.client.choices import Arm, Exported, Ranking, id_of, is_token, number_of, sign, verify
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.features import OutOfRange, Scaling, as_agreed, rows_of
from fedbandit.network.client.journal import has_nothing, stored_agreement
from fedbandit.network.client.member import Member
from fedbandit.network.client.options import decision_log, lasting_name, noise_source, signing_key
from fedbandit.network.clock import ClientClock
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import StoreError, open_store
from fedbandit.parts import name_of
from fedbandit.privacy.guarantee import Guarantee, Require
from fedbandit.types import Array

if TYPE_CHECKING:
    from fedbandit.environments.decision_log import DecisionLog
    from fedbandit.network.client.sums import SumKeys, SumTalk


class Client(Member):
    """A member of a federation, on this device.

    `select` and `observe` work whether or not the coordinator can be reached; only the very first start needs it, to
    learn the agreement. `url` may be several, of coordinators that share a store: the client goes where the federation
    is. With `state`, a file, everything survives a crash; without it, everything is in memory.

    `intercept` adds a constant feature: pass one feature fewer than the federation's dimension. `longest` is the norm
    of the longest feature vector there can be; features are scaled by a constant so that it gets the declared norm L.
    `report=True` tells the coordinator's live page how many rewards were seen and their sum; in a private federation it
    is refused. There, noise is drawn by OpenDP (extra `fedbandit[secure]`) from the system's randomness.

    Where the federation claims privacy, `require` is the weakest claim that is accepted, at every start: by default a
    proven one with ε ≤ 10, δ ≤ 1/n for the n interactions of a client, and secure noise (`fb.Require`). In secure sums
    a client with a `certificate` (a file of `fedbandit keys certify`) takes part only with others that have one, by the
    authority `ca`; without it the keys of others are those of first contact (`acquaintances` shows them).

    `out_of_range` says what becomes of a feature vector that is longer than declared: `"refuse"`, `"clip"` or `"scale"`
    (`Scaling`). `choice_key`, a secret of 16 bytes or more that all workers have, signs tokens (`export`).

    `decisions`, a folder, keeps a log of every choice with its contexts, propensity and reward on this device, for
    `fedbandit replay`; it is never sent. It holds raw data, also in a private federation: what the guarantee says of
    what leaves the client it does not say of this folder. On a full disk its lines are left out, and `problem` says so.

    With an `agreement` in place of a URL the client learns alone: a system whose clients exchange nothing (`linucb`).

    Methods may be called from any thread. A client belongs to the process that opened it: after a fork, and after
    `close`, it refuses to choose and to learn.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None,
        *,
        federation: str = "",
        agreement: Agreement | None = None,
        token: str | None = None,
        state: str | os.PathLike[str] | None = None,
        name: str | None = None,
        ca: str | None = None,
        certificate: str | os.PathLike[str] | None = None,
        intercept: bool = False,
        longest: float | None = None,
        out_of_range: OutOfRange = "refuse",
        choice_key: str | bytes | None = None,
        decisions: str | os.PathLike[str] | None = None,
        report: bool = False,
        require: Require | None = None,
        timeout: float = 10.0,
    ) -> None:
        from fedbandit.network.client.address import Address, require_one  # here: asyncio and TLS take long

        self._key = signing_key(choice_key)
        if token is None and name is None:
            name = lasting_name(state)
        self._address = None if url is None else Address(url, federation, token, name, ca)
        require_one(url, agreement)
        self._store = open_store(state)
        self._decisions: DecisionLog | None = None
        self._unlogged: str | None = None
        self._sums: SumTalk | None = None
        invited = False
        try:
            if agreement is not None:
                agreed, member = agreement, 0
            elif (stored := stored_agreement(self._store)) is not None:
                agreed, member = stored
            else:
                assert self._address is not None
                agreed, member = self._address.invitation(timeout)
                invited = True
            require_clients(agreed)
            intercept, longest = as_agreed(agreed.schema, intercept, longest)
            world = agreed.world
            self._scaling = Scaling(
                world.dim, world.bound, intercept=intercept, longest=longest, out_of_range=out_of_range
            )
            source = noise_source(agreed.build(), report=report, lasts=state is not None)
            entropy = lambda: secrets.randbits(63)  # noqa: E731
            # Whatever may be refused is looked at first: a file is of a client that takes part.
            if require is not None or agreed.build().guarantee.private:
                claim = ClientMachine(member, agreed.build(), world, agreed.seed, source=source).guarantee
                (require or Require()).check(claim, world)
            keys = sum_keys(agreed, state, certificate, ca, federation)
            self._decisions = decision_log(decisions, name if name is not None else f"member-{member}")
            self._clock = ClientClock(agreed.period or 0.0)
            self._durable = DurableClient(self._store, agreed, member, entropy, source, self._clock.now, federation)
            self.reward = 0.0
            self.facts: dict[str, float] = {}
            """For demonstrations, where the best arm is known: `regret` and `alone` are reported too."""
            super().__init__(self._store, self._durable, self._address)
            if agreed.period is not None and self._address is not None:
                self._connection.clock = self._clock
                if self._durable.machine.now > 0:
                    self._clock.go_on_from(self._durable.machine.now * agreed.period)
                elif self._address.said_time is not None:
                    self._clock.hear(self._address.said_time)
            if report:
                self._connection.report = self._report
            if keys is not None and self._address is not None:
                from fedbandit.network.client.sums import SumTalk  # here: it needs the extra `secure`

                self._sums = SumTalk(self._durable, self._locked, self._address, keys)
            self.start()
        except BaseException:
            unbound = invited and (state is None or has_nothing(self._store))
            for opened in (self._sums, self._decisions, self._store):
                if opened is not None:
                    opened.close()
            if unbound and self._address is not None:  # else the file is a member's, which comes back with it
                self._address.decline(timeout)
            raise

    @property
    def features(self) -> Features | None:
        """How named values become features, if the federation has agreed on that."""
        schema = self.agreement.schema
        return None if schema is None else schema.encoding

    @property
    def alone(self) -> bool:
        """Whether it learns by itself, without a coordinator."""
        return self._address is None

    @property
    def given(self) -> int:
        """How many features an arm has: one fewer than the dimension, with an intercept."""
        return self._scaling.given

    # Choosing and learning

    def select(self, arms: ArrayLike, *, actions: ArrayLike | None = None, explore: float = 0.0) -> Arm:
        """Choose one of the arms, given by their features as a (K, d) array, K as you like.

        Where each action has a θ of its own, `actions` are the numbers of the arms' actions, or their names where the
        federation has named them. Features (d,) are those of a situation, the same for all of them; without `actions`,
        for all there are: then the arm is the action.

        With probability `explore` any arm is chosen instead: a policy without chance, such as UCB, then leaves a log by
        which others can be evaluated.
        """
        self._check_open()
        X, policy = self._rows(arms, actions), self._durable.machine.chooser
        choice = self._durable.select(X, explore)
        arm = Arm(choice.arm, id_of(choice.number), choice.propensity)
        if self._decisions is not None:
            known, actions = policy.randomness != "unknown", self._durable.machine.actions
            said: dict[str, Any] = {"known": known, "policy": name_of(type(policy)), "actions": actions}
            self._log(lambda log: log.decided(arm.id, X, int(arm), arm.propensity, at=time.time(), **said))
        return arm

    def rank(self, arms: ArrayLike, *, actions: ArrayLike | None = None, explore: float = 0.0) -> Ranking:
        """Choose as `select` does, and say of every arm how probable it was and which reward is expected."""
        self._check_open()
        choice, propensities, means = self._durable.rank(self._rows(arms, actions), explore)
        arm = Arm(choice.arm, id_of(choice.number), choice.propensity)
        return Ranking(arm, propensities, means, self._durable.machine.chooser)

    def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice, whenever it comes: of an arm, of its id, or of a token.

        It is on disk when this returns, unless the disk is full: then it is kept in memory, `problem` says so, and
        everything is written as soon as there is room again.
        """
        self._check_open()
        if is_token(choice):
            dim = self._durable.machine.context_dim
            number, x = verify(self._signing_key(), self._meaning, str(choice), dim)
            self._take(number, reward, lambda: self._durable.redeem(number, x, reward))
        else:
            number = number_of(choice)
            self._take(number, reward, lambda: self._durable.observe(number, reward))

    def redeem(self, reward: float, choice: Arm | str, features: ArrayLike, action: int | None = None) -> bool:
        """Learn the reward of the arm with these features in place of the one that was chosen, or after a long time.

        A service that keeps the features of its choices may wait for rewards for as long as it likes; one that
        overrules a choice says which arm was taken. Each is learnt once: False if it was before (of the last 50,000).
        """
        self._check_open()
        row = np.atleast_2d(np.asarray(features))
        number, x = number_of(choice), self._rows(row, None if action is None else [action])[0]
        if number in self._durable.redeemed:
            return False
        self._take(number, reward, lambda: self._durable.redeem(number, x, reward))
        return True

    def _take(self, number: int, reward: float, learn: Callable[[], None]) -> None:
        with self._locked():
            before = self._durable.machine.sequence
            try:
                learn()
            except StoreError as error:
                self._trouble(error)
            self.reward += float(reward)
            self._log(lambda log: log.rewarded(id_of(number), float(reward)))
            to_send = self._durable.machine.sequence > before or self._durable.asking is not None
        if to_send:
            self.wake()

    def _log(self, write: Callable[[DecisionLog], None]) -> None:
        """Write to the log of decisions, if there is one; a line that cannot be written is left out."""
        if self._decisions is None:
            return
        try:
            write(self._decisions)
            self._unlogged = None
        except FedbanditError as error:
            self._unlogged = f"The log of decisions lacks some: {error}"

    def export(self, choice: Arm | str) -> str:
        """Hand a choice over as a token, with its context: any client with the same `choice_key` takes its reward.

        From now on the reward is learnt where the token is observed, and nowhere else. A client takes a token once; it
        remembers the last 50,000. Two clients that are given the same token both learn it.
        """
        self._check_open()
        key = self._signing_key()
        if self._durable.machine.guarantee.basis != "none":
            raise FedbanditError("A token would carry a context that this federation keeps private.")
        number = number_of(choice)
        return sign(key, self._meaning, Exported(number, self._durable.export(number)))

    def forget(self, choice: Arm | str) -> None:
        """The reward of this choice will never come."""
        self._check_open()
        self._durable.forget(number_of(choice))

    def learn(self, contexts: ArrayLike, rewards: ArrayLike, *, actions: ArrayLike | None = None) -> None:
        """A warm start from past logs: features (n, d) of what was chosen, its actions, rewards (n,). Do it once.

        On a full disk it is kept in memory until there is room, as in `observe`.
        """
        self._check_open()
        X, y = self._rows(contexts, actions), np.asarray(rewards, dtype=np.float64)
        with self._locked():
            try:
                self._durable.learn(X, y)
            except StoreError as error:
                self._trouble(error)
        self.wake()

    # What is going on

    @property
    def problem(self) -> str | None:
        """A sentence if a person has to do something, None if all is well (being offline is well)."""
        return super().problem or (None if self._sums is None else self._sums.problem) or self._unlogged

    @property
    def acquaintances(self) -> dict[int, str]:
        """Fingerprints of the keys by which this client knows the others in secure sums, to be compared by people."""
        return {} if self._sums is None else self._sums.keys.acquaintances.fingerprints()

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this client, and how its noise is drawn."""
        return self._durable.machine.guarantee

    def status(self) -> dict[str, Any]:
        """Plain numbers: observed, pending, in the outbox, uploads made, and the version of the last download."""
        with self._durable.lock:
            machine = self._durable.machine
            return {
                "member": machine.member,
                "observed": machine.observed,
                "pending": machine.pending,
                "outbox": sum(upload.sums.n for upload in machine.outbox.values()),
                "uploads": machine.sequence,
                "version": machine.version,
                "out_of_range": self._scaling.changed,
                "connected": self.connected,
                "problem": self.problem,
            }

    @property
    def theta(self) -> Array:
        """The estimate θ̂ now; of a model in two parts, the shared part's."""
        with self._durable.lock:
            return self._durable.machine.model.theta.copy()

    def erase(self, timeout: float = 60.0) -> dict[str, Any]:
        """Have everything that this client has uploaded erased at the coordinator, and its own state; a receipt.

        The client is closed then; with a new state it begins anew. Docs say what this does not undo.
        """
        self._check_open()
        if self._address is None:
            raise FedbanditError("This client is in no federation: nothing was uploaded that could be erased.")
        receipt = self._address.erase(timeout)
        self.close()
        self._store.remove()
        return receipt

    def close(self) -> None:
        """Stop talking and close the state; what was not sent is sent when the state is opened again."""
        if self._sums is not None and not self._closed:
            self._sums.close()
        try:
            super().close()
        finally:
            if self._decisions is not None and os.getpid() == self._process:
                self._decisions.close()

    # How

    def _rows(self, arms: ArrayLike, actions: ArrayLike | None) -> Array:
        return rows_of(self._scaling, arms, actions, self._durable.machine.actions, self.agreement.action_names)

    @property
    def _meaning(self) -> bytes:
        return self.agreement.meaning(self._durable.federation or "")

    def _signing_key(self) -> bytes:
        if self._key is None:
            raise FedbanditError("A token needs choice_key=…, a secret that all workers have.")
        return self._key

    def _report(self) -> dict[str, float]:
        return {"observed": float(self._durable.machine.observed), "reward": self.reward, **self.facts}


def require_clients(agreement: Agreement) -> None:
    """Refuse a federation of local servers."""
    if agreement.servers is not None:
        raise FedbanditError("The members of this federation are local servers: use fb.LocalServer.")


def sum_keys(
    agreement: Agreement,
    state: str | os.PathLike[str] | None,
    certificate: str | os.PathLike[str] | None,
    ca: str | None,
    federation: str,
) -> SumKeys | None:
    """The keys of a client for secure sums, if there are any; a certificate that others refuse is refused."""
    privacy = agreement.build().privacy
    if not (privacy.pooled and privacy.site == "client"):
        if certificate is not None:
            raise FedbanditError("There is a certificate, but this federation has no secure sums to show it in.")
        return None
    from fedbandit.network.client.sums import SumKeys  # here: it needs the extra `secure`

    keys = SumKeys(state)
    if certificate is not None:
        keys.certify(certificate, ca, federation)
    return keys
