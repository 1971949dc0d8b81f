"""A tablet server that waits longer for its leader, for tests to which an election is a change: none begins by itself.

A follower waits at least three seconds, and a leader that hears too few leads on for five: what takes place within one
of them takes place even if the machine stops for two. Run as `python -m tests.harness.steady_server`, with a server's
arguments; all servers of a cluster must be of this kind.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main

TICK_MS = 250

if __name__ == "__main__":
    sys.exit(main(replace(parse(sys.argv[1:]), tick_ms=TICK_MS)))
