"""A tablet server of a build with a defect: it cannot apply a batch that holds the key POISON.

Run as `python -m tests.harness.defective_server`, with a server's arguments. Such a row is noticed only when it is
applied, so it is committed by then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from nyala.replica.rows import key_hash
from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main
from nyala.replica.tablet import tablet as tablet_module

POISON = 666_666


def _hash(columns: Sequence[Any]) -> Any:
    if any(POISON in column.to_pylist() for column in columns):
        raise ValueError("output array is read-only")
    return key_hash(columns)


if __name__ == "__main__":
    tablet_module.key_hash = _hash
    sys.exit(main(parse(sys.argv[1:])))
