"""A recovery plan carried out in directories of stopped servers: its order, and what a death at any point leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import FENCE, refuse_fenced
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import pb
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.tools import (
    Recovery,
    RecoveryPlan,
    SourceLowering,
    abandon,
    load_journal,
    of_directory,
    plans_agree,
)
from nyala.replica.types import Code, Corruption, OpId, RaftConfig, Refused
from nyala.replica.wal import read_offline
from nyala.replica.wal.newest import NEWEST_NAME
from tests.harness.copies import TABLET, RestingReplica, close_disks
from tests.harness.lost_majority import (
    UUIDS,
    config,
    damage_block,
    is_ready,
    make_witness,
    plan_for,
    rows_of,
    stopped_server,
)
from tests.harness.sim_disk import SimCrash, SimDisk

POINTS = (
    "recover.fenced",
    "copy.1",
    "copy.3",
    "copy.5",
    "recover.copied",
    "recover.logged",
    "cmeta.after_flush",
    "recover.rewritten",
    "recover.marked",
    "recover.unfenced",
)
POSITION = pb.SourcePosition(
    table_id="t1",
    source=pb.SourceKey(cluster_id="k", topic_id="id", kafka_partition=0),
    generation=1,
    start=5,
    done=100,
    topic="writes.things",
    table="things",
)


@pytest.fixture(autouse=True)
def _disks() -> Iterator[None]:
    yield
    close_disks()


class Directories:
    """The best survivor a, a lagging one e whose end differs, and d, a server that holds nothing of the tablet."""

    def __init__(self) -> None:
        blank = stopped_server("d")
        for path in (f"tablet-meta/{TABLET}", f"consensus-meta/{TABLET}"):
            blank.remove(path)
        blank.remove_tree(wal_folder(TABLET))
        self.disks = {
            "a": stopped_server("a", (1, 1, 2, 2), "abcef", flush_at=2),
            "e": stopped_server("e", (1, 1, 1, 1, 1), "abcef"),
            "d": blank,
        }
        self.lowered: list[SourceLowering] = []
        self.fenced_when_lowered = False
        self.confirmed: list[tuple[str, RaftConfig]] = []
        self.refusal: Refused | None = None

    def plan(self) -> RecoveryPlan:
        return plan_for({n: self.disks[n] for n in "ae"}, "ed", positions=[POSITION])

    def recovery(self, plan: RecoveryPlan, names: Iterable[str] = "ade") -> Recovery:
        disks = {UUIDS[n]: self.disks[n] for n in names}
        return Recovery(plan, disks, lower=self._lower, confirm=self._confirm)

    def _confirm(self, tablet_id: str, config: RaftConfig) -> None:
        assert all(disk.exists(FENCE) for disk in self.disks.values()), "before any server starts"
        self.confirmed.append((tablet_id, config))
        if self.refusal is not None:
            raise self.refusal

    def _lower(self, lowering: SourceLowering) -> None:
        self.lowered.append(lowering)
        self.fenced_when_lowered = all(disk.exists(FENCE) for disk in self.disks.values())

    def check_recovered(self, plan: RecoveryPlan, gone_on: Sequence[str] = ()) -> None:
        """All three hold a's rows under one config at one OpId, and may start; some have `gone_on` by one entry."""
        (tablet,) = plan.tablets
        opid, rows = tablet.config.opid, {1: "v1", 2: "v1", 3: "v2", 4: "v2"}
        for name, disk in self.disks.items():
            refuse_fenced(disk)
            more = name in gone_on
            meta = ConsensusMeta.load(disk, TABLET)
            assert (meta.committed_config, meta.term, meta.voted_for) == (tablet.config, opid.term + more, None)
            assert read_offline(disk, wal_folder(TABLET), TABLET).last == OpId(opid.term + more, opid.index + more)
            assert rows_of(disk) == rows | ({9: "later"} if more else {})


def test_recovery_brings_all_members_to_the_survivor_and_keeps_what_it_replaced() -> None:
    """CC-42. Goal: a recovery makes a group of three equal voters from one survivor, and keeps replaced files in
    quarantine. Method: a plan with a lagging member, whose longer log goes to quarantine, and a new one; the earlier
    metadata stay; positions go back first."""
    all_of = Directories()
    plan = all_of.plan()
    assert plan.tablets[0].survivor == UUIDS["a"]
    before = ConsensusMeta.load(all_of.disks["a"], TABLET).encode()
    all_of.recovery(plan).run()
    all_of.check_recovered(plan)
    assert plan.tablets[0].config.voters == tuple(UUIDS[n] for n in "ade")
    assert all_of.disks["e"].listdir("quarantine") == [f"{TABLET}-000001"]
    kept = all_of.disks["a"].listdir("undo")
    assert before in [all_of.disks["a"].read(f"undo/{name}") for name in kept]
    assert [(low.source, low.to) for low in all_of.lowered] == [(SourceKey("k", "id", 0), 5)]
    assert all_of.fenced_when_lowered


def test_only_replica_that_lost_the_end_of_its_log_goes_on_without_it() -> None:
    """CN-22, CC-42. Goal: the repair that `nyala cluster check` names for such a tablet works. Method: the last entry
    of the only voter's log is damaged while it is stopped. The plan reports one lost entry; after the recovery the
    replica has the others and withholds no vote."""
    disk = stopped_server("a", (1, 1, 1), "a")
    newest = f"{wal_folder(TABLET)}/{disk.listdir(wal_folder(TABLET))[-1]}"
    disk.corrupt(newest, len(disk.read(newest).rstrip(b"\0")) - 20)
    plan = plan_for({"a": disk})
    (tablet,) = plan.tablets
    assert (tablet.last, tablet.known, tablet.entries_lost) == (OpId(1, 2), OpId(1, 3), 1)
    assert "has lost the end of its log up to 1.3" in tablet.stuck
    Recovery(plan, {UUIDS["a"]: disk}, lower=lambda lowering: None, confirm=lambda tablet_id, config: None).run()
    replay = read_offline(disk, wal_folder(TABLET), TABLET)
    assert (replay.withheld, replay.last) == (None, tablet.config.opid)
    assert rows_of(disk) == {1: "v1", 2: "v1"}


def test_recovery_tells_the_masters_each_forced_config_before_any_server_starts() -> None:
    """IN-42. Goal: the tool confirms each forced config to the masters, because the members that they know cannot.
    Method: a recovery at whose end the masters do not answer: the fences stay, and it is run again; a tablet that was
    dropped meanwhile has nothing to confirm."""
    all_of = Directories()
    plan = all_of.plan()
    told = (TABLET, plan.tablets[0].config)
    all_of.refusal = Refused(Code.UNAVAILABLE, "no master answers")
    with pytest.raises(Refused, match="no master answers"):
        all_of.recovery(plan).run()
    all_of.refusal = Refused(Code.TABLET_NOT_FOUND, "no such tablet")
    all_of.recovery(plan).run()
    assert all_of.confirmed == [told, told]
    all_of.check_recovered(plan)


def test_rewrite_before_every_copy_is_there_is_refused_and_changes_nothing() -> None:
    """CC-42. Goal: step 4 waits for all of step 2. Method: rewrite right away, then with one of two copies."""
    all_of = Directories()
    plan = all_of.plan()
    recovery = all_of.recovery(plan)
    recovery.fence()
    before = {n: ConsensusMeta.load(all_of.disks[n], TABLET).encode() for n in "ae"}
    with pytest.raises(Refused) as refusal:
        recovery.rewrite()
    assert refusal.value.code is Code.NOT_READY
    assert UUIDS["d"] in str(refusal.value) and UUIDS["e"] in str(refusal.value)
    assert {n: ConsensusMeta.load(all_of.disks[n], TABLET).encode() for n in "ae"} == before
    all_of.disks["e"].arm("recover.copied")
    with pytest.raises(SimCrash):
        recovery.copy()
    assert is_ready(all_of.disks["d"])
    all_of.disks["e"].restart()
    recovery.copy()
    recovery.rewrite()
    recovery.unfence()
    all_of.check_recovered(plan)


@pytest.mark.a_third
@pytest.mark.parametrize("power", [pytest.param(False, marks=pytest.mark.deep), True])
@pytest.mark.parametrize("point", POINTS)
def test_recovery_cut_off_anywhere_keeps_servers_out_and_goes_on(point: str, power: bool) -> None:
    """CC-43, CC-44. Goal: no server starts in the middle of a recovery, and the same command completes it. Method: die
    at each point on each of the three directories where it is passed, by kill or power loss; a directory that was
    rewritten is fenced unless all were; a server that may start does, and appends; run the plan that was left behind.
    What a server appended stays, and one that went on need not be named again."""
    died, went_on = 0, []
    for victim in "ade":
        all_of = Directories()
        plan = all_of.plan()
        all_of.disks[victim].arm(point)
        try:
            all_of.recovery(plan).run()
        except SimCrash:
            died += 1
        for disk in all_of.disks.values():
            disk.power_loss(random.Random(died)) if power else disk.restart()
        rewritten = [d for d in all_of.disks.values() if _is_forced(d)]
        if len(rewritten) < 3:
            for disk in rewritten:
                with pytest.raises(Refused, match="not finished"):
                    refuse_fenced(disk)
        left = plans_agree([p for d in all_of.disks.values() if (p := load_journal(d)) is not None])
        gone_on = [n for n, d in all_of.disks.items() if left is not None and not d.exists(FENCE) and _is_forced(d)]
        went_on += gone_on
        for name in gone_on:
            _append(all_of.disks[name])
        fenced = [n for n, disk in all_of.disks.items() if disk.exists(FENCE)]
        recovery = all_of.recovery(left or plan, fenced if gone_on else "ade")
        recovery.run()
        all_of.check_recovered(plan, gone_on)
        all_of.recovery(plan).run()
        all_of.check_recovered(plan, gone_on)
    assert died, "nobody passed this point"
    assert went_on == (["a", "a", "d"] if point == "recover.unfenced" else [])


@pytest.mark.a_third
@pytest.mark.parametrize("point", ["recover.fenced", "recover.copied", "recover.logged", "recover.rewritten"])
def test_recovery_is_abandoned_only_before_a_config_is_rewritten(point: str) -> None:
    """CC-38, CC-44. Goal: a recovery can be abandoned before the first config is rewritten; after that it can only be
    completed. Method: die at each point; abandon without the survivor, then with it: either all may start in their old
    configs, or nothing changed and the plan is finished."""
    all_of = Directories()
    plan = all_of.plan()
    victim = {"recover.fenced": "d", "recover.copied": "e"}.get(point, "a")
    all_of.disks[victim].arm(point)
    with pytest.raises(SimCrash):
        all_of.recovery(plan).run()
    all_of.disks[victim].restart()
    disks = {UUIDS[n]: disk for n, disk in all_of.disks.items()}
    with pytest.raises(Refused, match=UUIDS["a"]):
        abandon(plan, {uuid: disk for uuid, disk in disks.items() if uuid != UUIDS["a"]})
    if point in ("recover.logged", "recover.rewritten"):
        with pytest.raises(Refused) as refusal:
            abandon(plan, disks)
        assert refusal.value.code is Code.NOT_READY
        assert all(disk.exists(FENCE) for disk in disks.values())
        all_of.recovery(plan).run()
        all_of.check_recovered(plan)
        with pytest.raises(Refused, match="rewritten already"):
            abandon(plan, disks)
        return
    fenced = [uuid for uuid in sorted(disks) if disks[uuid].exists(FENCE)]
    assert abandon(plan, disks) == fenced
    assert abandon(plan, disks) == []
    for disk in disks.values():
        refuse_fenced(disk)
        assert not _is_forced(disk)


def test_source_of_a_dropped_table_keeps_no_recovery_from_its_end() -> None:
    """CC-46. Goal: a recovery does not need the source positions of a table that was dropped. Method: the catalog knows
    the table no more; then it does not answer, which keeps the fences up."""
    for code in (Code.NOT_FOUND, Code.UNAVAILABLE):
        all_of = Directories()
        plan = all_of.plan()

        def lower(lowering: SourceLowering, code: Code = code) -> None:
            raise Refused(code, "no such table")

        recovery = Recovery(plan, {UUIDS[n]: disk for n, disk in all_of.disks.items()}, lower=lower)
        if code is Code.NOT_FOUND:
            recovery.run()
            all_of.check_recovered(plan)
            continue
        with pytest.raises(Refused):
            recovery.run()
        assert all(disk.exists(FENCE) for disk in all_of.disks.values())


def _append(disk: SimDisk) -> None:
    """One row, as the server would write it that leads the recovered group."""
    meta = ConsensusMeta.load(disk, TABLET)
    resting = RestingReplica(disk, meta.uuid)
    resting.write([9], "later", meta.term + 1)
    resting.cmeta.save_hard_state(meta.term + 1, None)
    resting.close()


def _is_forced(disk: SimDisk) -> bool:
    return ConsensusMeta.exists(disk, TABLET) and ConsensusMeta.load(disk, TABLET).committed_config.unsafe


def test_another_plan_or_a_missing_directory_changes_nothing() -> None:
    """CC-38. Goal: an unfinished recovery must be completed or abandoned before another one begins. Method: fence with
    one plan; run another; run a plan without one of its directories; two unfinished plans at once."""
    all_of = Directories()
    plan = all_of.plan()
    all_of.recovery(plan).fence()
    alone = plan_for({"a": all_of.disks["a"]})
    with pytest.raises(Refused) as refusal:
        all_of.recovery(alone).run()
    assert refusal.value.code is Code.ALREADY_INPROGRESS
    assert not _is_forced(all_of.disks["a"])
    with pytest.raises(Refused, match=UUIDS["d"]):
        Recovery(plan, {UUIDS["a"]: all_of.disks["a"]}, lower=lambda lowering: None)
    with pytest.raises(Refused, match="two recoveries"):
        plans_agree([plan, alone])


def test_survivor_that_went_on_since_the_plan_is_not_rewritten() -> None:
    """CC-44. Goal: a plan is refused if the survivor's log changed after it was made. Method: make the plan, append one
    more entry, run it."""
    disk = stopped_server("a", (1, 1))
    plan = plan_for({"a": disk})
    later = plan_for({"a": stopped_server("a", (1, 1, 1))})
    Recovery(plan, {UUIDS["a"]: disk}, lower=lambda lowering: None).run()
    assert ConsensusMeta.load(disk, TABLET).committed_config.voters == (UUIDS["a"],)
    other = stopped_server("a", (1, 1))
    with pytest.raises(Refused) as refusal:
        Recovery(later, {UUIDS["a"]: other}, lower=lambda lowering: None).run()
    assert refusal.value.code is Code.NOT_READY
    assert ConsensusMeta.load(other, TABLET).committed_config == config("abc")


def equal_servers() -> dict[str, SimDisk]:
    """Two of five members whose logs end alike, with blocks."""
    return {name: stopped_server(name, (1, 1, 2, 2), "abcef", flush_at=2) for name in "ae"}


def recovery_of(plan: RecoveryPlan, disks: dict[str, SimDisk], said: list[str] | None = None) -> Recovery:
    say = (lambda text: None) if said is None else said.append
    return Recovery(plan, {UUIDS[n]: disk for n, disk in disks.items()}, lower=lambda lowering: None, say=say)


@pytest.mark.parametrize("harm", [damage_block, make_witness])
def test_target_whose_log_ends_alike_and_whose_rows_are_not_there_is_copied_over(
    harm: Callable[[SimDisk], None],
) -> None:
    """CC-42. Goal: a target with an equal log and without the rows is copied to. Method: a target with one flipped byte
    in a block, and a witness: the rows are there afterwards, and what was replaced lies in quarantine; a whole one is
    left as it is."""
    rows = {1: "v1", 2: "v1", 3: "v2", 4: "v2"}
    for harmed in (True, False):
        disks, said = equal_servers(), []
        if harmed:
            harm(disks["e"])
        plan = plan_for(disks, "e")
        assert plan.tablets[0].survivor == UUIDS["a" if harmed else "e"]
        if not harmed:
            plan = plan_for(disks, "ae")
        recovery_of(plan, disks, said).run()
        assert any("copying" in line for line in said) is harmed
        for name, disk in disks.items():
            refuse_fenced(disk)
            (found,) = of_directory(disk, UUIDS[name], "")
            assert found.usable and not found.witness and found.config == plan.tablets[0].config
            assert rows_of(disk) == rows
        assert disks["e"].listdir("quarantine") == ([f"{TABLET}-000001"] if harmed else [])


@pytest.mark.parametrize("target", ["whole", "damaged"])
def test_survivor_that_went_bad_since_the_plan_changes_nothing(target: str) -> None:
    """CC-44. Goal: no config is rewritten and no replica replaced if the survivor was damaged after the plan. Method: a
    byte of the survivor's block flips after the plan, with and without a target to copy over: refused with the cause,
    every metadata and block as before, and the recovery can be abandoned."""
    disks = equal_servers()
    disks["e"].remove(Superblock.load(disks["e"], TABLET).blocks[0].files[0][0]) if target == "damaged" else None
    plan = plan_for(disks, "ae")
    survivor = plan.tablets[0].survivor
    damage_block(disks["a" if survivor == UUIDS["a"] else "e"])
    before = {n: (ConsensusMeta.load(d, TABLET).encode(), d.listdir("data")) for n, d in disks.items()}
    with pytest.raises(Refused, match="a block cannot be read") as refusal:
        recovery_of(plan, disks).run()
    assert refusal.value.code is Code.NOT_READY and survivor in str(refusal.value)
    assert {n: (ConsensusMeta.load(d, TABLET).encode(), d.listdir("data")) for n, d in disks.items()} == before
    assert not any(disk.listdir("quarantine") for disk in disks.values())
    assert abandon(plan, {UUIDS[n]: disk for n, disk in disks.items()}) == [UUIDS["a"], UUIDS["e"]]


@pytest.mark.parametrize("name", ["a", "e"])
def test_log_that_lost_the_forced_config_after_its_rewrite_is_not_taken_for_recovered(name: str) -> None:
    """CC-46. Goal: a recovery is complete only if the forced config is in the log, not only in the metadata. Method:
    the log of the survivor, then of the other member, is that of before the rewrite again: Corruption; repeated, it
    ends well."""
    disks = equal_servers()
    plan = plan_for({"a": disks["a"]}, "e")
    recovery = recovery_of(plan, disks)
    recovery.fence()
    recovery.copy()
    folder, disk = wal_folder(TABLET), disks[name]
    before = {path: disk.read(f"{folder}/{path}") for path in (*disk.listdir(folder), NEWEST_NAME)}
    recovery.rewrite()
    for path in disk.listdir(folder):
        disk.remove(f"{folder}/{path}")
    for path, data in before.items():
        disk.replace(f"{folder}/{path}", data)
    with pytest.raises(Corruption, match="read back"):
        recovery.verify()
    recovery_of(plan, disks).run()
    (found,) = of_directory(disk, UUIDS[name], "")
    assert (found.problem, found.last) == ("", plan.tablets[0].config.opid)


def test_member_that_went_bad_after_its_rewrite_is_copied_anew_when_repeated() -> None:
    """CC-46. Goal: a recovery that can no longer be abandoned can be completed even if a member is damaged. Method: a
    byte of a member's block flips between rewriting and reading back: Corruption, fences up, twice; the same recovery
    ends with both whole."""
    disks = equal_servers()
    plan = plan_for({"a": disks["a"]}, "e")
    recovery = recovery_of(plan, disks)
    recovery.fence()
    recovery.copy()
    recovery.rewrite()
    damage_block(disks["e"])
    with pytest.raises(Corruption, match=r"read back.*a block cannot be read"):
        recovery.verify()
    assert all(disk.exists(FENCE) for disk in disks.values())
    with pytest.raises(Refused, match="rewritten already"):
        abandon(plan, {UUIDS[n]: disk for n, disk in disks.items()})
    recovery_of(plan, disks).run()
    for name, disk in disks.items():
        refuse_fenced(disk)
        (found,) = of_directory(disk, UUIDS[name], "")
        assert (found.problem, found.config, found.last) == ("", plan.tablets[0].config, plan.tablets[0].config.opid)
