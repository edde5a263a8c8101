"""Which failures of a disk pass by themselves."""

from __future__ import annotations

import errno
from typing import Final

_TRANSIENT: Final = (errno.EMFILE, errno.ENFILE, errno.EINTR)


def is_transient(error: BaseException | None) -> bool:
    """Whether the call may succeed later, so that its log directory stays in use: descriptors ran out, or a signal."""
    return isinstance(error, OSError) and error.errno in _TRANSIENT
