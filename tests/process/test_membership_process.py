"""Memberships requested by command on real processes under load: numbers, roles, retirement, giving up, careless
lines."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from typer.testing import CliRunner

import nyala
from nyala.infra.cli.app import app
from nyala.infra.cli.context import console
from nyala.replica.rpc import pb
from nyala.replica.tools import Severity, gather, judge
from nyala.replica.types import (
    Address,
    Code,
    ConfigEdit,
    DataState,
    EditKind,
    Member,
    OpId,
    Refused,
    ReplicaError,
    limits,
)
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import copies

pytestmark = pytest.mark.process

FAST = (
    "--server-dead-ms=4000",
    "--rereplicate-after-ms=900000",
    "--policy-ms=100",
    "--abandoned-copy-grace-ms=15000",
    "--execute-decisions=master",
)
ASK_AGAIN_S = 20
"""A time below that for which a client repeats a call if that may help."""
HANGS_S = 120
"""A time that no request of a client takes: it is answered, or refused, before."""


def end(thread: threading.Thread) -> None:
    """Wait for a thread that was stopped; AssertionError if a request of it hangs."""
    thread.join(HANGS_S)
    assert not thread.is_alive(), f"the thread {thread.name!r} has not ended within {HANGS_S} s: a request hangs"


class Load:
    """One writer that upserts ascending keys without a pause; any refusal that the client does not outlast is kept."""

    def __init__(self, masters: str, table: str = "t") -> None:
        self.acknowledged = 0
        self.error: BaseException | None = None
        self._masters = masters
        self._table = table
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        end(self._thread)

    def _write(self) -> None:
        try:
            with nyala.connect(self._masters) as cluster:
                table = cluster.table(self._table)
                while not self._end.is_set():
                    table.upsert([{"id": self.acknowledged, "v": "x"}])
                    self.acknowledged += 1
                    self._end.wait(0.01)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test's own thread says so
            self.error = error


class Town:
    """Five servers, one master that carries decisions out, one table of two tablets, and the command line."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.master = cluster.add_master(*FAST)
        for _ in range(5):
            cluster.add_server(start=False)
        for server in cluster.servers:
            server.start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        self.nyala = nyala.connect(self.master.address)
        self.client = self.nyala.client
        wait_until(lambda: sum(s.alive for s in self.client.list_servers().servers) == 5, "five servers are alive")
        self.nyala.create_table("t", {"id": "int64", "v": "string"}, key="id", hash_buckets=2)
        wait_until(lambda: all(t.running for t in self.infos()), "every tablet has a leader")

    def infos(self) -> list[pb.TabletInfo]:
        return self.client.tablet_infos("t")

    def info(self, tablet_id: str) -> pb.TabletInfo:
        return next(t for t in self.infos() if t.tablet_id == tablet_id)

    def voters(self, tablet_id: str) -> set[str]:
        return {m.uuid for m in self.info(tablet_id).config.members if m.votes}

    def off(self, tablet_id: str) -> list[ServerProcess]:
        """Return the servers that are no members of the tablet."""
        members = {m.uuid for m in self.info(tablet_id).config.members}
        return [s for s in self.cluster.servers if s.uuid not in members]

    def run(self, line: str) -> str:
        """Return the output of a command, which must end well."""
        result = CliRunner().invoke(app, [*line.split(), "--masters", self.master.address])
        assert result.exit_code == 0, (line, result.output, result.exception)
        return result.output

    def settle(self, line: str, tablet_id: str) -> str:
        """Return the output of a command about a tablet; when it returns, another change may be requested."""
        said = self.run(line)
        wait_until(lambda: not self.info(tablet_id).HasField("wish"), "nothing is wanted any more")
        return said

    def check(self) -> str:
        """Return the output of `cluster check` once nothing is wrong: for a moment, an election that comes by itself
        counts as wrong."""

        def said() -> str | None:
            result = CliRunner().invoke(app, ["cluster", "check", "--masters", self.master.address])
            return result.output if result.exit_code == 0 else None

        return wait_until(said, "cluster check ends well")

    def restart_master(self) -> None:
        """Kill -9 the master and start it, until it leads: a command waits only a few seconds for its first answer."""
        self.master.kill()
        self.master.start()
        wait_until(lambda: self.client.list_tables(), "the master answers")

    def refused(self, line: str) -> str:
        """Return the one line of a command that must fail."""
        result = CliRunner().invoke(app, [*line.split(), "--masters", self.master.address])
        assert result.exit_code != 0, (line, result.output)
        if isinstance(result.exception, ReplicaError):
            return str(result.exception)
        assert isinstance(result.exception, SystemExit), (line, result.exception)
        return " ".join(result.output.replace("│", " ").split())

    def well(self) -> None:
        """Check that nothing is wrong, and every acknowledged row is there once."""

        def healthy() -> bool:
            return not [f for f in judge(gather(self.client)) if f.severity is Severity.ERROR]

        wait_until(healthy, "cluster check finds nothing wrong")


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    width, console.width = console.width, 300  # no cell of a table is cut, whatever the tests' terminal
    try:
        with local_cluster() as cluster:
            made = Town(cluster)
            with made.nyala:
                yield made
    finally:
        console.width = width


def test_number_of_voters_changes_under_load_though_the_master_dies(town: Town) -> None:
    """Goal: TC-82: 3 to 5 to 3 voters under a strict load, the master killed half-way. Method: want five, kill -9 the
    master at once, start it, want the same again and wait; then three for the table, five for one tablet, and back."""
    with Load(town.master.address) as load:
        town.run("table set-replication t 5 --no-wait")
        town.restart_master()
        assert "done" in town.run("table set-replication t 5")
        assert {len(town.voters(t.tablet_id)) for t in town.infos()} == {5}
        one, other = (t.tablet_id for t in town.infos())
        town.run(f"table set-replication t 5 --tablet {one} --no-wait")
        assert json.loads(town.run("table set-replication t 3 --json --no-wait"))["done"] is False
        wait_until(lambda: (len(town.voters(one)), len(town.voters(other))) == (5, 3), "each has its own number")
        listed = {t["tablet_id"]: t for t in json.loads(town.run("tablet list --json"))}
        assert (listed[one]["voters_wanted"], listed[other]["voters_wanted"]) == (5, 3)
        town.run(f"table set-replication t 0 --tablet {one}")
        assert {len(town.voters(t.tablet_id)) for t in town.infos()} == {3}
    assert load.error is None, load.error
    assert load.acknowledged > 0 and town.nyala.table("t").scan().count() == load.acknowledged
    town.well()


def test_retired_server_ends_with_tombstones_only(town: Town) -> None:
    """Goal: TC-83: retiring moves every replica off under load, shows how far it is, and can be undone. Method: retire
    the server that leads a tablet, kill -9 the master half-way; then only tombstones are on it; unretire."""
    server = town.cluster.leader(town.infos()[0].tablet_id)
    with Load(town.master.address) as load:
        town.run(f"server retire {server.uuid} --reason disk --no-wait")
        town.restart_master()
        shown = json.loads(town.run(f"server retire {server.uuid[:12]} --json"))
        assert (shown["done"], shown["drained"], shown["tablets_left"], shown["reason"]) == (True, True, 0, "disk")
    assert load.error is None, load.error
    held = [s for t in town.infos() if (s := town.cluster.status(server, t.tablet_id)) is not None]
    assert held and {s.data_state for s in held} == {DataState.DELETED}, "as the master was told"
    assert "retired: nothing is left on it" in town.run("server list")
    assert "being retired" in town.refused(f"tablet change-config add {town.infos()[0].tablet_id} {server.uuid}")
    assert "is used again" in town.run(f"server unretire {server.uuid}")
    assert "was not being retired" in town.run(f"server unretire {server.uuid}")
    town.well()


def test_members_are_added_promoted_demoted_moved_and_removed_by_command(town: Town) -> None:
    """Goal: TC-03, TC-04, TC-71: one tablet's members change as commanded, by compare-and-swap at its leader. Method:
    add a non-voter, promote it (another leaves), demote it (another comes), remove it, move one; look at each."""
    tablet = town.infos()[0].tablet_id
    new = town.off(tablet)[0].uuid
    town.settle(f"tablet change-config add {tablet} {new} --non-voter", tablet)
    assert new not in town.voters(tablet) and len(town.voters(tablet)) == 3
    assert "voters of" not in town.check()
    town.settle(f"tablet change-config promote {tablet} {new}", tablet)
    wait_until(lambda: len(town.voters(tablet)) == 3, "one has left")
    assert new in town.voters(tablet)
    town.settle(f"tablet change-config demote {tablet} {new}", tablet)
    assert new not in town.voters(tablet) and len(town.voters(tablet)) == 3
    assert new in {m.uuid for m in town.info(tablet).config.members}
    town.settle(f"tablet change-config remove {tablet} {new}", tablet)
    state = lambda: getattr(town.cluster.status(town.cluster.server(new), tablet), "data_state", 0)  # noqa: E731
    wait_until(lambda: state() == DataState.DELETED, "it is a tombstone")
    source = sorted(town.voters(tablet))[0]
    moved = json.loads(town.settle(f"tablet change-config move {tablet} {source} {new} --json", tablet))
    assert moved["done"] is True and new in town.voters(tablet) and source not in town.voters(tablet)
    town.well()


def test_leader_is_removed_by_command_and_by_a_driver_without_a_failed_write(town: Town) -> None:
    """CC-28, CC-27. Goal: who removes the leader ends with the member gone, though it hands over first, and a client
    that writes meanwhile notices nothing. Method: under a strict writer, the leader is asked to remove itself: it is
    STEPPING_DOWN, another leads, and the config is what it was; a driver removes the leader that there is then, by one
    call; the masters bring a third voter, and a command removes the leader again."""
    tablet = town.infos()[1].tablet_id

    def settled(above: int) -> bool:
        config = town.info(tablet).config
        whole = len(config.members) == 3 and all(m.votes and not m.replace for m in config.members)
        return whole and config.opid.index > above

    def leader(above: int = -1) -> ServerProcess:
        wait_until(lambda: settled(above), "three voters, and nothing under way")
        return town.cluster.leader(tablet)

    def removal(of: ServerProcess) -> tuple[OpId, Member]:
        status = town.cluster.status(of, tablet)
        opid = status.committed_config.opid
        return OpId(opid.term, opid.index), Member(of.uuid, (Address.parse(of.address),))

    with Load(town.master.address) as load:
        first = leader()
        cas, member = removal(first)
        request = pb.ChangeConfigRequest(
            dest_uuid=first.uuid,
            tablet_id=tablet,
            edits=[pb.ConfigEdit(kind="remove", member=pb.Member(uuid=first.uuid))],
            committed_config_id=pb.OpId(term=cas.term, index=cas.index),
            has_cas=True,
        )
        with pytest.raises(Refused, match="hands over before it is removed") as refused:
            town.client.calls.at_server(Address.parse(first.address), first.uuid, "ChangeConfig", request)
        assert refused.value.code is Code.STEPPING_DOWN
        wait_until(lambda: town.cluster.leader(tablet).uuid != first.uuid, "another leads")
        assert removal(first)[0] == cas
        second = leader()
        cas, member = removal(second)
        left = town.client.change_config("t", tablet, [ConfigEdit(EditKind.REMOVE, member)], cas=cas)
        assert left.member(second.uuid) is None and len(left.voters) == 2
        third = leader(above=left.opid.index)
        before = load.acknowledged
        assert "done" in town.settle(f"tablet change-config remove {tablet} {third.uuid}", tablet)
        assert third.uuid not in {m.uuid for m in town.info(tablet).config.members}
        leader()
        wait_until(lambda: load.acknowledged > before, "the writer goes on")
    assert load.error is None, load.error
    assert town.nyala.table("t").scan().count() >= load.acknowledged
    town.well()


class Reads:
    """One reader that counts the table again and again; it records each count that lacks rows acknowledged before."""

    def __init__(self, masters: str, load: Load) -> None:
        self.scans = 0
        self.error: BaseException | None = None
        self._masters, self._load = masters, load
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reads", daemon=True)

    def __enter__(self) -> Reads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        end(self._thread)

    def _read(self) -> None:
        try:
            with nyala.connect(self._masters) as cluster:
                table = cluster.table("t")
                while not self._end.is_set():
                    known = self._load.acknowledged
                    found = table.scan().count()
                    assert found >= known, f"a scan found {found} rows of {known} acknowledged before it"
                    self.scans += 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test's own thread says so
            self.error = error


def test_replicas_move_under_load_without_a_failed_request(town: Town) -> None:
    """Goal: TC-81: a move costs no client a request. Method: while one client writes and one scans strictly, move a
    follower's replica and then the leader's: no request fails, no acknowledged row is missed by any scan."""
    tablet = town.infos()[0].tablet_id
    with Load(town.master.address) as load, Reads(town.master.address, load) as reads:
        for of_the_leader in (False, True):
            leader = town.cluster.leader(tablet).uuid
            source = leader if of_the_leader else sorted(town.voters(tablet) - {leader})[0]
            target = town.off(tablet)[0].uuid
            before = load.acknowledged, reads.scans
            moved = json.loads(town.settle(f"tablet change-config move {tablet} {source} {target} --json", tablet))
            assert moved["done"] is True and target in town.voters(tablet) and source not in town.voters(tablet)
            wait_until(lambda b=before: load.acknowledged > b[0] and reads.scans > b[1], "both go on")  # type: ignore[misc]
    assert load.error is None, load.error
    assert reads.error is None, reads.error
    assert town.nyala.table("t").scan().count() >= load.acknowledged
    town.well()


class Storm:
    """Moves the leadership of each tablet round its voters without a pause; every other time the leader is stopped at
    the moment at which it is asked to transfer leadership, until another one may have been elected."""

    STOPPED_S = 1.0

    def __init__(self, town: Town) -> None:
        self.asked = self.stopped = 0
        self._town = town
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="storm")

    def __enter__(self) -> Storm:
        self._storm = self._pool.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._pool.shutdown()

    def over(self) -> None:
        """End the transfers; an error that was no refusal is raised here."""
        self._end.set()
        self._storm.result(120)

    def _run(self) -> None:
        while not self._end.is_set():
            for info in self._town.infos():
                voters = sorted(m.uuid for m in info.config.members if m.votes)
                if info.leader_uuid in voters:
                    to = voters[(voters.index(info.leader_uuid) + 1) % len(voters)]
                    self._hand_over(info.tablet_id, self._town.cluster.server(info.leader_uuid), to)

    def _hand_over(self, tablet_id: str, leader: ServerProcess, to: str) -> None:
        asked = self._pool.submit(self._town.client.transfer_leadership, "t", tablet_id, to)
        self.asked += 1
        if self.asked % 2 == 0:
            self.stopped += 1
            leader.signal(signal.SIGSTOP)
            try:
                self._end.wait(self.STOPPED_S)
            finally:
                leader.signal(signal.SIGCONT)
        with suppress(Refused):  # it no longer leads, or the other one is behind
            asked.result(120)


@pytest.mark.deep
def test_moves_end_and_no_write_fails_while_leaders_change_all_the_time(town: Town) -> None:
    """Goal: scenarios 93 and 102: transfers, and leaders that fall in the midst of them, cost a client no write, and
    moves that go on meanwhile no false error; when they cease, all is well by itself. Method: leadership goes round, by
    transfers half of whose leaders are stopped, under a strict writer; a replica is moved by command, and back."""
    (info, *_), terms = town.infos(), sum(t.term for t in town.infos())
    source, target = sorted(town.voters(info.tablet_id))[0], town.off(info.tablet_id)[0].uuid
    with Load(town.master.address) as load, Storm(town) as storm:
        for one, other in ((source, target), (target, source)):
            before = load.acknowledged
            move = f"tablet change-config move {info.tablet_id} {one} {other} --json"
            moved = json.loads(town.settle(move, info.tablet_id))
            assert moved["done"] is True and other in town.voters(info.tablet_id)
            wait_until(lambda b=before: load.acknowledged > b, "writes go on")  # type: ignore[misc]
        changed = lambda: sum(t.term for t in town.infos()) >= terms + 4  # noqa: E731
        wait_until(lambda: storm.stopped >= 2 and changed(), "leaders were stopped, and changed")
        storm.over()
        calm = load.acknowledged
        wait_until(lambda: load.acknowledged > calm + 20, "writes go on by themselves")
    assert load.error is None, load.error
    assert town.nyala.table("t").scan().count() >= load.acknowledged
    town.well()


def test_added_server_that_falls_silent_is_given_up_by_command(town: Town) -> None:
    """Goal: TC-79: an add whose peer is silent is aborted by command: the config is as before, and writes never
    stopped. Method: freeze a server, add it, see the learner in the config, cancel, see it gone; thaw."""
    tablet = town.infos()[0].tablet_id
    silent, before = town.off(tablet)[0], town.voters(tablet)
    silent.signal(signal.SIGSTOP)
    try:
        with Load(town.master.address) as load:
            town.run(f"tablet change-config add {tablet} {silent.uuid} --no-wait")
            members: Any = lambda: {m.uuid for m in town.info(tablet).config.members}  # noqa: E731
            wait_until(lambda: silent.uuid in members(), "it is a member")
            assert f"add {silent.uuid[:8]}" in town.run("tablet list")
            town.run(f"tablet change-config cancel {tablet}")
            wait_until(lambda: silent.uuid not in members(), "it is none any more")
            wait_until(lambda: not town.info(tablet).HasField("wish"), "nothing is wanted any more")
        assert load.error is None, load.error
        assert town.voters(tablet) == before
        assert "nothing is wanted" in town.refused(f"tablet change-config cancel {tablet}")
    finally:
        silent.signal(signal.SIGCONT)
    wait_until(lambda: sum(s.alive for s in town.client.list_servers().servers) == 5, "it is back")


def test_only_replica_of_a_tablet_moves_and_the_former_one_is_deleted(town: Town) -> None:
    """IN-42. Goal: the masters believe that one of two voters is left where an operator wants one. Method: a tablet of
    one replica moves to another server by command: the former replica becomes a tombstone, the rows are there."""
    town.nyala.create_table("single", {"id": "int64"}, key="id", replication_factor=1)
    wait_until(lambda: all(t.running for t in town.client.tablet_infos("single")), "it has a leader")
    (info,) = town.client.tablet_infos("single")
    table = town.nyala.table("single")
    table.insert([{"id": n} for n in range(100)])
    target = next(s for s in town.cluster.servers if s.uuid != info.leader_uuid)
    town.run(f"tablet change-config move {info.tablet_id} {info.leader_uuid} {target.uuid} --no-wait")
    left = town.cluster.server(info.leader_uuid)
    state = lambda: getattr(town.cluster.status(left, info.tablet_id), "data_state", 0)  # noqa: E731
    wait_until(lambda: state() == DataState.DELETED, "it is a tombstone")
    assert table.scan().count() == 100
    assert [m.uuid for m in town.client.tablet_infos("single")[0].config.members] == [target.uuid]
    town.nyala.drop_table("single")


def test_voter_added_directly_that_is_silent_is_taken_back_by_the_leader(town: Town) -> None:
    """Goal: TC-80: a driver that made a frozen server the second voter of one does not stop the tablet: the leader
    takes the change back by itself, says so, and what waited is done. Method: a table of one replica, a direct change,
    writes meanwhile; the row is there, the config is the old one, and a repeated change is refused as outdated."""
    town.nyala.create_table("alone", {"id": "int64"}, key="id", replication_factor=1)
    wait_until(lambda: all(t.running for t in town.client.tablet_infos("alone")), "it has a leader")
    (info,) = town.client.tablet_infos("alone")
    table = town.nyala.table("alone")
    table.insert([{"id": 1}])
    silent = next(s for s in town.cluster.servers if s.uuid != info.leader_uuid)
    silent.signal(signal.SIGSTOP)
    try:
        host, _, port = silent.address.rpartition(":")
        edit = ConfigEdit(EditKind.ADD, Member(silent.uuid, (Address(host, int(port)),)))
        with pytest.raises(Refused, match="taken back"):
            town.client.change_config("alone", info.tablet_id, [edit], timeout_s=90)
        table.insert([{"id": 2}])
        assert table.scan().count() == 2
        status = town.cluster.status(town.cluster.server(info.leader_uuid), info.tablet_id)
        assert status is not None and [m.uuid for m in status.committed_config.members] == [info.leader_uuid]
        assert (status.role, status.term) == ("LEADER", info.term)
        old = OpId(info.config.opid.term, info.config.opid.index)
        with pytest.raises(Refused) as outdated:
            town.client.change_config("alone", info.tablet_id, [edit], cas=old)
        assert outdated.value.code is Code.CAS_FAILED
    finally:
        silent.signal(signal.SIGCONT)
        town.nyala.drop_table("alone")
    wait_until(lambda: sum(s.alive for s in town.client.list_servers().servers) == 5, "it is back")


def test_witness_is_added_by_command_shown_as_one_and_becomes_whole(town: Town) -> None:
    """CC-47, CC-48, CC-54. Goal: an operator's witness is what the help says. Method: three voters that live and 20 MB;
    the fourth, slow at copies, is added with --witness: it votes without a row, and tables, JSON and the cluster check
    call it WITNESS; another one, a silent one, or the same again, is refused at once; writes go on. Started without the
    bound it becomes whole, is called a follower, and since nobody was lost another voter leaves."""
    town.nyala.create_table("w", {"id": "int64", "v": "string"}, key="id", hash_buckets=1)
    wait_until(lambda: all(t.running for t in town.client.tablet_infos("w")), "it has a leader")
    table, (info,) = town.nyala.table("w"), town.client.tablet_infos("w")
    for part in range(4):
        first = part * 5_000
        table.upsert([{"id": i, "v": f"{i * 7919**300:01200d}"[:1000]} for i in range(first, first + 5_000)])
    members = {m.uuid for m in info.config.members}
    new, other = (s for s in town.cluster.servers if s.uuid not in members)
    command = f"tablet change-config add {info.tablet_id}"

    def shown(uuid: str) -> dict[str, Any]:
        (tablet,) = json.loads(town.run("tablet list --table w --json"))
        return next((r for r in tablet["replicas"] if r["server"] == uuid), {})

    def row(said: str) -> str:
        rows = [text for text in said.splitlines() if info.tablet_id[:8] in text and new.uuid[:8] in text]
        return next((text for text in rows if "READY" in text), "")

    listed = lambda: row(town.run("tablet list --table w"))  # noqa: E731

    usual = new.extra
    # At the lowest rate that a server takes, 20 MB need 160 s, more than any wait here: it is a witness until then.
    restart(town, new, (*usual, "--copy-rate-bytes-per-s", str(limits.COPY_RATE_MIN_BYTES_PER_S)))
    assert "done" in town.run(f"{command} {new.uuid[:12]} --witness")
    wait_until(lambda: "WITNESS" in listed(), f"it is listed as a witness, and not as {shown(new.uuid)}")
    wait_until(lambda: "WITNESS" in row(town.check()), "the check calls it a witness")
    as_witness = lambda: (s := shown(new.uuid)) and (s["witness"], s["rows"]) == (True, 0)  # noqa: E731
    wait_until(as_witness, "it has no row")
    assert "a member already" in town.refused(f"{command} {new.uuid} --witness")
    assert f"add {new.uuid[:8]}" in town.run("tablet list --table w")
    assert "wanted already" in town.refused(f"{command} {other.uuid} --witness")
    other.stop()
    alive = lambda: {s.uuid for s in town.client.list_servers().servers if s.alive}  # noqa: E731
    wait_until(lambda: other.uuid not in alive(), "the other one is away")
    asked = time.monotonic()
    assert "not alive" in town.refused(f"{command} {other.uuid} --witness")
    assert time.monotonic() - asked < ASK_AGAIN_S, "told at once"
    other.start()
    table.upsert([{"id": 20_000, "v": "one more"}])

    restart(town, new, usual)
    wait_until(lambda: shown(new.uuid).get("witness") is False, "it is whole")
    voters = lambda: {m.uuid for m in town.client.tablet_infos("w")[0].config.members if m.votes}  # noqa: E731
    wait_until(lambda: len(voters()) == 3, "one too many has left")
    assert new.uuid in voters() and "WITNESS" not in listed()
    wait_until(lambda: shown(new.uuid).get("rows") == 20_001, "it has every row")
    town.well()
    town.nyala.drop_table("w")


@pytest.mark.deep
def test_copy_made_before_its_server_is_added_is_used_and_an_abandoned_one_is_deleted(town: Town) -> None:
    """CC-06, CC-07, CC-10, X-12. Goal: a driver may copy first and add then, by command; if it dies in between, what it
    copied goes. Method: `copy start` to two servers that are in no config, while rows are written; the copies reach at
    least to where the leader was before. Once the master has heard twice of both being complete, one is added and takes
    part with what was copied, by one copy in all; the other becomes a tombstone by itself, once the grace is over. A
    server that has it already, or is none, is refused in one line."""
    town.nyala.create_table("p", {"id": "int64", "v": "string"}, key="id", hash_buckets=1)
    wait_until(lambda: all(t.running for t in town.client.tablet_infos("p")), "it has a leader")
    table, (info,) = town.nyala.table("p"), town.client.tablet_infos("p")
    table.upsert([{"id": i, "v": "x"} for i in range(100)])
    members = {m.uuid for m in info.config.members}
    added, abandoned = outside = [s for s in town.cluster.servers if s.uuid not in members]

    def state(server: ServerProcess) -> int:
        return int(getattr(town.cluster.status(server, info.tablet_id), "data_state", DataState.DOES_NOT_EXIST))

    def copied(server: ServerProcess) -> bool:
        """Return whether the copy is complete there; it is begun again if its source was deposed meanwhile."""
        if state(server) != DataState.READY:
            line = f"copy start {info.tablet_id} --server {server.uuid} --wait --masters {town.master.address}"
            result = CliRunner().invoke(app, line.split())
            return result.exit_code == 0 and f"change-config add {info.tablet_id[:8]}" in result.output
        return True

    at_least = town.cluster.status(town.cluster.leader(info.tablet_id), info.tablet_id).commit_index
    with Load(town.master.address, "p") as load:
        wait_until(lambda: {copied(s) for s in outside} == {True}, "both are copied")
    rows = max(100, load.acknowledged)
    assert load.error is None, load.error
    assert min(town.cluster.status(s, info.tablet_id).last_logged.index for s in outside) >= at_least
    assert "has the tablet already" in town.refused(f"copy start {info.tablet_id} --server {added.uuid}")
    assert "0 servers begin with 'zz'" in town.refused(f"copy start {info.tablet_id} --server zz")
    for _ in range(2):  # the order that would come with the first reply is begun before the second report
        since = time.monotonic()
        wait_until(lambda since=since: all(heard(town, s.uuid) > since for s in outside), "both have reported")
    assert "done" in town.run(f"tablet change-config add {info.tablet_id} {added.uuid} --non-voter")
    table.upsert([{"id": -1, "v": "x"}])
    wait_until(lambda: town.cluster.status(added, info.tablet_id).rows == rows + 1, "it takes part")
    phases = [j.phase for j in copies(added) if j.tablet_id == info.tablet_id]
    assert [phase for phase in phases if phase != "FAILED"] == ["DONE"], "it was copied once"
    wait_until(lambda: state(abandoned) == DataState.DELETED, "nobody added the other one")
    assert state(added) == DataState.READY
    town.well()
    town.nyala.drop_table("p")


def heard(town: Town, uuid: str) -> float:
    """Return when the master received the server's last heartbeat, by the monotonic clock."""
    now = time.monotonic()
    (server,) = (s for s in town.client.list_servers().servers if s.uuid == uuid)
    return now - server.last_heartbeat_us_ago / 1e6


def restart(town: Town, server: ServerProcess, options: tuple[str, ...]) -> None:
    """Start a server again, with other options, until the master knows the new process."""
    server.stop()
    server.extra, since = options, time.monotonic()
    server.start()
    wait_until(lambda: heard(town, server.uuid) > since, "the master has heard it")
    wait_until(lambda: sum(s.alive for s in town.client.list_servers().servers) == 5, "all are alive")


def test_commands_that_look_and_hand_over_say_what_is(town: Town) -> None:
    """Goal: an operator's usual lines do what their help states, for operators and for programs. Method: a table made
    by command is listed and described; its leader steps down in favour of a follower; a replica moves, and the copy is
    listed; the cluster check's JSON has each replica of it, caught up; dropped by command, the table is gone."""
    town.run("table create seen -c id:int64 -c note:string -k id --buckets 1")
    wait_until(lambda: all(t.running for t in town.client.tablet_infos("seen")), "it has a leader")
    (info,) = town.client.tablet_infos("seen")
    tablet = info.tablet_id
    town.nyala.table("seen").upsert([{"id": i, "note": "x"} for i in range(100)])

    (listed,) = (t for t in json.loads(town.run("table list --json")) if t["name"] == "seen")
    described = json.loads(town.run("table describe seen --json"))
    assert listed == described
    assert (described["key"], described["tablets"], described["buckets"]) == (["id"], [tablet], 1)
    assert [(c["name"], c["type"]) for c in described["columns"]] == [("id", "int64"), ("note", "string")]
    assert (described["replication_factor"], described["topic"]) == (3, "writes.seen")
    assert any("seen" in text and "writes.seen" in text for text in town.run("table list").splitlines())
    shown = town.run("table describe seen")
    assert "note" in shown and "1 tablets, 3 replicas; history of 900 s; topic writes.seen" in shown

    first = town.cluster.leader(tablet).uuid
    heir = sorted({m.uuid for m in info.config.members} - {first})[0]

    def handed_over() -> bool:
        """Transfer leadership, again if the follower was not ready; one that leads already is named again."""
        line = f"tablet leader-step-down {tablet[:12]} --to {heir[:12]} --masters {town.master.address}"
        result = CliRunner().invoke(app, line.split())
        return result.exit_code == 0 and f"{heir} leads {tablet}" in result.output

    wait_until(handed_over, "the heir was named")

    members = {m.uuid for m in info.config.members}
    target = next(s for s in town.cluster.servers if s.uuid not in members)
    assert json.loads(town.run(f"tablet change-config move {tablet} {first} {target.uuid} --json"))["done"] is True

    def copy_job() -> dict[str, Any] | None:
        """Return the target's side of the copy, once it has ended well."""
        jobs = [j for j in json.loads(town.run("copy list --json")) if j["tablet_id"] == tablet]
        return next((j for j in jobs if (j["target_uuid"], j["phase"]) == (target.uuid, "DONE")), None)

    job = wait_until(copy_job, "the copy is listed as done")
    assert min(job["bytes_done"], job["bytes_total"]) > 0 and job["source_uuid"] in members and not job["error"]
    words = (tablet[:8], target.uuid[:8], "DONE")
    rows = lambda: [text for text in town.run("copy list").splitlines() if all(w in text for w in words)]  # noqa: E731
    wait_until(rows, "the copy is shown")

    def checked() -> dict[str, Any] | None:
        """Return what the check reports of the tablet once nothing is wrong and its three voters have applied
        everything."""
        result = CliRunner().invoke(app, ["cluster", "check", "--json", "--masters", town.master.address])
        if result.exit_code != 0:
            return None
        told = json.loads(result.output)
        (found,) = (t for t in told["tablets"] if t["tablet_id"] == tablet)
        held = {r["server"]: r for r in found["replicas"] if r["data_state"] == "READY"}
        wanted = dict.fromkeys(members - {first} | {target.uuid}, (0, 100, False))
        seen = {uuid: (r["lag"], r["rows"], r["witness"]) for uuid, r in held.items()}
        return told if seen == wanted else None

    told = wait_until(checked, "the check tells three replicas that are caught up")
    assert told["healthy"] is True and not [f for f in told["findings"] if f["severity"] == "ERROR"]
    assert [s["alive"] for s in told["servers"]] == [True] * 5 and [m["alive"] for m in told["masters"]] == [True]

    assert "dropped seen" in town.run("table drop seen --yes")
    assert "seen" not in [t["name"] for t in json.loads(town.run("table list --json"))]
    assert "seen" in town.refused("table describe seen")
    town.well()


def test_careless_membership_lines_get_one_line_and_change_nothing(town: Town) -> None:
    """Goal: each mistake is named, and no config moves. Method: a table of lines against a live cluster."""
    tablet = town.infos()[0].tablet_id
    inside, outside = sorted(town.voters(tablet))[0], town.off(tablet)[0].uuid
    before = {t.tablet_id: (t.config.opid.term, t.config.opid.index) for t in town.infos()}
    for line, says in [
        ("table set-replication t 4", "odd"),
        ("table set-replication t 0", "odd"),
        ("table set-replication t 7", "wanted=7, servers=5"),
        ("table set-replication nobody 3", "no such table"),
        (f"table set-replication other 3 --tablet {tablet}", "another table"),
        ("table set-replication t 3 --tablet zz", "0 tablets begin with 'zz'"),
        ("server retire zz", "0 servers begin with 'zz'"),
        ("server enter-maintenance zz", "0 servers begin with 'zz'"),
        (f"server enter-maintenance {outside} --minutes 0", "a second at least"),
        (f"server enter-maintenance {outside} --minutes -5", "a second at least"),
        (f"server enter-maintenance {outside} --minutes 50000", "days_max=30"),
        (f"server enter-maintenance {outside} --minutes soon", "'soon' should be a valid number"),
        ("server exit-maintenance zz", "0 servers begin with 'zz'"),
        ("server forget zz", "0 servers begin with 'zz'"),
        (f"server forget {outside}", "End its process first"),
        (f"tablet change-config add {tablet} zz", "0 servers begin with 'zz'"),
        (f"tablet change-config add zz {outside}", "0 tablets begin with 'zz'"),
        (f"tablet change-config add {tablet} {inside}", "a member already"),
        (f"tablet change-config add {tablet} {outside} --witness --non-voter", "a witness votes"),
        (f"tablet change-config add {tablet} {inside} --witness", "a member already"),
        (f"tablet change-config add {tablet} zz --witness", "0 servers begin with 'zz'"),
        (f"tablet change-config add zz {outside} --witness", "0 tablets begin with 'zz'"),
        (f"tablet change-config add {tablet} {outside} --witnes", "No such option"),
        (f"tablet change-config remove {tablet} {outside}", "no member"),
        (f"tablet change-config promote {tablet} {inside}", "this role already"),
        (f"tablet change-config demote {tablet} {outside}", "no member"),
        (f"tablet change-config move {tablet} {outside} {inside}", "the source is no member"),
        (f"tablet change-config move {tablet} {inside} {inside}", "a member already"),
        (f"tablet change-config cancel {tablet}", "nothing is wanted"),
    ]:
        assert says in town.refused(line), line
    assert {t.tablet_id: (t.config.opid.term, t.config.opid.index) for t in town.infos()} == before
    assert not any(t.HasField("wish") for t in town.infos())
