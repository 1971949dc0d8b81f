"""A tablet server among whose replicas leadership changes all the time, and to which messages come late.

Run as `python -m tests.harness.churny_server`, with a server's arguments. Its timers may run out after two ticks, and
leases are off, because they need longer timers. Its settings (`tests/harness/told.py`) are `campaigns`, the probability
that a follower asks, at a tick, for votes that no member withholds; and `notices`, by how many seconds at most each
message of a peer, and each notice that something is durable or applied, comes late.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nyala.replica.raft import Message, RaftOptions, election
from nyala.replica.raft.ready import Role
from nyala.replica.raft.state import State
from nyala.replica.server.__main__ import parse
from nyala.replica.server.process import main
from nyala.replica.server.runtime.lanes import LoopPost
from nyala.replica.server.tablets import manager, ticking
from tests.harness.told import told

ORDERED_S = 1e-6
"""The time between two notices that came at once, so that they keep their order."""


def _churn(root: Path) -> None:
    rng = random.Random(root.name)
    tick, deliver, post = election.tick_passive, manager.TabletManager.deliver, LoopPost.__call__
    due: dict[LoopPost, float] = {}

    def tick_and_campaign(s: State) -> None:
        tick(s)
        if s.role is Role.FOLLOWER and s.electable and s.leader_uuid and rng.random() < told(root, "campaigns"):
            election.campaign(s, transfer=True)

    def deliver_late(self: manager.TabletManager, tablet_id: str, message: Message) -> None:
        self.post._loop.call_later(
            rng.random() * told(root, "notices"), self.post.microtasks.run, partial(deliver, self, tablet_id, message)
        )

    def post_late(self: LoopPost, function: Callable[[], None]) -> None:
        now = time.monotonic()
        due[self] = max(due.get(self, 0.0) + ORDERED_S, now + rng.random() * told(root, "notices"))
        self._loop.call_soon_threadsafe(self._loop.call_at, due[self], post, self, function)

    election.tick_passive = tick_and_campaign
    manager.TabletManager.deliver = deliver_late  # type: ignore[method-assign]
    LoopPost.__call__ = post_late  # type: ignore[method-assign]
    manager.RaftOptions = lambda **_: RaftOptions(  # type: ignore[attr-defined, misc, assignment]
        heartbeat_ticks=1, election_ticks_min=2, election_ticks_max=20
    )
    ticking.PULSE_TICKS = 1


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    _churn(Path(options.root))
    sys.exit(main(options))
