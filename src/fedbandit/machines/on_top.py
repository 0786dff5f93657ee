"""Uploads of a client that no download has contained yet: they are put on top of downloads.

The last ones are kept by themselves, those before them as one running sum, so that a client that is sent no downloads
does not grow. A download that was overtaken by so many receipts is as good as lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.forgetting import Forgetting
from fedbandit.messages import Upload, decode
from fedbandit.state import StateError, named
from fedbandit.sums import Form, Sums, add, arrays_of, sums_of

ON_TOP = 8
"""Acknowledged uploads that are kept by themselves until a download contains them."""


class OnTop:
    """The last uploads, and the sum of those before them, in units of the round of the last of these."""

    def __init__(self, form: Form, forgetting: Forgetting) -> None:
        self.form, self.forgetting = form, forgetting
        self.uploads: dict[int, Upload] = {}
        self.settled = form.nothing()
        self.settled_to = 0
        """The number of the last upload that is in the running sum."""
        self._round = 0

    def clear(self) -> None:
        """Nothing is on top."""
        self.uploads.clear()
        self.settled = self.form.nothing()

    def contained(self, acknowledged: int) -> None:
        """A download contains uploads up to this number."""
        self.uploads = {n: upload for n, upload in self.uploads.items() if n > acknowledged}
        self.settled = self.form.nothing()

    def settle(self, unacknowledged: int) -> None:
        """So many uploads have no receipt; of the others keep `ON_TOP` by themselves."""
        while len(self.uploads) - unacknowledged > ON_TOP:
            self.settled_to = min(self.uploads)
            upload = self.uploads.pop(self.settled_to)
            self.settled = add(self._at(self.settled, self._round, upload.round or 0), upload.sums)
            self._round = upload.round or 0

    def put_back(self, round: int) -> None:
        """None of the uploads is of a later round than this."""
        self.uploads = {n: self._put_back(upload, round) for n, upload in self.uploads.items()}
        if self._round > round:
            self.settled, self._round = self.forgetting.put_back(self.settled, round), round

    def _put_back(self, upload: Upload, round: int) -> Upload:
        if upload.round is None or upload.round <= round:
            return upload
        return replace(upload, sums=self.forgetting.put_back(upload.sums, round), round=round)

    def added_to(self, sums: Sums, now: int) -> Sums:
        """These sums and all that is on top, in units of the round `now`."""
        if self.settled.n > 0 or self.uploads:
            for part in self.parts_at(now):
                sums = add(sums, part)
        return sums

    def parts(self) -> list[Sums]:
        """The running sum, and each upload's."""
        return [self.settled, *(upload.sums for upload in self.uploads.values())]

    def parts_at(self, now: int) -> list[Sums]:
        """The same in units of the round `now`."""
        rounds = [self._round, *(upload.round or 0 for upload in self.uploads.values())]
        return [self._at(sums, round, now) for sums, round in zip(self.parts(), rounds, strict=True)]

    def _at(self, sums: Sums, of: int, to: int) -> Sums:
        return self.forgetting.moved(sums, of, to)

    # How it is kept

    def header(self) -> list[int]:
        """The last number in the running sum, its observations, and its round where there is one."""
        return [self.settled_to, self.settled.n, *([self._round] if self.forgetting.dated else [])]

    def arrays(self) -> dict[str, Any]:
        """The running sum; uploads are kept as the bytes that are sent."""
        return {f"settled.{name}": array for name, array in arrays_of(self.settled).items()}

    def restore(self, uploads: dict[int, Upload], header: list[int], arrays: Mapping[str, Any]) -> None:
        """Go on from the uploads and arrays that were stored."""
        self.uploads = uploads
        self.settled_to, n, *rest = header
        self._round = rest[0] if rest else 0
        self.settled = sums_of(named(arrays, "settled."), n)


def stored_upload(data: NDArray[Any], form: Form) -> Upload:
    """An upload that was kept as the bytes that are sent: a matrix, a factor or blocks."""
    try:
        upload = decode(data.tobytes())
    except FedbanditError as error:
        raise StateError(f"A stored upload is none: {error}") from None
    if not isinstance(upload, Upload) or data.dtype != np.uint8 or not form.fits(upload.sums):
        raise StateError(f"The stored state has a {type(upload).__name__} where an Upload of another form is expected.")
    return upload
