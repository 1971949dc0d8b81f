"""Memory of the process: tracked memory, the kernel's figure, and the limit at which writes are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nyala.replica.types import Code, Refused

ANONYMOUS_MARGIN_BYTES = 160 << 20
"""The memory of an idle server: interpreter, libraries, thread stacks."""
_NEARLY_FULL = 0.9
_STATUS = Path("/proc/self/status")


def anonymous_bytes() -> int:
    """Memory of this process that no file backs; 0 if the system does not report it. Mapped blocks do not count."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    except OSError:
        return 0
    return 0


class MemoryGuard:
    """Refuses writes while memory is over the soft limit, so that senders get slower instead of failing.

    Concurrency: the loop's thread. `refresh` is called on every tick of the maintenance task.
    """

    def __init__(
        self, soft_bytes: int, tracked: Callable[[], int], anonymous: Callable[[], int] = anonymous_bytes
    ) -> None:
        self.soft_bytes = soft_bytes
        self.tracked_bytes = 0
        self.anonymous_bytes = 0
        self.refused = 0
        self._tracked = tracked
        self._anonymous = anonymous

    def refresh(self) -> None:
        """Measure both figures again."""
        self.tracked_bytes = self._tracked()
        self.anonymous_bytes = self._anonymous()

    @property
    def used_bytes(self) -> int:
        """The larger of tracked memory and anonymous memory beyond an idle process's."""
        return max(self.tracked_bytes, self.anonymous_bytes - ANONYMOUS_MARGIN_BYTES)

    @property
    def pressure(self) -> float:
        """Used memory as a share of the soft limit."""
        return self.used_bytes / self.soft_bytes

    @property
    def mostly_free(self) -> bool:
        """Whether writes are refused, or soon will be, and less than half of the memory is tracked. Then most of it is
        free memory that the C library has not given back."""
        return self.pressure > _NEARLY_FULL and self.tracked_bytes < self.used_bytes / 2

    def admit(self, length_bytes: int) -> None:
        """Raise Refused OVERLOADED if that many more bytes do not fit. Nothing was applied; the caller retries with
        back-off."""
        if self.used_bytes + length_bytes > self.soft_bytes:
            self.refused += 1
            raise Refused(
                Code.OVERLOADED,
                "the server's memory is over its soft limit: try again when it has flushed, or send less at a time",
                used=self.used_bytes,
                limit=self.soft_bytes,
            )
