"""A tablet server that flushes a tablet once its log has grown by 2 MB, so that a short run sees many flushes.

Run as `python -m tests.load.quick_flush_server`, with a server's arguments. A store then swings by a few megabytes
around one level within seconds, and a slope of the memory is a leak. The usual server does so by 64 MB, in minutes.
Its ticks are those of `tests/harness/steady_server.py`: other tests run beside it, and elections are not the subject.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main
from tests.harness.steady_server import TICK_MS

FLUSH_WAL_BYTES = 2 << 20

if __name__ == "__main__":
    sys.exit(main(replace(parse(sys.argv[1:]), flush_wal_bytes=FLUSH_WAL_BYTES, tick_ms=TICK_MS)))
