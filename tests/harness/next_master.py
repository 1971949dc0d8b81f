"""A master of the next build: see `next_build`."""

from __future__ import annotations

import sys

from nyala.replica.master.__main__ import main
from tests.harness.next_build import become

if __name__ == "__main__":
    become()
    sys.exit(main())
