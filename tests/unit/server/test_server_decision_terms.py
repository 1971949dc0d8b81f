"""Decisions of terms that no master has reached, at a tablet's leader."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.rpc import pb
from nyala.replica.types import Address, Code
from tests.harness.copies import TABLET
from tests.harness.server_calls import ServerWorld, learner, run_server

FORGED = (1 << 63) - 1


def test_decision_of_a_term_that_no_master_named_is_refused_and_locks_no_later_one_out() -> None:
    """IN-90. Goal: a forged decision with the highest term, in Kafka or as a call, does not keep the masters' later
    decisions out. Method: such a config change and such a transfer; then a decision of the masters' term, which the
    heartbeats have given; then one of the next term, before and after a heartbeat gave that term."""

    async def scenario(world: ServerWorld) -> None:
        manager = world.pair.leader.manager
        manager.options = replace(manager.options, masters=(Address("127.0.0.1", 1),))
        manager.catalog_term = 5

        async def change(letter: str, term: int, version: int) -> int:
            request = pb.ChangeConfigRequest(
                dest_uuid=world.uuid, tablet_id=TABLET, has_cas=True, committed_config_id=world.opid(),
                edits=[pb.ConfigEdit(kind="add", member=learner(letter))], decision_term=term, decision_version=version,
            )  # fmt: skip
            return int((await world.call("TabletService", "ChangeConfig", request)).error.code)

        transfer = pb.TransferRequest(dest_uuid=world.uuid, tablet_id=TABLET, decision_term=FORGED, decision_version=1)
        refused = await world.call("TabletService", "TransferLeadership", transfer)
        assert (refused.error.code, refused.error.outcome_unknown) == (Code.NOT_READY, False)
        assert await change("1", FORGED, 1) == Code.NOT_READY
        assert await change("1", 5, 1) == Code.OK
        assert await change("2", 6, 1) == Code.NOT_READY
        manager.catalog_term = 6
        assert await change("2", 6, 1) == Code.OK
        assert await change("3", 5, 9) == Code.STALE_DECISION

    run_server(scenario)
