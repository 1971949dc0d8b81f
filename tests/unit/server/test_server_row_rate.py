"""How many rows a replica applies and reads in a second, as heartbeats have it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.rows import encode_batch
from nyala.replica.rpc import pb
from nyala.replica.server.requests.scans import Scans
from nyala.replica.server.tablets import status as status_module
from nyala.replica.server.tablets.row_rate import WINDOW_S, RowRate
from nyala.replica.server.tablets.status import replica_status
from tests.harness.copies import TABLET
from tests.harness.server_pair import Pair, run_pair


def test_rate_is_the_average_of_the_last_window() -> None:
    """Goal: one batch is no load, and a counter that begins anew is no negative one. Method: a counter at given times:
    within the first window, at its end, within the next one, after a long time without a sample, and anew."""
    rate = RowRate()
    assert [rate.sample(count, at) for count, at in ((1_000, 0.0), (2_000, WINDOW_S - 0.1))] == [0, 0]
    assert rate.sample(3_000, WINDOW_S) == round(2_000 / WINDOW_S)
    assert rate.sample(90_000, WINDOW_S + 1) == round(2_000 / WINDOW_S), "of the window that has ended"
    assert rate.sample(3_000 + 600, 7 * WINDOW_S) == round(600 / (6 * WINDOW_S))
    assert rate.sample(50, 8 * WINDOW_S) == 0 and rate.sample(50 + int(WINDOW_S), 9 * WINDOW_S) == 1


def test_status_of_a_replica_has_its_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: heartbeats say how many rows a replica applies and sends to readers. Method: 200 rows in two batches within
    a window of ten seconds; a scan of all of them and a read of 51 keys, of which 50 have rows."""

    async def nobody_leads(replica: Any, time: int) -> None:
        return

    async def scenario(pair: Pair) -> None:
        now, hosted = [100.0], pair.leader.hosted
        monkeypatch.setattr(status_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

        def rates() -> tuple[int, int]:
            found = replica_status(hosted, pair.leader.uuid, 50)
            return found.write_rows_per_s, found.read_rows_per_s

        await pair.put(1_000)
        assert rates() == (0, 0)
        await pair.put(*range(100))
        await pair.put(*range(100, 200))
        scans = Scans(pair.leader.manager.hybrid_clock, 2, nobody_leads, lambda hosted, error: None)
        try:
            async for _ in scans.scan(hosted, pb.ScanRequest(tablet_id=TABLET, all_columns=True)):
                pass
            keys = encode_batch(pa.record_batch([pa.array([*range(50), 5_000], pa.int64())], names=["k"]))
            await scans.get(hosted, pb.GetRequest(tablet_id=TABLET, columns=["k"], keys=keys, count=51))
        finally:
            scans.close()
        now[0] += 10.0
        assert rates() == (20, 25), "of 200 rows written, and of 201 and 50 read"
        now[0] += 10.0
        assert rates() == (0, 0)

    run_pair(scenario)
