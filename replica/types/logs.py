"""One form of log line for all processes: day and time in UTC to the millisecond, as files of several machines and of
several days are read side by side."""

from __future__ import annotations

import logging
import sys
import time

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname).1s %(message)s"
FORMAT_WITH_NAMES = "%(asctime)s.%(msecs)03dZ %(levelname).1s %(name)s %(message)s"
DAY_AND_TIME = "%Y-%m-%dT%H:%M:%S"


class UtcFormatter(logging.Formatter):
    """Times of records in UTC, wherever the machine is."""

    converter = staticmethod(time.gmtime)


def log_to_stderr(level: int | str = logging.INFO, *, names: bool = False) -> None:
    """Begin to log, once for a process. `names`: with the logger's name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(UtcFormatter(FORMAT_WITH_NAMES if names else FORMAT, DAY_AND_TIME))
    logging.basicConfig(level=level, handlers=[handler])
