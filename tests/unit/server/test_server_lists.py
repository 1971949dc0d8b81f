"""Lists of a tablet server, page by page."""

from __future__ import annotations

from typing import Any

from nyala.replica.client.paging import pages_of
from nyala.replica.rpc import pb
from nyala.replica.types import limits
from tests.harness.copies import TABLET
from tests.harness.rows import batch, read_rows, write_request
from tests.harness.server_calls import ServerWorld, run_server

MORE = [letter * 32 for letter in "789"]


def test_tablets_and_quarantines_of_a_server_come_in_pages() -> None:
    """IN-80. Goal: what a server holds is listed however much it is. Method: four tablets, of which two are deleted
    then, and pages of one byte: one tablet, or one quarantine, on each."""

    async def scenario(world: ServerWorld) -> None:
        async def listed(method: str, kind: Any) -> list[list[Any]]:
            found, request = [], kind(dest_uuid=world.uuid, limit_bytes=1)
            while True:
                reply = await world.done("TabletService", method, request)
                found.append(list(reply.replicas if method == "ListTablets" else reply.items))
                if not reply.next:
                    return found
                request.after = reply.next

        for tablet_id in MORE:
            await world.done("TabletService", "CreateTablet", world.creation(tablet_id))
        everything = await listed("ListTablets", pb.ListTabletsRequest)
        assert [[r.tablet_id for r in page] for page in everything] == [[t] for t in sorted([TABLET, *MORE])]
        named = pb.ListTabletsRequest(dest_uuid=world.uuid, tablet_ids=[MORE[1], MORE[0]])
        reply = await world.done("TabletService", "ListTablets", named)
        assert [r.tablet_id for r in reply.replicas] == MORE[:2]
        for tablet_id in MORE[:2]:
            request = pb.DeleteTabletRequest(dest_uuid=world.uuid, tablet_id=tablet_id, reason="dropped")
            await world.done("TabletService", "DeleteTablet", request)
        kept = await listed("ListQuarantine", pb.QuarantineRequest)
        assert [len(page) for page in kept] == [1] * len(kept)
        assert {q.tablet_id for page in kept for q in page} == set(MORE[:2])

    run_server(scenario)


def test_asking_for_pages_asks_for_a_page_at_a_time() -> None:
    """IN-80. Goal: our clients ask for a page of a stated size, behind the one before it. Method: what they ask."""
    asked: list[tuple[str, int]] = []

    def answer(request: Any) -> Any:
        asked.append((request.after, request.limit_bytes))
        return pb.ListTabletsReply(next={"": "a", "a": "b"}.get(request.after, ""))

    assert len(list(pages_of(answer, pb.ListTabletsRequest()))) == 3
    assert asked == [("", 1 << 20), ("a", 1 << 20), ("b", 1 << 20)]


def test_messages_of_a_scan_are_no_longer_than_stated() -> None:
    """IN-60, IN-80. Goal: each message of a scan is bounded, wherever the long values are. Method: seven rows of nearly
    1 MB beside each other, before, behind and among three hundred short ones, and one alone: every row arrives, and no
    message is longer than the row of `Scan` says."""

    async def scenario(world: ServerWorld) -> None:
        long, sent = "x" * (limits.ROW_SIZE_BYTES_MAX - 100), dict[int, str | None]()
        for before, behind in ((0, 300), (300, 0), (150, 150), (0, 0)):
            values = ["s"] * before + [long] * (7 if before or behind else 1) + ["s"] * behind
            keys = list(range(len(sent), len(sent) + len(values)))
            request = write_request(world.uuid, TABLET, batch(keys, values))
            await world.done("TabletService", "Write", request)
            sent |= zip(keys, values, strict=True)
        request = pb.ScanRequest(dest_uuid=world.uuid, tablet_id=TABLET, all_columns=True)
        chunks = [c async for c in world.services()["TabletService"].Scan(request, None)]
        assert read_rows(chunks)[0] == sent
        assert max(c.ByteSize() for c in chunks) <= limits.REQUESTS["TabletService.Scan"].reply_bytes

    run_server(scenario)
