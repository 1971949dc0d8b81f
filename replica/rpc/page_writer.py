"""Pages of a list: as many messages as fit, and the key behind which the next page begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Protocol, TypeVar

from nyala.replica.types import limits

TURN_S = 0.01
"""Work on one page goes on for so long; then everything else that waits gets its turn."""
FRAME_BYTES = 8
"""Of one message in a repeated field: its tag and its length."""


class Sized(Protocol):
    """A message."""

    def ByteSize(self) -> int:
        """Its bytes on the wire."""
        ...


Message = TypeVar("Message", bound=Sized)


def page_bytes(limit_bytes: int) -> int:
    """How many bytes a page has at most, if its caller asks for so many; 0: as many as fit in one message."""
    return min(limit_bytes, limits.PAGE_BYTES_MAX) if limit_bytes > 0 else limits.PAGE_BYTES_MAX


async def page_of(
    found: Iterable[tuple[str, Message]], limit_bytes: int, used_bytes: int = 0
) -> tuple[list[Message], str]:
    """The first messages that have together at most that many bytes, and the key of the last one if there are more.

    At least one, or no reader would ever get on. `found` is read as far as it is needed; `used_bytes` is what else the
    reply has.
    """
    taken: list[Message] = []
    left, last = page_bytes(limit_bytes) - used_bytes, ""
    began_s = time.monotonic()
    for key, message in found:
        left -= message.ByteSize() + FRAME_BYTES
        if taken and left < 0:
            return taken, last
        taken.append(message)
        last = key
        if time.monotonic() - began_s > TURN_S:
            await asyncio.sleep(0)
            began_s = time.monotonic()
    return taken, ""
