"""Records of logs that are about one tablet, one other process, or both."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping

TABLET, PEER, PROCESS = "tablet", "peer", "process_uuid"
"""The attributes of such a record. A formatter reads them."""


class About(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records are about one tablet, one other process, or both.

    The text begins with `T tablet P process`, as far as they are given. All three are fields in JSON.
    """

    def __init__(self, log: logging.Logger, tablet: str, process: str, peer: str) -> None:
        super().__init__(log, {TABLET: tablet, PROCESS: process, PEER: peer})
        named = f"T {tablet} " if tablet else ""
        named += f"P {process} " if process else ""
        self._named = named.replace("%", "?")  # no id has one, and it would be a part of the format

    def process(self, msg: object, kwargs: MutableMapping[str, object]) -> tuple[object, MutableMapping[str, object]]:
        """[logging] The message with the names before it."""
        kwargs["extra"] = self.extra
        return f"{self._named}{msg}", kwargs


def about(log: logging.Logger, tablet: str = "", process: str = "", *, peer: str = "") -> About:
    """Return a logger for records about a tablet, another process, or both.

    `process`: this process's uuid, if the text has to name it. `peer`: the uuid of the other process, or its address if
    only that is known; the message names it where it reads best.
    """
    return About(log, tablet, process, peer)
