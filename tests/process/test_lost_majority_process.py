"""Two of three servers are gone for good: the recovery on real directories, until there are three replicas again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client import TableHandle, wire_batches
from nyala.replica.fs import FENCE
from nyala.replica.rows import RowOp
from nyala.replica.tools import gather, judge
from nyala.replica.types import Code, DataState, Refused, generation_of
from tests.harness.cluster import wait_until
from tests.harness.source_load import SourceLoad
from tests.harness.stack import InsertLoad, Stack, running_stack

pytestmark = [pytest.mark.process, pytest.mark.deep]
MORE = 300


def nyala(*words: object, masters: str = "", **environment: str) -> tuple[int, str, str]:
    """Return (status, standard output, standard error) of one command."""
    command = [
        sys.executable,
        "-m",
        "nyala.infra.cli.app",
        *map(str, words),
        *(["--masters", masters] if masters else []),
    ]
    known = {**os.environ, "COLUMNS": "240", **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=known, check=False)
    return done.returncode, done.stdout, done.stderr


def refused(*words: object, says: str, masters: str = "") -> None:
    """Check that the command is refused, each time, with these words once it meets no election that comes by itself."""

    def told() -> bool:
        status, out, err = nyala(*words, masters=masters)
        assert status != 0 and "Traceback" not in err, (status, out, err)
        return says in " ".join((out + err).split())

    wait_until(told, f"it is refused: {says}")


def test_two_of_three_servers_lost_for_good_the_third_goes_on_and_returning_ones_are_harmless(tmp_path: Path) -> None:
    """CC-38, CC-43, CC-44, CC-46. Goal: item by item what the steps of a catastrophe promise, on real processes.
    Method: rows on three tablets, and an ingest that never stops; the survivor dies first and misses what the other two
    acknowledge, then they die; a running directory, a majority that is whole and a wrong fingerprint are refused; a
    recovery that dies half-way keeps its server from starting and is run again; the source goes back to what the
    survivor has; a query that began behind that is refused; the ingest reads the rest again; writes go on, two new
    servers make three replicas; then both lost ones, a majority of before, come back with their old directories at
    once, and are emptied while the ingest goes on: every record is there exactly once."""
    with running_stack(tmp_path / "stack", execute_decisions="master") as stack:
        supervisor, masters = stack.supervisor, stack.supervisor.masters
        handle, fed = stack.new_table("lost"), stack.new_table("fed", 2)
        with InsertLoad(stack, handle) as load:
            load.progress()
            load.finish()
        stack.verify_replicas()
        rows = stack.count(handle)
        survivor, old = supervisor.folder / "server-1", supervisor.folder / "server-2"
        recover = ("unsafe", "recover", "--root", survivor)
        wanted = ("--table", "lost", "--table", "fed")

        with SourceLoad(masters, fed) as ingest:
            ingest.progress()
            supervisor.kill_for_good("server-1")
            ingest.progress()
            for name in ("server-2", "server-3"):
                supervisor.kill_for_good(name)
            supervisor.start_child("server-1")
            refused(*recover, *wanted, masters=masters, says="works on this directory")
            status, out, err = nyala("unsafe", "recover", "--root", old, *wanted, masters=masters)
            assert status == 0 and "left alone" in out and "nothing to recover" in out, (out, err)
            supervisor.kill_for_good("server-1")

            status, out, err = nyala(*recover, *wanted, "--json", masters=masters)
            plan = json.loads(out)
            assert status == 0 and not plan["carried_out"] and len(plan["tablets"]) == 5, (out, err)
            uuid = supervisor.children["server-1"].ready["uuid"]
            assert {t["survivor"] for t in plan["tablets"]} == {uuid} and not any(
                t["entries_known_lost"] for t in plan["tablets"]
            )
            (lowered,) = plan["sources"]
            assert 0 < lowered["to"] < lowered["done"] and lowered["done"] >= ingest.done, lowered
            refused(*recover, *wanted, "--yes-i-lose-data=0123456789ab", masters=masters, says="not this plan's")
            confirmed = (*recover, *wanted, f"--yes-i-lose-data={plan['fingerprint']}")
            status, out, err = nyala(*confirmed, masters=masters, NYALA_CRASH_POINT="recover.rewritten")
            assert status not in (0, 1) and (survivor / FENCE).exists(), (status, out, err)
            server = [sys.executable, "-m", "nyala.replica.server", "--root", str(survivor), "--masters", masters]
            tried = subprocess.run(server, capture_output=True, text=True, timeout=240, check=False)
            assert tried.returncode == 1 and "unsafe recovery" in tried.stderr, tried
            status, out, err = nyala(*confirmed, masters=masters)
            assert status == 0 and "5 tablets recovered" in out, (status, out, err)
            assert stack.client.list_sources("fed")[0].done == lowered["to"]

            supervisor.start_child("server-1")
            assert stack.count(handle) == rows
            # A query that took the source just before the disaster, and sends its first batch only now.
            at = lowered["done"]
            records = pa.table({"k": [at, at + 1], "must": pa.array([1, 1], pa.int32())})
            writer = stack.client.source_writer(fed, ingest.source, generation=1, done=at)
            with pytest.raises(Refused, match="went on from a survivor") as refusal:
                for batch in wire_batches(fed, records, RowOp.INSERT, np.arange(at, at + 2)):
                    writer.send(batch)
                writer.flush()
            writer.abandon()
            assert refusal.value.code is Code.STALE_GENERATION
            insert(stack, handle, 1)
            ingest.progress()
            assert lowered["to"] in ingest.begun, "read again from what the survivor had"
            for _ in range(2):
                supervisor.add_server()
            wait_until(lambda: sound(stack), "three equal replicas of each tablet")
            insert(stack, handle, 2)

            gone = {supervisor.children[n].ready["uuid"] for n in ("server-2", "server-3")}
            for name in ("server-2", "server-3"):
                supervisor.start_child(name)
            for name in ("server-2", "server-3"):
                wait_until(lambda n=name: tombstones(stack, n) == 5, "what came back is emptied")  # type: ignore[misc]
            insert(stack, handle, 3)
            ingest.progress()
            wait_until(lambda: sound(stack), "the group is as it was before the return")
            assert stack.count(handle) == rows + 3 * MORE
            assert ingest.finish(stack.client) >= lowered["done"]
        for tablet in (*handle.tablets, *fed.tablets):
            leader = stack.statuses(tablet.tablet_id)[stack.leader(tablet.tablet_id)]
            assert generation_of(leader.term) == 1
            assert not gone & {m.uuid for m in leader.committed_config.members}


def test_every_replica_lost_an_empty_tablet_takes_the_place_and_returning_members_are_emptied(tmp_path: Path) -> None:
    """CC-38, CC-39, CC-46. Goal: a table of which every disk was lost is written and read again, and nobody who returns
    from before matters. Method: rows, and an ingest that never stops, on three tablets; replacing one whose servers
    live is refused; all die, one directory is put aside, one is wiped by hand, and strangers start in all; a plan
    is printed, a wrong fingerprint refused, the right one carried out; the ingest reads all from the start, a client
    with an old handle writes on after one refusal that says why; then the old directory comes back: its replicas are
    tombstones, and every record is there once."""
    with running_stack(tmp_path / "stack", execute_decisions="master") as stack:
        supervisor, masters = stack.supervisor, stack.supervisor.masters
        handle, fed = stack.new_table("lost", 1), stack.new_table("fed", 2)
        names = ("server-1", "server-2", "server-3")
        replace = ("tablet", "unsafe-replace", "--table", "lost", "--table", "fed")
        insert(stack, handle, 0)
        with SourceLoad(masters, fed) as ingest:
            ingest.progress()
            done = ingest.done
            refused("unsafe", "replace", "--tablet", handle.tablets[0].tablet_id, masters=masters, says="leads it")
            old = {supervisor.children[n].ready["uuid"] for n in names}
            for name in names:
                supervisor.kill_for_good(name)
            aside = tmp_path / "aside"
            shutil.move(supervisor.folder / "server-1", aside)
            status, out, err = nyala("fs", "wipe", supervisor.folder / "server-2", "--yes")
            assert status == 0, (out, err)
            supervisor.wipe_child("server-3")
            for name in names:
                supervisor.start_child(name)
            assert not old & {supervisor.children[n].ready["uuid"] for n in names}

            plan = wait_until(lambda: lost_plan(masters, replace, 3), "the masters take the old servers for dead")
            assert {u for t in plan["tablets"] for u in t["unseen"]} == old and not plan["left_alone"]
            assert plan["sources"][0]["to"] == 0 and plan["sources"][0]["done"] >= done
            refused(*replace, "--yes-i-lose-data=0123456789ab", masters=masters, says="not this plan's")
            status, out, err = nyala(*replace, f"--yes-i-lose-data={plan['fingerprint']}", masters=masters)
            assert status == 0 and "3 tablets replaced" in out and "there is no way back" in out, (out, err)

            with pytest.raises(Refused, match="replaced by an empty one"):
                insert(stack, handle, 1)
            insert(stack, handle, 2)
            ingest.progress()
            assert 0 in ingest.begun[1:], "read again from the start"

            shutil.move(aside, supervisor.folder / "server-4")
            name = supervisor.add_server()
            assert supervisor.children[name].ready["uuid"] in old
            wait_until(lambda: tombstones(stack, name) == 3, "what came back is emptied")
            insert(stack, handle, 3)
            wait_until(lambda: ingest.done > done, "all that was acknowledged before is there again")
            wait_until(lambda: sound(stack), "three equal replicas of each new tablet")
            assert stack.count(handle) == 2 * MORE and ingest.finish(stack.client) > done


def test_forced_config_is_named_by_a_check_until_the_command_that_it_tells_confirms_it(tmp_path: Path) -> None:
    """IN-42, CC-38. Goal: an operator who forces a config by hand is told what is missing, and what to type. Method: of
    three servers that die, one replica gets a config of itself alone with `cmeta rewrite`, and leads. The check names
    the tablet, the config and who tells of it; the command is typed as it stands there. Then nothing is found of it,
    new servers make three equal replicas with every acknowledged row, and the two that come back are emptied."""
    with running_stack(tmp_path / "stack", execute_decisions="master") as stack:
        supervisor, masters = stack.supervisor, stack.supervisor.masters
        handle = stack.new_table("forced", 1)
        (tablet,) = (t.tablet_id for t in handle.tablets)
        insert(stack, handle, 0)
        # Of the three, the leader certainly has every acknowledged row.
        names = tuple(sorted(("server-1", "server-2", "server-3"), key=lambda name: name != stack.leader(tablet)))
        (place,) = stack.info(names[0]).addresses
        for name in names:
            supervisor.kill_for_good(name)
        uuid = supervisor.children[names[0]].ready["uuid"]
        peer = f"{uuid}={place.host}:{place.port}"
        status, out, err = nyala("cmeta", "rewrite", supervisor.folder / names[0], tablet, "--peer", peer, "--yes")
        assert status == 0, (out, err)
        supervisor.start_child(names[0])
        assert stack.count(handle) == MORE

        def unproven() -> list[str]:
            return [f.what for f in judge(gather(stack.client)) if "is not proven" in f.what]

        (what,) = wait_until(unproven, "the config is named")
        assert f"(voters {uuid}), told by {uuid} for " in what, what
        command = what.split("`")[-2].split()
        assert command == f"nyala unsafe confirm-config --tablet {tablet} --server {uuid}".split()
        status, out, err = nyala(*command[1:], "--yes", masters=masters)
        assert status == 0 and f"of tablet {tablet} is confirmed: {uuid}" in out, (out, err)
        assert not unproven()
        for _ in names[1:]:
            supervisor.add_server()
        wait_until(lambda: sound(stack), "three equal replicas")
        for name in names[1:]:
            supervisor.start_child(name)
        for name in names[1:]:
            wait_until(lambda n=name: tombstones(stack, n) == 1, "what came back is emptied")  # type: ignore[misc]
        wait_until(lambda: sound(stack), "the masters have heard that it is")
        assert stack.count(handle) == MORE


def lost_plan(masters: str, replace: tuple[str, ...], tablets: int) -> dict[str, Any] | None:
    """Return the plan of `replace`, once it has so many tablets."""
    status, out, err = nyala(*replace, "--json", masters=masters)
    plan = json.loads(out)
    assert status == 0 and not plan["carried_out"], (out, err)
    return plan if len(plan["tablets"]) == tablets else None


def insert(stack: Stack, handle: TableHandle, part: int) -> None:
    """Insert MORE new rows, acknowledged."""
    first = (1 << 50) + part * MORE
    columns = pa.table({"k": np.arange(first, first + MORE), "must": np.ones(MORE, np.int32)})
    writer = stack.client.session_writer(handle)
    for batch in wire_batches(handle, columns, RowOp.INSERT):
        writer.send(batch)
    writer.flush()
    assert not writer.row_errors
    writer.close()


def sound(stack: Stack) -> bool:
    """Return whether no tablet has a defect: three voters, replicas with equal rows. Servers that are gone for good
    stay a finding."""
    view = gather(stack.client, checksum=True)
    return not [f for f in judge(view) if f.subject.startswith("tablet")]


def tombstones(stack: Stack, name: str) -> int:
    """Return the tombstones of a server that may not have sent the master its new address yet."""
    try:
        statuses = stack.client.list_tablets(stack.info(name))
    except Refused:
        return 0
    return sum(s.data_state == DataState.DELETED for s in statuses)
