"""Waits until the masters have accepted tablet servers, which happens only after a master has called each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from nyala.replica.client import Client, ClientOptions, parse_masters
from nyala.replica.types import Refused

PAUSE_S = 0.05


def wait_until_registered(
    masters: str, uuids: Collection[str], wait_s: float, pause: Callable[[float], object]
) -> dict[str, str]:
    """The servers that the leading master has not accepted as alive after `wait_s` seconds, each with the reason.

    Empty as soon as it has accepted all. `pause(seconds)` is called between two requests.
    """
    deadline = time.monotonic() + wait_s
    options = ClientOptions(connect_timeout_s=max(wait_s, PAUSE_S))
    missing = dict.fromkeys(uuids, "no master has heard of it")
    with Client(parse_masters(masters), options) as client:
        while True:
            try:
                listing = client.list_servers()
            except Refused as error:
                return dict.fromkeys(missing, f"no master leads: {error}")
            alive = {s.uuid for s in listing.servers if s.alive}
            told = {s.uuid: s.not_counted for s in listing.candidates}
            missing = {u: told.get(u, why) for u, why in missing.items() if u not in alive}
            if not missing or time.monotonic() > deadline:
                return missing
            pause(PAUSE_S)
