"""What the masters know and do about a server that quiesces."""

from __future__ import annotations

import asyncio

from nyala.replica.rpc import pb
from nyala.replica.types import Code
from tests.harness.master_calls import MasterWorld, S


def test_no_leadership_is_moved_to_a_server_that_quiesces() -> None:
    """OP-03. Goal: the masters show a server that quiesces, and refuse to move a leadership there, until it was
    restarted. Method: heartbeats that say so, and one that does not."""

    async def scenario() -> None:
        w = MasterWorld()
        await w.begin()
        wanted = pb.MoveReplicaRequest(tablet_id=w.tablet, to_uuid=S[1])
        await w.done("Heartbeat", w.beat(S[1], quiescing=True))
        shown = (await w.done("ListServers", pb.ListServersRequest())).servers
        assert [s.uuid for s in shown if s.quiescing] == [S[1]]
        before = await w.state()
        error = (await w.call("MasterService", "MoveReplica", wanted)).error
        assert error.code == Code.INVALID_ARGUMENT and "quiesces" in error.message and await w.state() == before
        assert [s.uuid for s in w.master.servers() if s.quiescing] == [S[1]]
        await w.done("Heartbeat", w.beat(S[1]))
        await w.done("MoveReplica", wanted)
        await w.end()

    asyncio.run(scenario())
