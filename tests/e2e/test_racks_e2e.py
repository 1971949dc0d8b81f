"""A rack is lost, healed, and comes back; replicas are evened out; servers are emptied: under load, told by one log."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from nyala.infra.cli.app import app
from nyala.jobs import placement, rebalance
from nyala.replica.client import Client, ClientOptions, ScanSpec, TableHandle, wire_batches
from nyala.replica.rows import RowOp
from nyala.replica.rpc import pb
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.history import History
from tests.harness.plan_job import PlanJob
from tests.harness.register_load import ONE_TABLET, SCHEMA, values_of
from tests.harness.road import Road

pytestmark = [pytest.mark.e2e, pytest.mark.deep]
PREFIX = "racks."
TABLES = 30
LOADED = 6
"""As many tables are written and read all the time."""
PATIENCE_S = 400.0
PAUSE_S = 0.05


class StrictLoad:
    """Writers and readers of registers of which no request may fail: the client repeats what a kill interrupts."""

    def __init__(self, masters: list[str], handles: list[TableHandle]) -> None:
        self.histories = [History(time.monotonic) for _ in handles]
        self.failures: list[str] = []
        self.rounds = [0] * len(handles)
        self._masters, self._handles, self._over = masters, handles, threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(body, pos), daemon=True)
            for pos in range(len(handles))
            for body in (self._write, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, body: Any, pos: int) -> None:
        try:
            with Client(self._masters, ClientOptions(timeout_s=120, connect_timeout_s=60)) as client:
                body(client, pos)
        except BaseException as error:  # noqa: BLE001 - told by `more`
            self.failures.append(repr(error))

    def _write(self, client: Client, pos: int) -> None:
        handle, value = self._handles[pos], 0
        with client.session_writer(handle) as writer:
            while not self._over.wait(PAUSE_S):
                value += 1
                rows = pa.table({"k": pa.array([value % 3], pa.int64()), "v": pa.array([value], pa.int64())})
                call = self.histories[pos].write("writer", value % 3, value)
                for batch in wire_batches(handle, rows, RowOp.UPSERT):
                    writer.send(batch)
                writer.flush()
                call.returned()
                self.rounds[pos] += 1

    def _read(self, client: Client, pos: int) -> None:
        while not self._over.wait(PAUSE_S):
            calls = [self.histories[pos].read("reader", key) for key in range(3)]
            found = values_of(b for part in client.scan(self._handles[pos], ScanSpec()) for b in part.batches)
            for key, call in enumerate(calls):
                call.returned(found.get(key))

    def more(self) -> None:
        """Wait until each table has more writes; fail if any request did."""
        before = list(self.rounds)

        def advanced() -> bool:
            assert not self.failures, self.failures
            return all(now > was + 1 for now, was in zip(self.rounds, before, strict=True))

        wait_until(advanced, "the load goes on", PATIENCE_S)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(180)
            assert not thread.is_alive(), "a client hangs"

    def verify(self) -> None:
        """Check that no request failed, and that each register is linearizable."""
        assert not self.failures, self.failures
        for history in self.histories:
            assert history.verify() > 0


def test_rack_is_lost_healed_and_evened_out_and_two_servers_are_emptied_under_load(
    road: Road, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a cluster of three racks goes through a loss and a return without a failed request,
    and its history tells all of it. Method: nine servers, 30 tables, of which few hold most rows; a rack is killed and
    replaced in the others; the placement job then finds nothing that lacks a replica. The rack comes back; the
    rebalance job evens out replicas, leaders and racks. Two servers are retired and emptied. Strict writers and readers
    run all the time: each register is linearizable. At the end, the history's replay equals the catalog."""
    with local_cluster() as cluster:
        kafka = (f"--kafka={road.kafka}", f"--topic-prefix={PREFIX}", "--execute-decisions=master", "--policy-ms=200")
        master = cluster.add_master(*kafka, "--server-dead-ms=5000", "--rereplicate-after-ms=8000")
        racks = {cluster.add_server(f"--location=/dc1/rack{n % 3}").uuid: n % 3 for n in range(9)}
        lost = [server for server in cluster.servers if racks[server.uuid] == 0]
        with Client([master.address]) as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 9, "nine servers are alive")
            handles = [client.create_table(f"t{n}", SCHEMA, ONE_TABLET) for n in range(TABLES)]

            def tablets() -> list[pb.TabletInfo]:
                return [tablet for n in range(TABLES) for tablet in client.tablet_infos(f"t{n}")]

            def without(uuids: set[str]) -> bool:
                """Whether every tablet has three voters, none of them on these servers."""
                return all(
                    len(t.config.members) == 3
                    and not {m.uuid for m in t.config.members} & uuids
                    and all(m.votes and not m.replace for m in t.config.members)
                    for t in tablets()
                )

            wait_until(lambda: all(t.running for t in tablets()), "all tablets have leaders", PATIENCE_S)
            for pos, handle in enumerate(handles[-3:]):
                count = 20_000 * (pos + 1)
                with client.session_writer(handle) as writer:
                    rows = pa.table({"k": pa.array(range(10, 10 + count)), "v": pa.array(range(count))})
                    for batch in wire_batches(handle, rows, RowOp.INSERT):
                        writer.send(batch)
            load = StrictLoad([master.address], handles[:LOADED])
            try:
                load.more()
                for server in lost:
                    server.kill()
                wait_until(lambda: without({s.uuid for s in lost}), "the lost rack is replaced", PATIENCE_S)
                load.more()
                placing = PlanJob(placement.main, road, PREFIX, capsys, monkeypatch)
                rounds = ("--wait", "--wait-s", "400", "--rounds-max", "20", "--inputs-wait-s", "60")
                status, plans = placing.run("--under-replicated", *rounds)
                assert (status, plans[-1]["moves"]) == (0, []), plans

                for server in lost:
                    server.start()
                load.more()
                evening = PlanJob(rebalance.main, road, PREFIX, capsys, monkeypatch)
                caps = ("--moves-max", "60", "--moves-per-server-max", "12")

                def evened() -> bool:
                    status, plans = evening.run(*rounds, *caps)
                    return status == 0 and plans[-1]["moves"] == []

                wait_until(evened, "nothing is left to move", PATIENCE_S)
                held = Counter(m.uuid for t in tablets() for m in t.config.members)
                assert held.keys() == racks.keys() and max(held.values()) - min(held.values()) <= 1, held
                assert all(len({racks[m.uuid] for m in t.config.members}) == 3 for t in tablets())
                leaders = Counter(t.leader_uuid for t in tablets())
                assert max(leaders.values()) <= 5, leaders
                load.more()

                retired = {next(u for u, rack in racks.items() if rack == n) for n in (1, 2)}
                for uuid in retired:
                    client.retire_server(uuid, reason="emptied")
                wait_until(lambda: without(retired), "two servers are emptied", PATIENCE_S)
                load.more()
            finally:
                load.end()
            load.verify()
            for pos, handle in enumerate(handles[-3:]):
                assert client.count(handle, ScanSpec()) == 20_000 * (pos + 1)
        line = ["decisions", "replay", "--json", "--kafka", road.kafka, "--topic-prefix", PREFIX]
        done = CliRunner().invoke(app, [*line, "--masters", master.address])
        assert done.exit_code == 0, (done.output, done.exception)
        result = json.loads(done.stdout.splitlines()[-1])
        assert (result["equal"], result["tablets"], result["missing"], result["gaps"]) == (True, TABLES, 0, []), result
