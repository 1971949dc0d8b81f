"""Bounds how long a target waits for the bytes that it requested: each wait makes progress or ends the fetch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from nyala.replica.types import limits

_Found = TypeVar("_Found")


class FetchPatience:
    """The waits for one range of a file. Each COPY_CHUNK_BYTES of it, or its rest, must come within
    COPY_PART_WAIT_S_MAX, with at most COPY_SIGNS_OF_LIFE_MAX empty parts.

    Only the time within `wait` counts: between two waits the target may write to its disk or wait for its own rate.
    Concurrency: one thread.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._waited_s, self._signs = 0.0, 0

    def wait(self, receive: Callable[[float], _Found]) -> _Found:
        """Return `receive(end of its time)`, which is on the monotonic clock in seconds; TimeoutError if it takes
        longer."""
        begun = time.monotonic()
        try:
            found = receive(begun + limits.COPY_PART_WAIT_S_MAX - self._waited_s)
        finally:
            self._waited_s += time.monotonic() - begun
        if self._waited_s > limits.COPY_PART_WAIT_S_MAX:
            raise TimeoutError(f"it sent {self._bytes} bytes of the range in {limits.COPY_PART_WAIT_S_MAX} s")
        return found

    def received(self, length_bytes: int) -> None:
        """Count bytes that came; TimeoutError for one more empty part than an honest source sends."""
        before, self._bytes = self._bytes, self._bytes + length_bytes
        self._signs += not length_bytes
        if self._signs > limits.COPY_SIGNS_OF_LIFE_MAX:
            raise TimeoutError(f"it sent {self._signs} parts without a byte, and {self._bytes} bytes of the range")
        if before // limits.COPY_CHUNK_BYTES != self._bytes // limits.COPY_CHUNK_BYTES:
            self._begin()
