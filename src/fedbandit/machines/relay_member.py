"""A relay as the coordinator above sees it: one member, whose observations are its clients' releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, require
from fedbandit.forgetting import Forgetting
from fedbandit.machines.on_top import OnTop, stored_upload
from fedbandit.machines.relay import Relaying
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Threshold, Upload, encode
from fedbandit.protocols.protocol import known_by
from fedbandit.sharing import Others
from fedbandit.solving import LogDet
from fedbandit.state import State, StateError, Varying, named, require_like
from fedbandit.sums import Relayed, Sums, add, in_blocks, without
from fedbandit.system import System


class Held:
    """What a relay has, as a trigger looks at it: what is below and the others, and what of it was not forwarded."""

    def __init__(self, machine: Relaying, ridge: float) -> None:
        self.n_own, self.n_pending = machine.below.n, machine.pending.n
        self.n = machine.below.n + machine.others.n
        self._machine, self._ridge = machine, ridge

    @property
    def logdet(self) -> float:
        """log det V(λ)/det λI."""
        return LogDet(self._ridge)(self._machine.below.V + self._machine.others.V)

    @property
    def shared_logdet(self) -> float:
        """log det (V − ΔV)(λ)/det λI."""
        machine = self._machine
        return LogDet(self._ridge)(machine.below.V - machine.pending.V + machine.others.V)


class FromAbove(NamedTuple):
    """What a download says about the others."""

    version: int
    others: Sums
    variance: float


class RelayMember:
    """Says what to send up, given what is below (`relaying`, the machine as it is now).

    at_once: whether whatever comes from below goes up at once; otherwise the protocol's trigger decides. One upload is
    under way at a time.
    """

    def __init__(self, member: int, system: System, relaying: Callable[[], Relaying], *, at_once: bool = False) -> None:
        self.member, self.system, self.relaying, self.at_once = member, system, relaying, at_once
        self.protocol, self.trigger = system.protocol, system.protocol.trigger()
        self.form = relaying().form
        thresholds = self.trigger.thresholds
        self.threshold = float(thresholds[member if thresholds.size > 1 else 0])
        self.factors = False
        """Whether the coordinator takes factors, which sums over many clients are not."""
        self.sequence = self.epoch = 0
        """The last upload, and the last call that was answered."""
        self.outbox: dict[int, Upload] = {}
        self.on_top = OnTop(self.form, Forgetting())
        self.sent = relaying().zero()
        """All that was ever forwarded."""
        self.releases = 0
        """Uploads that carried something."""
        self.told: dict[int, float] = {}
        """Upload → the variance of the noise in all up to it; those that a download may still be compared with."""

    @property
    def version(self) -> int:
        """Of the download that the others stem from."""
        return self.relaying().seen

    def join(self) -> list[Message]:
        """The message to begin with, and with which to ask for what may have been missed."""
        return [Join(self.member, self.version, self.epoch)]

    def known(self) -> float:
        """How much the relay has, as uploads say it."""
        return known_by(Held(self.relaying(), self.system.ridge), self.protocol, self.system.counts_only)

    def speak(self, *, now: bool = False) -> list[Message]:
        """What to send up; with `now`, whatever there is."""
        below = self.relaying()
        if self.protocol.says == "request":
            if below.answered_to > self.epoch:
                self.epoch = below.answered_to
                return [self.upload()]
            asked, below.asked = below.asked, False
            return [Request(self.member)] if asked else []
        if below.pending.n == 0 or self.outbox:
            return []
        fires = now or self.at_once or self.trigger.fires(Held(below, self.system.ridge), self.threshold)
        return [self.upload()] if fires else []

    def upload(self) -> Upload:
        """Number what is pending, to be sent until it is acknowledged."""
        below = self.relaying()
        sums: Sums = in_blocks(below.pending) if self.form.actions else below.pending
        relayed = None if below.noise is None else Relayed(below.noise_below(), below.releases)
        said = self.member, self.sequence + 1, sums, self.known(), self.form.actions, None, relayed
        upload = Upload(*said)
        self.repeat(upload, self.epoch)
        return upload

    def repeat(self, upload: Upload, epoch: int) -> None:
        """Also after a crash: this upload was made, in answer to a call if there was one."""
        following = self.sequence + 1
        require(upload.sequence == following, "the number of an upload", upload.sequence, f"{following}")
        self.sequence, self.epoch = following, epoch
        self.sent = add(self.sent, upload.sums)
        self.releases += upload.sums.n > 0
        self.outbox[upload.sequence] = upload
        self.on_top.uploads[upload.sequence] = upload
        if upload.relayed is not None:
            self.told[upload.sequence] = upload.relayed.variance

    def receive(self, message: Message) -> list[Message]:
        """Take a message from above; calls and downloads are for the coordinator below."""
        match message:
            case Receipt(_, sequence):
                self._acknowledged(sequence)
            case Download():
                self._acknowledged(message.acknowledged)
            case Threshold(_, threshold):
                self.threshold = threshold
            case Collect():
                pass
            case _:
                raise FedbanditError(f"A relay does not take a {type(message).__name__}.")
        return []

    def others_in(self, message: Download) -> FromAbove | None:
        """What a download says about the others: all there is without what went up from here; None if it is old."""
        if not self.form.fits(message.sums):
            raise FedbanditError(f"The coordinator sent statistics {self.form.said(message.sums)}.")
        ack, below = message.acknowledged, self.relaying()
        if ack < self.on_top.settled_to or ack > self.sequence or message.version <= below.seen:
            return None  # overtaken: what went up from here cannot be told apart any more
        others, noise, apart = message.sums, below.noise, isinstance(below.sharing, Others)
        if not apart:
            later = below.zero()
            for number, upload in self.on_top.uploads.items():
                later = add(later, upload.sums) if number > ack else later
            own = without(self.sent, later)
            others = without(others, own) if others.n > own.n else below.zero()
        variance = 0.0
        if noise is not None:  # bounds are in proportion to the standard deviation
            variance = (message.slack.spectrum / noise.slack_of(1.0).spectrum) ** 2
            variance = variance if apart else max(variance - self.told.get(ack, 0.0), 0.0)
        return FromAbove(message.version, others, variance if others.n > 0 else 0.0)

    def contained(self, acknowledged: int) -> None:
        """A download was taken that has uploads up to this number."""
        self.on_top.contained(acknowledged)
        self.told = {number: variance for number, variance in self.told.items() if number >= acknowledged}

    def _acknowledged(self, sequence: int) -> None:
        self.outbox = {number: upload for number, upload in self.outbox.items() if number > sequence}
        self.on_top.settle(len(self.outbox))

    # How it is kept

    def capture(self) -> Callable[[], State]:
        """The state as it is now."""
        header: dict[str, Any] = {
            "member": self.member,
            "dim": self.form.dim,
            "sequence": self.sequence,
            "epoch": self.epoch,
            "unacknowledged": list(self.outbox),
            "not_downloaded": list(self.on_top.uploads),
            "settled": self.on_top.header(),
            "sent": [self.sent.n, self.releases],
            "told": [[number, variance] for number, variance in self.told.items()],
            "threshold": self.threshold,
        }
        arrays: dict[str, NDArray[Any]] = {"sent.V": self.sent.V, "sent.b": self.sent.b, **self.on_top.arrays()}
        uploads = list(self.on_top.uploads.items())

        def finish() -> State:
            kept = {f"upload.{n}": np.frombuffer(encode(upload), dtype=np.uint8) for n, upload in uploads}
            return State(header, {**arrays, **kept})

        return finish

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        blocks: Varying = {f"settled.{name}": rule for name, rule in self.form.varying("s").items()}
        require_like(state, self.capture()(), {"upload.*": None, **blocks})
        header, arrays = state
        if header["member"] != self.member:
            raise StateError(f"The stored member is {header['member']}, but must be {self.member}.")
        self.sequence, self.epoch, self.threshold = header["sequence"], header["epoch"], float(header["threshold"])
        n, self.releases = header["sent"]
        self.sent = Sums(arrays["sent.V"], arrays["sent.b"], n)
        self.told = {number: float(variance) for number, variance in header["told"]}
        uploads = {u.sequence: u for u in (stored_upload(d, self.form) for d in named(arrays, "upload.").values())}
        if list(uploads) != header["not_downloaded"] or not uploads.keys() >= set(header["unacknowledged"]):
            raise StateError(f"The stored uploads are {list(uploads)}, but must be {header['not_downloaded']}.")
        self.outbox = {number: uploads[number] for number in header["unacknowledged"]}
        self.on_top.restore(uploads, header["settled"], arrays)
