"""Members that synchronise: when one asks, all of its group speak."""

from __future__ import annotations

from fedbandit.errors import FedbanditError
from fedbandit.messages import Join, Message, Receipt, Request, Upload
from fedbandit.protocols.members import MemberKeeper, Messages
from fedbandit.sharing import Noise, Sharing
from fedbandit.state import State


class MemberSync(MemberKeeper):
    """When one asks, all of its group upload, and then all are sent their shares (Async-LinUCB, Alg. 4, per member).

    One group is called at a time; who asks meanwhile is heard when it asks again. When the sharing wakes, everybody is
    called, and groups are formed anew first.
    """

    called: list[int]
    regrouping: bool

    def __init__(self, sharing: Sharing, n_clients: int, dim: int, ridge: float, noise: Noise | None) -> None:
        super().__init__(sharing, n_clients, dim, ridge, noise)
        self.called = []
        self.regrouping = False

    def end_round(self, done: int) -> Messages:
        """Call everybody, to form groups anew."""
        self.done = done
        if self.awaited:
            return []
        self.regrouping, self.called = True, list(range(self.members.n.size))
        return self.collect(self.called)

    def newcomer(self, member: int) -> Messages:
        """Whoever comes after the first synchronisation is sent what there is."""
        return [self.download(member, self.share(member))] if self.version > 0 else []

    def collected(self) -> Messages:
        """Everybody who was called is sent its share."""
        if self.regrouping:
            self.sharing.regroup(self.members, self.done, self.noise)
            self.regrouping = False
        return [self.download(j, self.share(j)) for j in self.called]

    def receive(self, message: Message) -> Messages:
        """Apply a Join, a Request or an Upload."""
        match message:
            case Join():
                return self.welcome(message)
            case Request(member):
                self.check_member(member)
                if self.awaited:
                    return []
                self.called = list(self.sharing.affected(member))
                return self.collect(self.called)
            case Upload(member, sequence):
                self.check_member(member)
                self.require_asked(message)
                if not self.add(message):
                    return [Receipt(member, self.applied[member])]
                return [Receipt(member, sequence), *self.answered(member)]
            case _:
                raise FedbanditError(f"This coordinator does not take a {type(message).__name__}.")

    def state(self) -> State:
        """Also who was called, and what for."""
        header, arrays = super().state()
        return State({**header, "called": self.called, "regrouping": self.regrouping}, arrays)

    def restore(self, state: State) -> None:
        """Go on in the middle of a collection."""
        super().restore(state)
        self.called = list(state.header["called"])
        self.regrouping = state.header["regrouping"]
