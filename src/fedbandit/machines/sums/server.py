"""The coordinator's half of one secure sum. No I/O, no clock.

A coordinator that follows the protocol runs this; against one that does not, clients check everything themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums import shamir
from fedbandit.machines.sums.client import ANNOUNCED, FRESH, check_keys, mask_purpose
from fedbandit.machines.sums.masks import KEY, SEED, SIGNATURE, commitment, mask_pair, own_mask, stream
from fedbandit.machines.sums.messages import RETURNING, Step, SumMessage, pack_entries, pack_members, unpack_entries
from fedbandit.machines.sums.terms import Acquaintances, MaskTerms


class OpenedSum(NamedTuple):
    """The sum modulo 2⁶⁴, how many interactions each client in it has, and who has taken excess noise back."""

    epoch: int
    words: NDArray[np.uint64]
    counts: Mapping[int, int]
    returned: tuple[int, ...] = ()


class SumServer:
    """The sum of one epoch over these members. `go_on` stops waiting for whoever has not answered.

    Keys that the others would refuse are refused here, so that one such client does not keep everybody from a sum.
    """

    def __init__(
        self, terms: MaskTerms, epoch: int, members: Iterable[int], acquaintances: Acquaintances | None = None
    ) -> None:
        self.terms, self.epoch = terms, epoch
        self.acquaintances = acquaintances or Acquaintances()
        self.awaited = set(members)
        """Whose answer is still to come in this step."""
        self.step = Step.KEYS
        self.opened: OpenedSum | None = None
        self.failed = ""
        """Why this sum will never be opened, if it will not."""
        self._answers: dict[Step, dict[int, bytes]] = {step: {} for step in Step if step % 2}
        self._returned: list[int] = []  # who takes noise back

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.opened is not None or bool(self.failed)

    def receive(self, message: SumMessage) -> list[SumMessage]:
        """Take a client's step; what to send when it was the last one that was awaited."""
        member, step = message.member, message.step
        if message.epoch != self.epoch:
            raise FedbanditError(f"Client {member} speaks of the sum of epoch {message.epoch}; this is {self.epoch}.")
        if step not in self._answers:
            raise FedbanditError(f"A coordinator does not take step {step.name} of a secure sum.")
        before = self._answers[step].get(member)
        if before is not None:
            if before != self._whole(message):
                raise FedbanditError(
                    f"Client {member} answered step {step.name} of epoch {self.epoch} twice, differently."
                )
            return []
        if self.over or step != self.step or member not in self.awaited:
            raise FedbanditError(f"Client {member} answers step {step.name} of epoch {self.epoch}, which is over.")
        self._check(message)
        self._answers[step][member] = self._whole(message)
        self._returned += [member] if message.format == RETURNING else []
        self.awaited.discard(member)
        return self.go_on() if not self.awaited else []

    def leave_out(self, member: int) -> list[SumMessage]:
        """Do not wait for a member whose keys were refused; what to send if it was the last one awaited."""
        if self.over or self.step != Step.KEYS or member not in self.awaited:
            return []
        self.awaited.discard(member)
        return self.go_on() if not self.awaited else []

    def _whole(self, message: SumMessage) -> bytes:
        """What a step says; in format 1 no noise is taken back."""
        without = message.step == Step.UNMASK and message.format != RETURNING
        return bytes(8 * self.terms.words) + message.body if without else message.body

    def _check(self, message: SumMessage) -> None:
        """Refuse what no client that follows the protocol sends; nothing has changed then."""
        match message.step:
            case Step.KEYS:
                sizes = (len(message.body), ANNOUNCED)
                if sizes[0] == ANNOUNCED:
                    self._check_keys(message.member, message.body)
            case Step.MASKED:
                sizes = (len(message.body), 8 + 8 * self.terms.words)
            case Step.AGREE:
                sizes = (len(message.body), SIGNATURE)
            case Step.SHARES:
                others = self._answers[Step.KEYS].keys() - {message.member}
                sizes = (len(unpack_entries(message.body).keys() ^ others), 0)
            case _:
                held = self._answers[Step.SHARES].keys()
                shares = unpack_entries(self._whole(message)[8 * self.terms.words :], shamir.SIZE)
                sizes = (len(shares.keys() ^ held), 0)
        if sizes[0] != sizes[1]:
            raise FedbanditError(f"Step {message.step.name} of client {message.member} does not fit this sum.")

    def _check_keys(self, member: int, announced: bytes) -> None:
        check_keys(self.terms, self.epoch, member, announced, self.acquaintances)
        for other, body in self._answers[Step.KEYS].items():
            if body[FRESH : FRESH + KEY] == announced[FRESH : FRESH + KEY]:
                raise FedbanditError(f"Client {member} has the signing key of client {other}, as a copy of its file.")

    def go_on(self) -> list[SumMessage]:
        """Wait for nobody any more in this step: go on with those who have answered, or give up."""
        if self.over:
            return []
        answers = self._answers[self.step]
        needed = self.terms.threshold if self.step in (Step.AGREE, Step.UNMASK) else self.terms.quorum
        if len(answers) < needed:
            self.failed = f"{len(answers)} clients answered step {self.step.name} of epoch {self.epoch}, {needed} must"
            return []
        if self.step == Step.UNMASK:
            self._open()
            return []
        said = {
            Step.KEYS: self._roster,
            Step.SHARES: self._delivery,
            Step.MASKED: self._survivors,
            Step.AGREE: self._agreed,
        }[self.step]()
        self.step, self.awaited = Step(self.step + 2), set(answers)
        return said

    def _roster(self) -> list[SumMessage]:
        body = pack_entries(self._answers[Step.KEYS])
        return [self._say(i, Step.ROSTER, body) for i in sorted(self._answers[Step.KEYS])]

    def _delivery(self) -> list[SumMessage]:
        sent = {u: unpack_entries(body) for u, body in self._answers[Step.SHARES].items()}
        return [
            self._say(v, Step.DELIVERY, pack_entries({u: sent[u][v] for u in sent if u != v})) for v in sorted(sent)
        ]

    def _survivors(self) -> list[SumMessage]:
        members = sorted(self._answers[Step.MASKED])
        return [self._say(i, Step.SURVIVORS, pack_members(members)) for i in members]

    def _agreed(self) -> list[SumMessage]:
        body = pack_entries(self._answers[Step.AGREE])
        return [self._say(i, Step.AGREED, body) for i in sorted(self._answers[Step.AGREE])]

    def _open(self) -> None:
        """Take all masks off."""
        masked, t = self._answers[Step.MASKED], self.terms.threshold
        size = 8 * self.terms.words
        told = {v: unpack_entries(body[size:]) for v, body in self._answers[Step.UNMASK].items()}
        who = sorted(told)[:t]
        weights = shamir.weights_at_zero([v + 1 for v in who])
        total = np.add.reduce([np.frombuffer(body, "<u8", offset=8) for body in masked.values()]).astype(np.uint64)
        for u in self._answers[Step.SHARES]:
            shares = {v + 1: int.from_bytes(told[v][u], "little") for v in who}
            secret = shamir.combine(shares, t, weights)
            if not self._fits(secret, u, own=u in masked):
                self.failed = f"The shares about client {u} in epoch {self.epoch} do not fit what it announced"
                return
            if u in masked:
                total = total - own_mask(secret, self.terms.words)
            else:
                self._take_off(total, secret, u, masked)
        counts = {u: int.from_bytes(body[:8], "little") for u, body in masked.items()}
        for body in self._answers[Step.UNMASK].values():
            total = total - np.frombuffer(body[:size], "<u8").astype(np.uint64)
        keys = self._answers[Step.KEYS]
        self.acquaintances.pin({u: keys[u][FRESH : FRESH + KEY] for u in masked})
        self.opened = OpenedSum(self.epoch, total, counts, tuple(sorted(self._returned)))

    def _fits(self, secret: int, u: int, *, own: bool) -> bool:
        """Whether a secret that was put together is the one that a client has announced."""
        if secret >= 2 ** (8 * SEED):
            return False
        announced = self._answers[Step.KEYS][u]
        if own:
            return commitment(secret) == announced[2 * KEY : 3 * KEY]
        return mask_pair(secret).public == announced[KEY : 2 * KEY]

    def _take_off(self, total: NDArray[np.uint64], secret: int, u: int, masked: Mapping[int, bytes]) -> None:
        """What the others' masks with a client that is not in the sum have left in it, taken off in place."""
        pair, keys = mask_pair(secret), self._answers[Step.KEYS]
        for v in masked:
            mask = stream(pair.agree(keys[v][KEY : 2 * KEY], mask_purpose(self.terms, self.epoch)), self.terms.words)
            total += mask if v > u else -mask  # v put −mask in if u < v, +mask if u > v

    def _say(self, member: int, step: Step, body: bytes) -> SumMessage:
        return SumMessage(member, self.epoch, step, body)
