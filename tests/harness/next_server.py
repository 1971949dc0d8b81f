"""A tablet server of the next build: see `next_build`."""

from __future__ import annotations

import sys

from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main
from tests.harness.next_build import become

if __name__ == "__main__":
    become()
    sys.exit(main(parse(sys.argv[1:])))
