"""What an exchange finds in a stored state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.messages import Upload, decode
from fedbandit.state import StateError
from fedbandit.sums import Form


def stored_upload(data: NDArray[Any], form: Form) -> Upload:
    """An upload that was kept as the bytes that are sent: a matrix, a factor or blocks."""
    try:
        upload = decode(data.tobytes())
    except FedbanditError as error:
        raise StateError(f"A stored upload is none: {error}") from None
    if not isinstance(upload, Upload) or data.dtype != np.uint8 or not form.fits(upload.sums):
        raise StateError(f"The stored state has a {type(upload).__name__} where an Upload of another form is expected.")
    return upload
