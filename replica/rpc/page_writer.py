"""Fills one page of a list with as many messages as fit, and gives the key after which the next page begins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol, TypeVar

from nyala.replica.types import limits

STEP_BYTES = 8 << 10
"""After so many bytes of a page, the event loop runs other work. Bytes are counted, as a message costs more calls of
functions the longer it is; so a step is as long on each machine and each run."""
FRAME_BYTES = 8
"""The bytes that one message in a repeated field takes besides itself: its tag and its length."""


class Sized(Protocol):
    """A message whose size on the wire is known."""

    def ByteSize(self) -> int:
        """Its bytes on the wire."""
        ...


Message = TypeVar("Message", bound=Sized)


def page_bytes(limit_bytes: int) -> int:
    """The most bytes of a page. `limit_bytes`: the caller's wish; 0: as many as fit in one message."""
    return min(limit_bytes, limits.PAGE_BYTES_MAX) if limit_bytes > 0 else limits.PAGE_BYTES_MAX


async def page_of(
    found: Iterable[tuple[str, Message]], limit_bytes: int, used_bytes: int = 0
) -> tuple[list[Message], str]:
    """The first messages that together have at most that many bytes, and the key of the last one if there are more.

    At least one message, so that every reader makes progress. `found` is read only as far as needed. `used_bytes`: the
    bytes of the rest of the reply.
    """
    taken: list[Message] = []
    left, last = page_bytes(limit_bytes) - used_bytes, ""
    of_step = 0
    for key, message in found:
        size = message.ByteSize() + FRAME_BYTES
        left -= size
        if taken and left < 0:
            return taken, last
        taken.append(message)
        last = key
        of_step += size
        if of_step >= STEP_BYTES:
            await asyncio.sleep(0)
            of_step = 0
    return taken, ""
