"""A tablet server that a test makes slow, and quick again, while it runs.

Run as `python -m tests.harness.slow_server`, with a server's arguments; `NYALA_TEST_TICK_MS` in its environment is its
tick, if not the usual one. Its settings (`tests/harness/told.py`) are `sync` and `votes`, by how many seconds each sync
of its log and each of its votes is late; and `open`: it opens no replica as long as that is not 0.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nyala.replica.fs.real import RealFile
from nyala.replica.raft import Message, VoteReply, VoteRequest
from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.server.tablets.opening import Opened, Opener
from nyala.replica.transport import PeerNetwork
from tests.harness.told import told

TICK_VARIABLE = "NYALA_TEST_TICK_MS"


def _slow(root: Path) -> None:
    send, bootstrap = PeerNetwork.send, Opener.bootstrap

    def slow(sync: Callable[[RealFile], None]) -> Callable[[RealFile], None]:
        def slow_sync(file: RealFile) -> None:
            if "wals/" in str(file._path):
                time.sleep(told(root, "sync"))
            sync(file)

        return slow_sync

    def slow_send(network: PeerNetwork, messages: Sequence[tuple[str, Message]]) -> None:
        votes = [m for m in messages if isinstance(m[1], (VoteRequest, VoteReply))]
        seconds = told(root, "votes") if votes else 0.0
        if not seconds:
            send(network, messages)
            return
        send(network, [m for m in messages if m not in votes])
        later: Callable[[], None] = lambda: send(network, votes)  # noqa: E731
        asyncio.get_running_loop().call_later(seconds, later)

    def slow_bootstrap(opener: Opener, hosted: HostedTablet, *, checked: bool = False) -> Opened:
        while told(root, "open"):
            time.sleep(0.02)
        return bootstrap(opener, hosted, checked=checked)

    Opener.bootstrap = slow_bootstrap  # type: ignore[method-assign]
    RealFile.datasync, RealFile.sync = slow(RealFile.datasync), slow(RealFile.sync)  # type: ignore[method-assign]
    PeerNetwork.send = slow_send  # type: ignore[method-assign]


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    _slow(Path(options.root))
    sys.exit(main(replace(options, tick_ms=int(os.environ.get(TICK_VARIABLE, options.tick_ms)))))
