"""One client that writes single rows while something else is measured: its latencies, with their times."""

from __future__ import annotations

import json
import subprocess
import time
from types import TracebackType
from typing import NamedTuple

from .options import BenchmarkError
from .report import percentile_ms
from .work import go, started

STOP_WAIT_S = 30.0
WRITES_MIN = 20
"""Fewer writes give no figure. For fewer than a hundred, the slowest counts, which is never below the percentile."""


class Write(NamedTuple):
    """One acknowledged write: its begin, in seconds since 1970, and its duration."""

    began_s: float
    took_s: float


def p99_ms(writes: list[Write], first_s: float, last_s: float) -> float:
    """The 99th percentile, in ms, of the writes that began in [first_s, last_s); BenchmarkError if there are too
    few."""
    took = [w.took_s for w in writes if first_s <= w.began_s < last_s]
    if len(took) < WRITES_MIN:
        raise BenchmarkError(
            f"{len(took)} one-row writes in {last_s - first_s:.1f} s are too few for a 99th percentile"
        )
    return percentile_ms(took, 0.99)


class Foreground:
    """A client process that writes until the end of the block; then `writes` has its latencies.

    BenchmarkError at the end if one write failed, because the client gives up after the first failure.
    """

    def __init__(self, masters: str, table: str, first_key: int) -> None:
        self._masters, self._table, self._first_key = masters, table, first_key
        self.writes: list[Write] = []

    def __enter__(self) -> Foreground:
        self._process = started(self._masters, self._table, "steady", start=self._first_key)
        go(self._process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # The end of its input stops it.
            printed = self._process.communicate(timeout=STOP_WAIT_S)[0]
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise BenchmarkError(f"the writing client did not end in {STOP_WAIT_S:.0f} s") from error
        if error is None and self._process.returncode:
            raise BenchmarkError(f"a one-row write failed (status {self._process.returncode})")
        if not self._process.returncode:
            self.writes = [Write(*pair) for pair in json.loads(printed)["writes"]]

    def for_s(self, seconds: float) -> tuple[float, float]:
        """Let it write for that time; returns the window, in seconds since 1970."""
        began = time.time()
        time.sleep(seconds)
        return began, time.time()
