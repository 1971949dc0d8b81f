"""Counts and logs messages that no honest peer sends, without filling the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from nyala.replica.types.log_records import about

_log = logging.getLogger("nyala.transport")

TELL_AGAIN_S = 10.0
"""If a peer goes on, it is logged again after this time, with the number of messages refused meanwhile."""
_SENDERS_MAX = 1000
"""The most senders that are remembered; beyond that, the one that was logged first is forgotten."""


class Refusals:
    """Counts refused messages and logs the first of each sender, then at most one line every `TELL_AGAIN_S`.

    Concurrency: the loop's thread; `count` may be read from any. Memory: `_SENDERS_MAX` senders.
    """

    def __init__(self, uuid: str, now_s: Callable[[], float]) -> None:
        self._uuid = uuid
        self._now_s = now_s
        self._logged: dict[str, tuple[float, int]] = {}
        """By sender: the time of its last log line, and the number of messages refused since."""
        self.count = 0

    def note(self, sender: str, what: str, why: str) -> None:
        """Note that a message of `sender`, described by `what`, was refused."""
        self.count += 1
        now = self._now_s()
        logged_s, since = self._logged.get(sender, (None, 0))
        if logged_s is not None and now - logged_s < TELL_AGAIN_S:
            self._logged[sender] = logged_s, since + 1
            return
        self._logged[sender] = now, 0
        if len(self._logged) > _SENDERS_MAX:
            del self._logged[next(iter(self._logged))]
        more = f" ({since} more since the last line)" if since else ""
        text = "refused %s of %s: %s; nothing was changed%s. Look at that server: its build, its disk, its clock"
        about(_log, process=self._uuid, peer=sender).warning(text, what, sender, why, more)
