"""A tablet server with a planted fault, which the fuzzer of real processes must find: a very small number in one
request ends the process. Run as `python -m tests.fuzz.planted_server`, with a server's arguments."""

from __future__ import annotations

import os
import sys
from typing import Any

from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main
from nyala.replica.server.requests.tablet_service import TabletServicer

CALL = "server/TabletService.Lateness"
FATAL_S = 1e-4

_lateness = TabletServicer.Lateness


async def _fatal(self: Any, request: Any, context: Any) -> Any:
    if 0 < request.last_s < FATAL_S:
        os._exit(7)
    return await _lateness(self, request, context)


if __name__ == "__main__":
    TabletServicer.Lateness = _fatal  # type: ignore[method-assign]
    sys.exit(main(parse(sys.argv[1:])))
