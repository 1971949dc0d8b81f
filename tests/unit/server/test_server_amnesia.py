"""A server whose disk was wiped comes back at its old address under a new uuid, and helps no candidate by its old
promises."""

from __future__ import annotations

import asyncio

from nyala.replica.raft import AppendEntries, AppendReply, Message, Role, VoteReply, VoteRequest
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.server.tablets.tombstone import answer_without_replica
from nyala.replica.tablet_copy import CopyRequest, LocalReplica, start_tablet_copy_checks
from nyala.replica.types import Code, DataState, OpId
from tests.harness.copies import TABLET, TARGET_UUID, new_disk
from tests.harness.managers import new_manager
from tests.harness.raft_net import Net, Node, config_of
from tests.harness.raft_solo import entry

LOGS = {"a": [1, 2], "b": [1], "c": [1, 2]}
"""a and c have committed 2.2; b was away."""


class WipedNet(Net):
    """Delivers what is sent to c to the server that is now at its address."""

    wiped: TabletManager | None = None

    def deliver(self, msg: Message) -> None:
        if msg.to_uuid == "c" and self.wiped is not None and (msg.from_uuid, "c") not in self.cuts:
            answer_without_replica(self.wiped, None, TABLET, msg)
        else:
            super().deliver(msg)


def group(logs: dict[str, list[int]]) -> WipedNet:
    net = WipedNet(config_of(logs))
    for uuid, terms in logs.items():
        durable = net.nodes[uuid].durable
        durable.entries = [entry(term, at + 1, b"%d.%d" % (term, at + 1)) for at, term in enumerate(terms)]
        durable.hard = durable.hard._replace(term=2 if terms else 0)
        net.nodes[uuid] = Node(net, uuid, durable)
    net.crash("a")
    return net


def test_outdated_server_and_a_wiped_one_found_no_group() -> None:
    """TC-74. Goal: every message names its recipient, because a wiped server under its old name could elect an outdated
    one. Method: c and a third server have the committed 2.2, and that third server is down; b never got 2.2. c forgets
    everything: under its old name it would elect b, and 2.2 would be lost (the negative control). Under a new name it
    refuses b's votes and entries, gets no copy, keeps no file, and b leads nothing."""
    forgetful = group({**LOGS, "c": []})
    forgetful.tick(60)
    leader = forgetful.leader()
    assert leader is not None and leader.uuid == "b", "the split brain that the name prevents"

    async def scenario() -> None:
        disk = new_disk()
        manager = new_manager(disk, lambda error: None)
        answers: list[Message] = []
        net = group(LOGS)

        def reply(_tablet_id: str, message: Message) -> None:
            answers.append(message)
            net.send(message)

        manager.reply = reply  # type: ignore[method-assign]
        net.wiped = manager
        net.tick(60)
        assert net.leader() is None and net.nodes["b"].core.role is not Role.LEADER
        asked = len(answers)
        assert asked and all(isinstance(a, VoteReply) and not a.granted for a in answers)
        answer_without_replica(
            manager, None, TABLET, AppendEntries(to_uuid="c", from_uuid="b", term=9, prev=OpId(1, 1), round=1)
        )
        answer_without_replica(
            manager, None, TABLET, VoteRequest(to_uuid="c", from_uuid="b", term=9, last=OpId(1, 1), pre_vote=False)
        )
        append, vote = answers[asked:]
        assert isinstance(append, AppendReply) and isinstance(vote, VoteReply)
        assert {a.code for a in answers} == {Code.INVALID_NAME}
        assert not disk.listdir("tablet-meta") and not disk.listdir("consensus-meta")
        await manager.stop()

    asyncio.run(scenario())
    request = CopyRequest(
        dest_uuid="c", from_uuid="b", tablet_id=TABLET, term=9, current_state=DataState.DOES_NOT_EXIST
    )
    refusal = start_tablet_copy_checks(request, LocalReplica(uuid=TARGET_UUID, data_state=DataState.DOES_NOT_EXIST))
    assert refusal is not None and refusal.code is Code.INVALID_NAME
