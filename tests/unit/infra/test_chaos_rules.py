"""The rules of the chaos runs, each against a planted fault: a verifier that cannot fail proves nothing."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from nyala.infra.chaos import Chaos, ChaosOptions, Event, Kind, Pace, Report, Verdict, aim, draw
from nyala.infra.chaos.cluster import ClusterUnderTest
from nyala.infra.chaos.disks import leftovers, open_deleted_files
from nyala.infra.chaos.expected_rows import FRESH, TOGGLES, ExpectedRows, Rows, compare, dangling, link_of, text_of
from nyala.infra.chaos.logs import Logged, judge_appenders, judge_logs, judge_majority
from nyala.infra.chaos.refusals import SETTLED_S, explains
from nyala.infra.chaos.scene import Scene, ServerScene, TabletScene, why_unsettled
from nyala.infra.chaos.schedule import TAKES_AWAY, Operation
from nyala.infra.chaos.show import picture
from nyala.infra.chaos.verify import (
    LogReadings,
    Looked,
    at_rest,
    judge_disks,
    load_verdicts,
    looked_again,
    nothing_of,
    progress_of,
)
from nyala.infra.chaos.watch import SceneChecker
from nyala.infra.chaos.workload import PARTITION, SCHEMA, Reader, Writer
from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rpc import pb
from nyala.replica.tools import KINDS, format_root
from nyala.replica.types import Applied, Code, DataState, OpId, Refused

NAMES = ("server-1", "server-2", "server-3", "server-4", "server-5")


def status(number: int, role: str, *, voters: tuple[int, ...] = (1, 2, 3), **changed: object) -> pb.ReplicaStatus:
    """A replica on server `number`; uuids are u1, u2, ..."""
    config = pb.RaftConfig(
        opid=pb.OpId(term=1, index=1), members=[pb.Member(uuid=f"u{v}", votes=True, holds_data=True) for v in voters]
    )
    end = pb.OpId(term=2, index=9)
    given = {"uuid": f"u{number}", "role": role, "term": 2, "phase": "RUNNING", "data_state": int(DataState.READY)}
    position = {"last_logged": end, "commit_index": 9, "applied_index": 9, "committed_config": config}
    return pb.ReplicaStatus(**{**given, **position, **changed})


def scene(
    statuses: dict[str, pb.ReplicaStatus] | None = None, away: str = "", master: str = "READY", copies: tuple = ()
) -> Scene:
    """Five servers; one tablet, led by the first, with voters on the first three."""
    servers = tuple(ServerScene(n, f"u{n[-1]}", "READY", "paused" if n == away else "") for n in NAMES)
    whole = {"server-1": status(1, "LEADER"), "server-2": status(2, "FOLLOWER"), "server-3": status(3, "FOLLOWER")}
    return Scene(servers, (TabletScene("tablet-a", 3, {**whole, **(statuses or {})}),), master, copies)


def written(expected: ExpectedRows, ordinals: list[int]) -> None:
    expected.acknowledged(ordinals, expected.begin(ordinals))


def rows_of(expected: ExpectedRows, versions: dict[int, int], **changed: dict[int, object]) -> Rows:
    """A scan that holds these versions by ordinal; `changed`: columns to falsify, by ordinal."""
    key = expected.writer << 32
    told = [
        {"k": key + o, "link": link_of(expected.writer, o), "version": n, "v": text_of(key + o, n)}
        | {name: values[o] for name, values in changed.items() if o in values}
        for o, n in versions.items()
    ]
    schema = pa.schema([("k", pa.int64()), ("link", pa.int64()), ("version", pa.int32()), ("v", pa.string())])
    return Rows.of(pa.Table.from_pylist(told, schema=schema).to_batches())


def test_schedule_of_a_seed_is_always_the_same_and_has_every_kind() -> None:
    """Goal: a red run is run again by its seed. Method: draw twice; another seed differs; a short one has all kinds."""
    pace = Pace(gap_s=(2.0, 4.0))
    assert draw(7, 60, pace) == draw(7, 60, pace) != draw(8, 60, pace)
    assert {e.kind for e in draw(7, 60, pace)} == set(Kind)
    assert all(e.hold_s >= pace.away_s[0] for e in draw(7, 600, pace) if e.kind in (Kind.LEAVE, Kind.WIPE))


def test_aim_never_takes_a_second_server_away_and_no_disk_from_a_tablet_that_misses_a_replica() -> None:
    """Goal: a fault by itself never costs acknowledged data. Method: every kind that takes votes away, many picks, in
    a scene with a server away; and a lost disk or block while a replica is missing or a tombstone or a change pends."""
    for kind in TAKES_AWAY:
        assert {aim(Event(0, kind, pick), scene(away="server-5")).server for pick in range(0, 90_000, 1009)} == {""}
        whole = {aim(Event(0, kind, pick), scene()).server for pick in range(0, 90_000, 1009)}
        assert whole == set(NAMES[:3] if kind is Kind.ROT else NAMES), "a block is a member's"
    pending = status(1, "LEADER", pending_config=pb.RaftConfig(members=[pb.Member(uuid="u4")]))
    for changed in (
        {"server-3": status(3, "FOLLOWER", data_state=int(DataState.COPYING))},
        {"server-3": status(3, "FOLLOWER", phase="BOOTSTRAPPING")},
        {"server-1": pending},
        {"server-1": status(1, "LEADER", voters=(1, 2, 3, 4))},
    ):
        assert (
            aim(Event(0, Kind.WIPE, 1), scene(changed)).why_not and aim(Event(0, Kind.ROT, 1), scene(changed)).why_not
        )


def test_aim_takes_a_block_of_the_tablet_that_was_drawn_and_names_none_otherwise() -> None:
    """Goal: a block goes bad where there is one, and is looked for there.

    Method: two tablets on different servers; each is drawn, with a member of it; who loses a disk is told of no tablet.
    """
    one = scene().tablets[0]
    moved = {"server-3": status(3, "LEADER", voters=(3, 4, 5))}
    moved |= {f"server-{n}": status(n, "FOLLOWER") for n in (4, 5)}
    other = TabletScene("tablet-b", 3, moved)
    both = Scene(scene().servers, (one, other), "READY", ())
    found = {t.tablet_id: {d.server for d in operations} for t, operations in ((one, []), (other, []))}
    for pick in range(0, 90_000, 1009):
        operation = aim(Event(0, Kind.ROT, pick), both)
        found[operation.tablet_id].add(operation.server)
        assert aim(Event(0, Kind.WIPE, pick), both).tablet_id == ""
    assert found == {"tablet-a": set(one.statuses), "tablet-b": set(other.statuses)}


def test_aim_moves_between_a_member_and_a_stranger_that_serve() -> None:
    """Goal: operators' work is possible work. Method: all picks of the three changes."""
    operations = [aim(Event(0, Kind.MOVE, pick), scene(away="server-5")) for pick in range(0, 90_000, 1009)]
    assert {d.from_uuid for d in operations} == {"u1", "u2", "u3"} and {d.to_uuid for d in operations} == {"u4"}
    assert aim(Event(0, Kind.ADD, 1), scene()).to_uuid in ("u4", "u5")
    assert aim(Event(0, Kind.REMOVE, 1), scene()).from_uuid in ("u1", "u2", "u3")
    assert aim(Event(0, Kind.KILL_LEADER, 1), scene()).server == "server-1"
    assert aim(Event(0, Kind.KILL_FOLLOWER, 1), scene()).server in ("server-2", "server-3")
    assert aim(Event(0, Kind.KILL_MASTER, 1), scene(master="paused")).why_not


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"server-4": status(4, "FOLLOWER")}, "outside the config lives on server-4"),
        ({"server-1": status(1, "FOLLOWER")}, "nobody leads"),
        ({"server-1": status(1, "LEADER", voters=(1, 2, 3, 4))}, "4 settled voters"),
        ({"server-1": status(1, "LEADER", voters=(1, 2))}, "2 settled voters"),
        ({"server-3": status(3, "FOLLOWER", data_state=int(DataState.DELETED))}, "on server-3 is tombstone"),
        ({"server-3": status(3, "FOLLOWER", phase="FAILED")}, "on server-3 is FAILED"),
        ({"server-3": status(3, "FOLLOWER", applied_index=8)}, "voters stand at"),
        ({n: status(int(n[-1]), r, commit_index=8, applied_index=8) for n, r in
          (("server-1", "LEADER"), ("server-2", "FOLLOWER"), ("server-3", "FOLLOWER"))}, "voters stand at"),
    ],
)  # fmt: skip
def test_rest_is_denied_for_each_thing_that_is_left_behind(changed: dict[str, pb.ReplicaStatus], says: str) -> None:
    """Goal: a cluster counts as converged only if nothing is left to do. Method: one planted fault at a time; without
    one, and with a tombstone elsewhere, it is at rest; a copy under way is not."""
    assert says in " ".join(at_rest(scene(changed)))
    tombstone = {"server-4": status(4, "NON_PARTICIPANT", data_state=int(DataState.DELETED))}
    assert at_rest(scene()) == at_rest(scene(tombstone)) == []
    assert at_rest(scene(copies=(pb.CopyJob(tablet_id="tablet-a", phase="COPY.2"),))) != []
    assert not why_unsettled(scene(), scene().tablets[0])


def test_progress_is_seen_in_what_is_applied_and_copied_and_in_nothing_else() -> None:
    """Goal: only applied entries and copied bytes count as progress, so a slow machine is waited for and a cluster
    without progress is not. Method: scenes with one thing moved, and terms that rise for ever."""
    before = progress_of(scene())
    assert progress_of(scene({"server-3": status(3, "FOLLOWER", applied_index=8)})) != before
    assert progress_of(scene({"server-3": status(3, "FOLLOWER", data_state=int(DataState.COPYING))})) != before
    copies = [pb.CopyJob(tablet_id="tablet-a", phase="COPY.2", bytes_done=n) for n in (1, 2)]
    assert progress_of(scene(copies=(copies[0],))) != progress_of(scene(copies=(copies[1],)))
    assert progress_of(scene({"server-3": status(3, "CANDIDATE", term=77)})) == before


def test_expected_rows_find_those_that_are_lost_old_doubled_foreign_or_falsified() -> None:
    """Goal: V4. Method: one planted fault at a time in a scan of ten rows; the true scan has none."""
    expected = ExpectedRows(1)
    first, second = TOGGLES, TOGGLES + FRESH
    written(expected, [0, 1, first, first + 1, second])
    written(expected, [1, first])
    truth = {0: 1, first: 2, first + 1: 1, second: 1}

    def wrong(versions: dict[int, int], **changed: dict[int, object]) -> str:
        return " ".join(compare(expected, expected.acked, expected.tried, rows_of(expected, versions, **changed)))

    assert wrong(truth) == ""
    assert "absent; acknowledged 1" in wrong({o: n for o, n in truth.items() if o != second})
    assert "version 1; acknowledged 2" in wrong({**truth, first: 1})
    assert "version 3; acknowledged 2" in wrong({**truth, first: 3})
    assert "version 1; acknowledged 2" in wrong({**truth, 1: 1}), "a deleted row is back"
    assert "row 0: absent" in wrong({o: n for o, n in truth.items() if o})
    assert "version 1; acknowledged 0" in wrong({**truth, 900: 1})
    assert "content" in wrong(truth, v={first: "x"}) and "content" in wrong(truth, link={second: 5})
    twice = rows_of(expected, truth)
    doubled = Rows(*(np.concatenate([c, c[:1]]) for c in (twice.k, twice.link, twice.version, twice.v)))
    assert "doubled" in compare(expected, expected.acked, expected.tried, doubled)[0]
    assert doubled.digest() != twice.digest()


def test_expected_rows_allow_what_was_under_way_and_what_is_in_doubt_and_nothing_else() -> None:
    """Goal: rows of writes under way, and of unknown outcome, are allowed; no other difference is. Method: a scan amid
    a batch; a batch of unknown outcome."""
    expected = ExpectedRows(0)
    written(expected, [0, TOGGLES])
    before = expected.acked.copy()
    versions = expected.begin([0, TOGGLES])
    for seen in ({0: 1, TOGGLES: 1}, {TOGGLES: 2}, {0: 1, TOGGLES: 2}):
        assert compare(expected, before, expected.tried, rows_of(expected, seen)) == []
    expected.doubtful([0, TOGGLES], versions)
    written(expected, [0, TOGGLES])
    assert compare(expected, expected.acked, expected.tried, rows_of(expected, {0: 3, TOGGLES: 3})) == []
    assert compare(expected, expected.acked, expected.tried, rows_of(expected, {TOGGLES: 2})) == [], "it came late"
    assert compare(expected, expected.acked, expected.tried, rows_of(expected, {0: 3, TOGGLES: 1})) != []


def test_links_that_lead_nowhere_or_twice_to_one_key_are_found() -> None:
    """Goal: V5. Method: a chain of three, one without its middle, one with two heads."""
    expected = ExpectedRows(0)
    chain = {TOGGLES + FRESH * n: 1 for n in range(3)}
    first, middle, last = chain
    assert dangling(rows_of(expected, chain)) == []
    assert "1 links lead nowhere" in dangling(rows_of(expected, {first: 1, last: 1}))[0]
    assert "linked twice" in dangling(rows_of(expected, chain, link={last: first}))[0]
    assert middle


class Refusing:
    """A client, and its session, that is refused whatever it asks."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def session_writer(self, _: object, on_error: str) -> Refusing:
        return self

    def refuse(self, *_: object) -> None:
        raise Refused(self._code, "as the test says", applied=Applied.UNKNOWN)

    send = flush = snapshot_time = refuse

    def close(self) -> None:
        return


@pytest.mark.parametrize(
    ("code", "explained"),
    [(Code.TIMED_OUT, True), (Code.NOT_LEADER, True), (Code.CORRUPTION, False), (Code.WRONG_TABLE, False)],
)
def test_refusal_that_no_trouble_explains_is_a_fault_of_writers_and_readers(code: Code, explained: bool) -> None:
    """Goal: a refusal that no injected fault explains fails the run. Method: a client that is refused everything; what
    a fault explains is counted, and anything else is a verdict at once."""
    tablets = tuple(TabletHandle(f"t{n}", n, n, 0) for n in range(PARTITION.buckets))
    handle = TableHandle("id", "chaos", SCHEMA, PARTITION, 3, 0, 0, tablets=tablets)
    client: Any = Refusing(code)
    stop = threading.Event()
    writer, reader = Writer(client, handle, 0, 1, stop), Reader(client, handle, [ExpectedRows(0)], stop)
    ordinals = writer._choose()
    assert not writer._write(client, ordinals, writer.expected.begin(ordinals))
    assert (writer.unknown, bool(writer.fault)) == (1, not explained)
    reader.look_or_give_up(None)
    assert (reader.reads, reader.refused, bool(reader.faults)) == (0, 1, not explained)


@pytest.mark.parametrize(
    ("kind", "code", "quiet_s", "wanted", "expected"),
    [
        (Kind.ADD, Code.TIMED_OUT, 1e6, False, True),
        (Kind.STEP_DOWN, Code.NOT_READY, 1.0, False, True),
        (Kind.STEP_DOWN, Code.NOT_READY, SETTLED_S, False, False),
        (Kind.MOVE, Code.ALREADY_EXISTS, 1.0, False, True),
        (Kind.MOVE, Code.ALREADY_EXISTS, SETTLED_S, False, False),
        (Kind.REMOVE, Code.CHANGE_PENDING, SETTLED_S, False, False),
        (Kind.REMOVE, Code.CHANGE_PENDING, SETTLED_S, True, True),
        (Kind.FLUSH, Code.TABLET_NOT_FOUND, 1e6, False, True),
        (Kind.FLUSH, Code.INVALID_ARGUMENT, 1.0, False, False),
        *((kind, Code.CORRUPTION, 0.0, True, False) for kind in Kind),
        (Kind.ADD, Code.WRONG_TABLE, 0.0, True, False),
        (Kind.FLUSH, Code.NO_SPACE, 0.0, True, False),
    ],
)
def test_refusal_of_an_operation_counts_only_if_its_situation_explains_it(
    kind: Kind, code: Code, quiet_s: float, wanted: bool, expected: bool
) -> None:
    """Goal: a refused operation is allowed only if the situation explains it. Method: codes in the midst of faults and
    long after it."""
    assert explains(kind, code, quiet_s, wanted) is expected


class Denying:
    """A client whose operator's requests are all refused."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def refuse(self, *_: object, **__: object) -> None:
        raise Refused(self.code, "as the test says")

    transfer_leadership = add_replica = remove_replica = move_replica = refuse


@pytest.mark.parametrize("kind", [Kind.STEP_DOWN, Kind.ADD, Kind.REMOVE, Kind.MOVE])
def test_operation_that_is_refused_for_no_reason_is_a_fault_of_the_run(kind: Kind) -> None:
    """Goal: an operation that is refused without an explanation fails the run. Method: an operation at a client that is
    told CORRUPTION, which is a fault at once, and NOT_READY, which is explained a moment after the table was made."""
    tablets = tuple(TabletHandle(f"t{n}", n, n, 0) for n in range(PARTITION.buckets))
    handle = TableHandle("id", "chaos", SCHEMA, PARTITION, 3, 0, 0, tablets=tablets)
    supervisor: Any = SimpleNamespace(masters="127.0.0.1:1", children={})
    cluster = ClusterUnderTest(supervisor, handle)
    try:
        operation = Operation(kind, tablet_id="t0", from_uuid="u1", to_uuid="u4")
        cluster.client.close()
        for code, faults in ((Code.NOT_READY, 0), (Code.CORRUPTION, 1)):
            cluster.client = Denying(code)  # type: ignore[assignment]
            assert cluster.carry_out(operation).startswith("refused: ") and len(cluster.faults) == faults
        assert kind.value in cluster.faults[0] and "CORRUPTION" in cluster.faults[0]
    finally:
        cluster._pool.shutdown()


def test_trouble_of_a_tablet_is_over_only_when_it_has_stood_still() -> None:
    """Goal: a refusal is explained by a recent change of leader or config, even long after the last operation, and by
    nothing in a stable cluster. Method: the same scene twice; then another config, leader or term, a server that is
    silent, nobody who leads."""
    supervisor: Any = SimpleNamespace(masters="127.0.0.1:1", children={})
    cluster = ClusterUnderTest(supervisor, TableHandle("id", "chaos", SCHEMA, PARTITION, 3, 0, 0))
    calm = scene().tablets[0]
    followed = {"server-1": status(1, "FOLLOWER"), "server-2": status(2, "LEADER", term=3)}
    silent = replace(calm, statuses={n: s for n, s in calm.statuses.items() if n != "server-3"})
    later = status(1, "LEADER", committed_config=pb.RaftConfig(opid=pb.OpId(term=1, index=5)))
    try:
        cluster._stirred_s -= 2 * SETTLED_S
        assert cluster.quiet_s("tablet-a") == 0.0, "it was never seen"
        for moved in (scene(followed).tablets[0], silent, scene({"server-1": later}).tablets[0]):
            cluster.note(calm)
            standing, since_s = cluster._moved["tablet-a"]
            cluster._moved["tablet-a"] = standing, since_s - 2 * SETTLED_S
            cluster.note(calm)
            assert cluster.quiet_s("tablet-a") > SETTLED_S
            cluster.note(moved)
            assert cluster.quiet_s("tablet-a") < SETTLED_S
        cluster.note(scene({"server-1": status(1, "FOLLOWER")}).tablets[0])
        assert cluster.quiet_s("tablet-a") == 0.0
    finally:
        cluster.close()


def test_what_may_only_be_late_is_looked_at_again_and_what_lasts_is_not() -> None:
    """Goal: a check whose finding may pass is repeated; replicas that differ are a fault at once. Method: looks that
    find something, are refused, and find nothing; one that lasts; one that never ends."""
    found = iter([["late"], Refused(Code.TIMED_OUT, "as the test says"), []])

    def look() -> list[str]:
        one = next(found)
        if isinstance(one, Refused):
            raise one
        return one

    assert looked_again(look) == [] and next(found, None) is None
    assert looked_again(lambda: ["differ"], lasts=lambda text: "differ" in text) == ["differ"]
    assert looked_again(lambda: ["late"], wait_s=0.0) == ["late"]
    assert "nothing was verified" in open_deleted_files(0, Path("/"))[0]


def test_witness_sees_a_second_leader_of_a_term_and_a_term_that_fell() -> None:
    """Goal: V2 as processes show it. Method: scenes that contradict each other; a wiped server may forget."""
    checker = SceneChecker()
    checker.look(scene())
    checker.look(scene({"server-1": status(1, "FOLLOWER", term=3), "server-2": status(2, "LEADER", term=3)}))
    assert checker.faults == []
    checker.look(scene({"server-1": status(1, "LEADER", term=3)}))
    assert "two leaders" in checker.faults[0]
    fresh = SceneChecker()
    fresh.look(scene())
    fresh.look(scene({"server-2": status(9, "FOLLOWER", term=0)}))
    assert fresh.faults == []
    fresh.look(scene({"server-1": status(1, "FOLLOWER", term=1)}))
    assert "in term 2, now knows 1" in fresh.faults[0]


Place = tuple[int, int, int, int] | tuple[int, int, int, int, str]


def log_of(*entries: Place) -> list[Logged]:
    """(term, index, time, crc) of each entry, and its kind if it is no write."""
    return [Logged(OpId(e[0], e[1]), e[4] if len(e) > 4 else "WRITE", e[2], e[3], e[3] + 1) for e in entries]


def test_logs_that_differ_have_gaps_or_go_back_in_time_are_found() -> None:
    """Goal: V1 and the order of a log. Method: one planted fault at a time; a replaced tail is none."""
    good = log_of((1, 1, 10, 7), (1, 2, 11, 8), (2, 3, 12, 9))
    replaced = log_of((1, 1, 10, 7), (1, 2, 11, 8), (1, 3, 11, 1), (1, 4, 11, 1), (2, 3, 12, 9))
    ends = {"a": 3, "b": 3}
    assert judge_logs("t", {"a": good, "b": replaced}, ends) == []
    assert judge_logs("t", {"a": good, "b": log_of((1, 1, 10, 7), (1, 2, 11, 8), (3, 3, 12, 9))}, ends)
    assert judge_logs("t", {"a": good, "b": log_of((1, 1, 10, 7), (1, 2, 11, 8), (2, 3, 12, 1))}, ends)
    other_meta = [*good[:2], replace(good[2], meta_crc=1)]
    assert judge_logs("t", {"a": good, "b": other_meta}, ends), "a config, or whose write it was"
    assert judge_logs("t", {"a": good, "b": log_of((1, 2, 11, 8), (1, 3, 11, 1))}, {"a": 3, "b": 2}) == []
    assert judge_logs("t", {"a": log_of((1, 1, 10, 7), (2, 3, 12, 9))}, ends)
    assert judge_logs("t", {"a": log_of((1, 1, 10, 7), (1, 2, 9, 8))}, ends)
    assert judge_logs("t", {"a": log_of((2, 1, 10, 7), (1, 2, 11, 8))}, ends)


TWO_TERMS = log_of((1, 1, 10, 7, "NOOP"), (1, 2, 11, 8), (2, 3, 12, 9, "NOOP"), (2, 4, 13, 5))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (log_of((1, 1, 10, 7, "NOOP"), (1, 2, 11, 8), (2, 3, 12, 9, "NOOP"), (2, 4, 13, 6)), "2.4: a was sent"),
        (log_of((1, 1, 10, 7, "NOOP"), (1, 2, 11, 8), (2, 3, 14, 9, "NOOP")), "2.3: a was sent"),
        (log_of((1, 2, 11, 8), (1, 3, 11, 9), (2, 4, 13, 5)), "2.4 follows 2.3 on a, 1.3 on b"),
        (log_of((1, 2, 11, 8), (1, 3, 11, 9), (1, 4, 11, 9), (2, 5, 13, 5, "NOOP")), "term 2 begins at 2.3 on a, 2.5"),
        (log_of((1, 2, 11, 8), (2, 3, 14, 4, "NOOP"), (3, 3, 15, 1, "NOOP")), "2.3: a was sent"),
        (log_of((1, 2, 11, 8), (3, 3, 15, 1)), "term 3 begins with WRITE on b"),
    ],
)  # fmt: skip
def test_logs_that_two_leaders_of_one_term_wrote_are_found(other: list[Logged], says: str) -> None:
    """Goal: V2 from disks: one sender of entries a term. Method: beside a log of two terms a second one, broken in one
    way: another content, another first entry, another entry before it, a term that begins twice, one that was replaced
    later, one that begins without its NOOP."""
    _, wrong = judge_appenders("t", {"a": TWO_TERMS, "b": other})
    assert says in " ".join(wrong), wrong


def test_logs_of_one_leader_a_term_are_in_order_whatever_was_collected_or_replaced() -> None:
    """Goal: no false alarm for what Raft allows. Method: a follower that lags, one whose first segments are gone, one
    with a tail that was replaced, and one alone; only what a second disk holds counts as compared."""
    lagging, late = TWO_TERMS[:2], TWO_TERMS[2:]
    replaced = [*TWO_TERMS[:2], *log_of((1, 3, 11, 1), (1, 4, 11, 1)), *TWO_TERMS[2:]]
    assert judge_appenders("t", {"a": TWO_TERMS, "b": lagging, "c": late, "d": replaced}) == (4, [])
    assert judge_appenders("t", {"a": TWO_TERMS, "b": log_of((1, 3, 11, 1))}) == (0, [])
    assert judge_appenders("t", {"a": TWO_TERMS}) == judge_appenders("t", {}) == (0, [])


def test_committed_entry_that_most_voters_do_not_have_is_found() -> None:
    """Goal: what was acknowledged is in most logs. Method: three voters of which one knows 2.4 as committed: two have
    it; one has another entry there, or a shorter log; its own log has lost it; nobody has committed anything."""
    voters, ends = ("a", "b", "c"), {"a": 4, "b": 2, "c": 1}
    lagging = TWO_TERMS[:2]
    assert judge_majority("t", {"a": TWO_TERMS, "b": TWO_TERMS, "c": lagging}, ends, voters) == []
    assert "only a have it" in judge_majority("t", {"a": TWO_TERMS, "b": lagging, "c": lagging}, ends, voters)[0]
    other = [*TWO_TERMS[:3], *log_of((3, 4, 15, 5, "NOOP"))]
    assert "only a have it" in judge_majority("t", {"a": TWO_TERMS, "b": other}, ends, voters)[0]
    assert "only a, b have it" in judge_majority("t", {"a": TWO_TERMS, "b": TWO_TERMS}, ends, (*voters, "d"))[0]
    assert "has it no more" in judge_majority("t", {"a": lagging, "b": TWO_TERMS, "c": TWO_TERMS}, ends, voters)[0]
    assert judge_majority("t", {"a": TWO_TERMS}, {}, voters) and judge_majority("t", {}, ends, ())


def test_readings_of_logs_that_nobody_made_or_could_compare_are_wrong() -> None:
    """Goal: a verifier that compared no logs fails. Method: none; logs without an entry in common; fewer readings than
    were wanted; one that has all; then each of the three finds what is planted for it."""
    three = {f"server-{n}": TWO_TERMS for n in (1, 2, 3)}
    settled = scene({f"server-{n}": status(n, "LEADER" if n == 1 else "FOLLOWER", commit_index=4) for n in (1, 2, 3)})

    def wrong(logs: dict[str, list[Logged]] | None, expected: int = 1) -> list[str]:
        readings = LogReadings(expected=expected)
        if logs is not None:
            readings.take(settled, settled.tablets[0], logs)
        return [" ".join(v.wrong) for v in readings.verdicts()]

    assert all("no readings" in w for w in wrong(None)) and all(
        "read 1 times, 2 expected" in w for w in wrong(three, 2)
    )
    assert all("no shared_entries" in w for w in wrong({"server-1": TWO_TERMS}))
    assert wrong(three) == ["", "", ""]
    planted = {**three, "server-1": [*TWO_TERMS[:3], *log_of((2, 4, 13, 6))]}
    assert [bool(w) for w in wrong(planted)] == [True, True, False]
    lost = {**three, "server-2": TWO_TERMS[:2], "server-3": TWO_TERMS[:2]}
    assert [bool(w) for w in wrong(lost)] == [False, False, True]
    holed = {**three, "server-2": [TWO_TERMS[0], *TWO_TERMS[2:]]}
    assert [bool(w) for w in wrong(holed)] == [True, False, False]


def test_rows_of_each_replica_are_compared_with_what_was_written() -> None:
    """Goal: V4 of each disk. Method: two tablets, three replicas each, all with their rows; then one replica lacks a
    row, has an old one, or is missing; and nothing at all is read."""
    expected = ExpectedRows(0)
    written(expected, [TOGGLES, TOGGLES + 1])
    written(expected, [TOGGLES])
    here, there = rows_of(expected, {TOGGLES: 2}), rows_of(expected, {TOGGLES + 1: 1})
    none, old = rows_of(expected, {}), rows_of(expected, {TOGGLES: 1})
    assert judge_disks([expected], [[here] * 3, [there] * 3]) == (6, [])
    for bad, says in ((none, "absent; acknowledged 2"), (old, "version 1; acknowledged 2")):
        _, wrong = judge_disks([expected], [[here, here, bad], [there] * 3])
        assert len(wrong) == 1 and says in wrong[0] and wrong[0].startswith("replicas 3")
    assert "no replica" in judge_disks([expected], [[here], []])[1][0]
    assert "nothing was verified" in judge_disks([ExpectedRows(0)], [])[1][0]


def test_leftovers_of_a_disk_are_named(tmp_path: Path) -> None:
    """Goal: V8. Method: an empty server; then a block that no superblock names, a log of no tablet, a foreign file."""
    format_root(tmp_path, kind=KINDS["tablet-server"])
    assert leftovers(tmp_path) == []
    for path in ("data/00000007.block", "wals/gone/wal-1", "some.tmp"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
        assert path.split("/")[1 if path.startswith("wals") else -1] in " ".join(leftovers(tmp_path))


def test_run_goes_on_until_each_demand_is_met_and_says_what_was_not(tmp_path: Path) -> None:
    """Goal: a run goes on until each demanded operation was done, and fails with those that were not. Method: what is
    owed of two demands, of which one names no kind of the run, before and after an operation of the other."""
    demands = (frozenset({Kind.ROT, Kind.WIPE}), frozenset({Kind.MOVE}))
    chaos = Chaos(tmp_path, ChaosOptions(seed=1, duration_s=1.0, kinds=(Kind.ROT, Kind.ADD), demands=demands))
    assert chaos._owed() == [demands[0]]
    chaos.report.done[Kind.ADD] += 1
    assert chaos._owed() == [demands[0]]
    chaos.report.done[Kind.ROT] += 1
    assert chaos._owed() == []


def test_picture_shows_who_has_what_in_which_role() -> None:
    """Goal: what people see is what is. Method: a leader, half a copy, a tombstone, a paused server, a silent one."""
    copying = status(4, "NON_PARTICIPANT", data_state=int(DataState.COPYING))
    gone = status(5, "NON_PARTICIPANT", data_state=int(DataState.DELETED))
    job = pb.CopyJob(tablet_id="tablet-a", target_uuid="u4", phase="COPY.2", bytes_done=3, bytes_total=4)
    seen = scene({"server-4": copying, "server-5": gone}, away="server-2", copies=(job,))
    del seen.tablets[0].statuses["server-3"]  # type: ignore[attr-defined]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(picture(seen))
    lines = {line.split()[1]: line for line in console.export_text().splitlines() if "server-" in line}
    assert "leader" in lines["server-1"] and "paused" in lines["server-2"] and "?" in lines["server-3"]
    assert "copying 75 %" in lines["server-4"] and "tombstone" in lines["server-5"]


def test_report_without_verdicts_or_with_a_wrong_one_is_not_ok() -> None:
    """Goal: a run that broke off is no success. Method: none, a good one, a bad one."""
    good, bad = Verdict("a", "all"), Verdict("b", "all", ("this",))
    assert not Report(1, "x").ok
    assert Report(1, "x", verdicts=[good]).ok and not Report(1, "x", verdicts=[good, bad]).ok
    assert Report(1, "x", verdicts=[bad]).json()["verdicts"][0]["ok"] is False


def test_verifier_that_had_nothing_to_look_at_is_wrong() -> None:
    """Goal: the verifiers of rows fail if nothing was written or read. Method: one number at zero at a time; what is
    found beside it is told too."""
    full = {"rows": 1, "batches": 1, "reads": 1, "snapshots": 1}

    def wrong(found: tuple[str, ...] = (), **changed: int) -> list[bool]:
        looked = Looked(**{**full, **changed}, unknown=0)
        verdicts = load_verdicts(looked, found, lambda: list(found), lambda: list(found))
        assert all(set(found) <= set(v.wrong) for v in verdicts)
        return [not v.ok for v in verdicts]

    assert wrong() == [False, False, False] and wrong(("this",)) == [True, True, True]
    assert wrong(reads=0) == wrong(batches=0) == [True, False, False]
    assert wrong(rows=0) == [False, True, False] and wrong(snapshots=0) == [False, False, True]
    assert wrong(("this",), rows=0, snapshots=0) == [True, True, True]
    assert nothing_of(entries=0, looks=3) == ("nothing was verified: no entries to look at",)
