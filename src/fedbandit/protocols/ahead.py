"""Members that have seen later versions and calls than there were here."""

from __future__ import annotations

from fedbandit.messages import Join


class Ahead:
    """By how much the versions and calls of each member are beyond those of its coordinator.

    A coordinator whose state was lost and restored from an older one finds members that have seen more than it has
    sent, and that take nothing with a smaller number. A member can also lie. So what it says moves its own numbers
    only: it is sent version v as v + its versions, and call c as c + its calls.

    >>> ahead = Ahead()
    >>> ahead.note(Join(0, version=7, epoch=2), version=5, epoch=2, asked_in=0)
    True
    >>> ahead.versions(0), ahead.calls(0), ahead.versions(1)
    (2, 0, 0)
    """

    def __init__(self) -> None:
        self.by_member: dict[int, tuple[int, int]] = {}

    def versions(self, member: int) -> int:
        """By how much its versions are beyond."""
        return self.by_member[member][0] if member in self.by_member else 0

    def calls(self, member: int) -> int:
        """By how much its calls are beyond."""
        return self.by_member[member][1] if member in self.by_member else 0

    def note(self, said: Join, version: int, epoch: int, asked_in: int) -> bool:
        """Take what a member says it has seen, where so many versions and calls were; whether it has a later version.

        `asked_in` is the call that it has to answer, 0 if none is open: that one must be later than all it has seen.
        """
        versions, calls = self.versions(said.member), self.calls(said.member)
        later = said.version > version + versions
        if later:
            versions = said.version - version
        if said.epoch > epoch + calls:
            calls = said.epoch + 1 - asked_in if asked_in else said.epoch - epoch
        if versions or calls:
            self.by_member[said.member] = versions, calls
        return later

    def forget(self, member: int) -> None:
        """It begins anew, or is gone."""
        self.by_member.pop(member, None)

    def state(self) -> dict[str, list[int]]:
        """Plain values, of those who are ahead."""
        return {str(i): list(beyond) for i, beyond in self.by_member.items()}

    def restore(self, saved: dict[str, list[int]]) -> None:
        """Go on from what `state` gave."""
        self.by_member = {int(i): (versions, calls) for i, (versions, calls) in saved.items()}
