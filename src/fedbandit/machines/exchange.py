"""One model's half of a federation: when it speaks, what it uploads, and what it adopts. No I/O, no clock.

Theory of operation
-------------------

| it gets                      | it does                                                     | it sends            |
|------------------------------|-------------------------------------------------------------|---------------------|
| `speak()` after observations | if its trigger fires: numbers what is pending               | Upload, or Request  |
| Collect                      | numbers what is pending, if it has not in this epoch        | Upload              |
| Collect, in secure sums      | puts what is pending into the sum, if not in this epoch     | Contribution        |
| Receipt                      | need not send uploads up to that number again               | –                   |
| Threshold                    | compares its trigger with this number from now on           | –                   |
| Download, newer than its own | adopts it, with its own unacknowledged uploads on top       | –                   |

An upload is applied exactly once: it is numbered, its noise is drawn once, and it stays in `outbox`, unchanged, until
the coordinator acknowledges it; send it as often as you like. Until a *download* contains it, it is also kept to be put
on top of downloads, which receipts may overtake (`on_top`).

A download is adopted when the model is next looked at (`model`): of several that come in between, only the last one
costs an inverse. So too with rounds, where models forget (`at`): what has faded is found out when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, require
from fedbandit.machines.dated import Dated
from fedbandit.machines.doubt import doubted
from fedbandit.machines.mixing import mix
from fedbandit.machines.on_top import OnTop, stored_upload
from fedbandit.messages import (
    Collect,
    Contribution,
    Download,
    Join,
    Message,
    Recall,
    Receipt,
    Request,
    Threshold,
    Upload,
    encode,
)
from fedbandit.model import Growing, RidgeModel
from fedbandit.privacy.noise import Source
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.protocols.protocol import known_by, says_what_it_knows
from fedbandit.protocols.trigger import Watched, lifted, timed_growth
from fedbandit.sharing import LocalModel
from fedbandit.state import State, StateError, Varying, named, require_like
from fedbandit.streams import Purpose, generator
from fedbandit.structures.action_model import ActionModel
from fedbandit.sums import Form, Sums, factored, without
from fedbandit.system import System
from fedbandit.world import World


class Exchange(Dated):
    """A model, its trigger, its privacy mechanism, and what it has sent and not been acknowledged.

    `system` has been told the world. `number` is the model's number in a simulation, which its random streams follow;
    by default that of its member. `source(k)` draws the noise of release k; without one it is that of the seed.
    """

    def __init__(
        self,
        member: int,
        model: LocalModel,
        system: System,
        world: World,
        seed: int = 0,
        *,
        number: int | None = None,
        source: Callable[[int], Source] | None = None,
    ) -> None:
        super().__init__(model, system.forgetting(world))
        self.member = member
        self.dim = system.structure.shared_dim(world)
        self.form = Form(self.dim, self.forgetting.slots or world.actions)
        self.ridge = system.ridge
        self.protocol = system.protocol
        self.exploring = False
        self.exhausted = False
        """Whether something could not leave because the privacy budget is spent."""
        self.factors = False
        """Whether uploads of few observations may travel as factors: the coordinator has said that it takes them."""
        self._exact = system.privacy.perturbs == "nothing"
        self.outbox: dict[int, Upload] = {}
        self.sequence = 0
        """The number of the last upload."""
        self.trigger = system.protocol.trigger()
        thresholds = self.trigger.thresholds
        self.threshold = self._agreed = float(thresholds[member if thresholds.size > 1 else 0])
        self._policy = system.policy.told(system.as_seen(world))
        self._noise = system.as_seen(world).noise
        self._counts_only = system.counts_only
        self._doubts = system.structure.by_member
        self._unread: Download | None = None
        self.on_top = OnTop(self.form, self.forgetting)
        self._epoch = 0
        self._told = self.form.zero()  # what a peer has told the others itself
        # Observations uploaded and log det when it was last served; None where triggers look at what is pending.
        # So too in secure sums: whoever was absent from one does not ask for the next at once.
        since_served = system.protocol.since_served or (system.privacy.pooled and system.privacy.site == "client")
        self._served: tuple[int, float] | None = (0, 0.0) if since_served else None
        drawn = source or partial(generator, seed, Purpose.NOISE, member if number is None else number)
        self._nominal = partial(system.protocol.actions_by, world) if system.privacy.padded else None
        self._keeps_own = system.privacy.keeps_own or system.privacy.perturbs != "statistics"
        self._lift = system.privacy.lift()
        self._pooled = system.privacy.pooled
        trusted = system.privacy.site == "coordinator" and not system.privacy.pooled
        self.stream = None if trusted else system.privacy.stream(member, drawn)

    @property
    def model(self) -> LocalModel:
        """The model as it is now."""
        self.fade()
        if self._unread is not None:
            message, self._unread = self._unread, None
            self._adopt(message)
        return self._model

    @property
    def version(self) -> int:
        """Of the last download."""
        return self._model.version if self._unread is None else self._unread.version

    @property
    def withheld(self) -> bool:
        """Whether the privacy budget forbids what is pending to leave; the client then goes on learning alone."""
        return self.stream is not None and not self.stream.may_release(self._model.n_pending)

    def join(self) -> list[Message]:
        """The message to begin with, and with which to ask for what may have been missed."""
        return [] if self.protocol.says == "nothing" else [Join(self.member, self.version, self._epoch)]

    def known(self) -> float:
        """How much coordinator and model have in common, as uploads say it."""
        return 0.0 if self._nominal else known_by(self.model, self.protocol, self._counts_only)

    def speak(self) -> list[Message]:
        """What to send now, if the trigger says so and the privacy budget allows it."""
        model = self.model
        seen: Growing = model  # what is pending, or all that has been observed since the model was last served
        if self._served is not None:
            n, logdet = self._served
            seen = Watched(model.n_own, model.n_own - n, model.logdet, logdet)
        if self._lift:
            assert isinstance(model, RidgeModel)
            seen = lifted(model, self._lift)
        if self.exploring or model.silent or not self.trigger.fires(seen, self.threshold):
            return []
        if self.withheld:
            self.exhausted = True
            return []
        if self.protocol.says == "upload":
            return [self.upload()]
        if not self.protocol.one_by_one:
            return [Request(self.member)]
        growth = timed_growth(seen)
        self.threshold = 2 * growth  # it has asked, and waits; it asks again if nobody has answered by then
        return [Request(self.member, growth)]

    def upload(self) -> Upload:
        """Number what is pending, noised if there is a mechanism, to be sent until it is acknowledged."""
        self.fade()
        sums = self._model.pending()  # which no download changes
        waits = sums.n == 0 and not says_what_it_knows(self.protocol)
        model = self._model if waits and self._unread is not None and not self._unread.slack.headstart else self.model
        if self.withheld and sums.n > 0:
            sums = self.form.zero()
            self.exhausted = True
        else:
            if self.stream is not None and (sums.n > 0 or self._nominal is not None):
                sums = self.stream.release(sums)
            elif self.factors and self._exact and not self.forgetting.dated:
                sums = factored(sums)
            model.mark_sent()
        self.sequence += 1
        if self._nominal is not None:  # a release at each call, of as many interactions as the clock has
            sums = sums._replace(n=self._nominal(self.sequence) - self._nominal(self.sequence - 1))
        known = 0.0 if self._nominal else known_by(model, self.protocol, self._counts_only)
        upload = Upload(self.member, self.sequence, sums, known, self.form.actions, self.date)
        self.outbox[self.sequence] = self.on_top.uploads[self.sequence] = upload
        return upload

    @property
    def secure_sums(self) -> bool:
        """Whether its statistics leave in secure sums only."""
        return isinstance(self.stream, SumStream)

    def contribute(self, epoch: int, included: int) -> list[Message]:
        """Put what is pending into the secure sum of an epoch, given the last one in which this client was included."""
        assert isinstance(self.stream, SumStream)
        model, stream = self.model, self.stream
        if epoch > stream.terms.epochs:
            self.exhausted = True
            return []
        sums = model.pending()
        self._served = model.n_own, model.logdet
        if stream.may_release(sums.n):
            model.mark_sent()
        else:
            sums, self.exhausted = self.form.zero(), True
        n = stream.contributed + sums.n if self._nominal is None else self._nominal(epoch)
        words = stream.contribute(epoch, included, sums)
        return [Contribution(self.member, epoch, n, words, stream.excess)]

    def repeat(self, upload: Upload) -> None:
        """After a crash: make the upload that is on record, in place of one that would be made now."""
        if upload.sequence > self.sequence:
            self.upload()
        require(upload.sequence == self.sequence, "the number of an upload", upload.sequence, f"{self.sequence}")
        self.outbox[self.sequence] = self.on_top.uploads[self.sequence] = upload

    def receive(self, message: Message) -> list[Message]:
        """Take a message from the coordinator, and say what to send."""
        require(message.member == self.member, "the addressee", message.member, f"client {self.member}")
        match message:
            case Receipt(_, sequence):
                self._acknowledged(sequence)
            case Threshold(_, threshold):
                self.threshold = self._agreed = threshold
            case Download():
                if not self.form.fits(message.sums):
                    raise FedbanditError(f"The coordinator sent statistics {self.form.said(message.sums)}.")
                if message.acknowledged < self.on_top.settled_to:
                    return []  # overtaken by ON_TOP receipts: what it lacks cannot be told apart any more
                self.threshold = self._agreed
                self._acknowledged(message.acknowledged)
                if message.version > self.version:
                    self.on_top.contained(message.acknowledged)
                    self._unread = message
                    self.at(message.round or 0)
            case Collect(_, epoch, included) if epoch > self._epoch:
                self._epoch = epoch
                self.exploring = False
                self.threshold = self._agreed
                return [self.upload()] if not isinstance(self.stream, SumStream) else self.contribute(epoch, included)
            case Collect() | Recall():
                pass
            case _:
                raise FedbanditError(f"A client does not take a {type(message).__name__}.")
        return []

    def go_on_from(self, other: Exchange) -> None:
        """Take the place of one that was made for other terms; its thresholds were those of the old ones."""
        fresh = self.threshold
        self.restore(other.state())
        self.threshold = self._agreed = fresh
        self.factors = other.factors

    def put_back(self, round: int) -> None:
        """It was never later than this round: no upload is of a later one, and what was forgotten is asked for."""
        self._unread = None
        super().put_back(round)
        self.on_top.put_back(round)
        self.outbox = {n: self.on_top.uploads[n] for n in self.outbox}

    def hear(self, message: Download, told: Sums) -> None:
        """Take what peers have told, given what this one told itself: as a download, but nothing is acknowledged."""
        self.outbox.clear()
        self.on_top.clear()
        self._told = told
        self._unread = message

    def remember_told(self, told: Sums) -> None:
        """What this one has told itself, after a restart."""
        self._told = told

    def _acknowledged(self, sequence: int) -> None:
        self.outbox = {number: upload for number, upload in self.outbox.items() if number > sequence}
        self.on_top.settle(len(self.outbox))

    def _adopt(self, message: Download) -> None:
        """What coordinator and model have in common: the download, and uploads that it does not contain."""
        if not message.own:
            own, others = self._own_and_others(message)
            if others is None:
                return
            width = self._policy.width_alone(own, self.ridge, self._noise)
            mixed, slack = mix(own, others, message.slack, self.ridge, width)
            if self._doubts:
                mixed, slack = doubted(own, mixed, slack, self.ridge, self._noise)
            self._model.adopt(mixed, slack, message.version)
            if self._served is not None:
                self._served = self._model.n_own, self._model.logdet
            return
        sums = message.sums
        if message.round is not None:
            self.fade()
            sums = self.forgetting.moved(sums, message.round, self.now)
        self._model.adopt(self.on_top.added_to(sums, self.now), message.slack, message.version)
        if self._served is not None:
            self._served = self._model.n_own - self._model.n_pending, self._model.shared_logdet

    def _own_and_others(self, message: Download) -> tuple[Sums, Sums | None]:
        """The client's own statistics, as exact as it may use them, and the others', if they are known."""
        stream = self.stream
        if isinstance(stream, SumStream):
            part = stream.part_at(message.version, message.acknowledged)
            if part is None:
                return stream.own, None  # overtaken: the total of a later epoch will come
        if not self._keeps_own:
            return self.form.zero(), message.sums
        if isinstance(stream, SumStream):
            assert part is not None
            part = part if self._nominal is None else part._replace(n=self._nominal(message.acknowledged))
            return stream.own, without(message.sums, part)
        if self._pooled and isinstance(stream, ReleaseStream):
            part = stream.own
            for later in self.on_top.parts():
                part = without(part, later)
            return stream.own, without(message.sums, part)
        return stream.own if isinstance(stream, ReleaseStream) else self._told, message.sums

    # How it is kept

    def capture(self) -> Callable[[], State]:
        """The state as it is now; what takes long is done when the function that is returned is called."""
        numbers, statistics = self.model.dump()
        header: dict[str, Any] = {
            "member": self.member,
            "dim": self.dim,
            "model": numbers,
            "sequence": self.sequence,
            "epoch": self._epoch,
            "unacknowledged": list(self.outbox),
            "not_downloaded": list(self.on_top.uploads),
            "settled": self.on_top.header(),
            **({"now": self.now} if self.forgetting.dated else {}),
            "exploring": self.exploring,
            "exhausted": self.exhausted,
            "threshold": [self.threshold, self._agreed],
            **({} if self._served is None else {"served": list(self._served)}),
        }
        arrays: dict[str, NDArray[Any]] = {f"model.{name}": array for name, array in statistics.items()}
        arrays |= self.on_top.arrays()
        uploads = list(self.on_top.uploads.items())
        if self.stream is not None:
            arrays |= {f"stream.{key}": np.array(value) for key, value in self.stream.state().items()}

        def finish() -> State:
            sent = {f"upload.{n}": np.frombuffer(encode(upload), dtype=np.uint8) for n, upload in uploads}
            return State(header, arrays | sent)

        return finish

    def state(self) -> State:
        """All that an exchange with the same arguments needs in order to go on; uploads as the bytes that are sent."""
        return self.capture()()

    def varying(self) -> Varying:
        """The arrays of a state that depend on what has happened."""
        uploads: Varying = {"upload.*": None}  # matrices or factors
        if self.form.actions:  # how much there is depends on how many actions, or epochs, were observed
            model = self._model.varying() if isinstance(self._model, ActionModel) else {}
            kept = {"model": model, "settled": self.form.varying("s")}
            blocks = {f"{part}.{name}": rule for part, rules in kept.items() for name, rule in rules.items()}
            uploads = {**uploads, **blocks}
        # A stream that an older version began may have another memory: it knows what to do.
        memory = {"coded", "memory"} & set({} if self.stream is None else self.stream.state())
        return {**uploads, **{f"stream.{name}": None for name in memory}}

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        require_like(state, self.state(), self.varying())
        header, arrays = state
        for name, value in (("member", self.member), ("dim", self.dim)):
            if header[name] != value:
                raise StateError(f"The stored {name} is {header[name]}, but must be {value}.")
        self._unread = None
        self._model.load(header["model"], named(arrays, "model."))
        self.sequence, self._epoch = header["sequence"], header["epoch"]
        self.exploring, self.exhausted = header["exploring"], header["exhausted"]
        self.threshold, self._agreed = header["threshold"]
        if self._served is not None:
            self._served = header["served"][0], header["served"][1]
        uploads: dict[int, Upload] = {}
        for data in named(arrays, "upload.").values():
            upload = stored_upload(data, self.form)
            uploads[upload.sequence] = upload
        if list(uploads) != header["not_downloaded"] or not uploads.keys() >= set(header["unacknowledged"]):
            raise StateError(f"The stored uploads are {list(uploads)}, but must be {header['not_downloaded']}.")
        self.outbox = {number: uploads[number] for number in header["unacknowledged"]}
        self.on_top.restore(uploads, header["settled"], arrays)
        self.go_on_at(header.get("now", 0))
        if self.stream is not None:
            self.stream.restore(named(arrays, "stream."))
