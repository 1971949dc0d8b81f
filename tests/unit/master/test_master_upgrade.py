"""The feature level: which processes must know it before it is raised, and which are refused afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nyala.replica.fs import open_or_format, raise_feature_level, read_instance
from nyala.replica.master.catalog.catalog import Catalog
from nyala.replica.master.catalog.records import FINALIZED, Finalized
from nyala.replica.master.group.file_check import damaged
from nyala.replica.master.requests.upgrading import Build, missing
from nyala.replica.rpc import pb
from nyala.replica.server.runtime.identity import Identity
from nyala.replica.types import Code, LaterFormat, Member, Refused
from nyala.schemas import build_level, feature_level
from tests.harness.catalogs import AppliedCatalog
from tests.harness.copies import TestClock, new_disk
from tests.harness.master_calls import MASTER, SECOND_MASTER, MasterWorld, S, where

NOW, NEXT = build_level(), build_level() + 1


@pytest.fixture
def next_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """This build is the one after."""
    monkeypatch.setattr(feature_level, "FEATURE_LEVEL", NEXT)


def in_world(use: Callable[[MasterWorld], Awaitable[None]]) -> None:
    async def life() -> None:
        world = MasterWorld()
        world.builds[SECOND_MASTER] = NEXT
        await world.begin()
        try:
            await use(world)
        finally:
            await world.end()

    asyncio.run(life())


async def upgraded(world: MasterWorld, *uuids: str) -> None:
    """These servers run the next build from now on."""
    for uuid in S:
        level = NEXT if uuid in uuids else NOW
        await world.done("Heartbeat", world.beat(uuid, feature_level=level, version=f"0.{level}"))


async def finalized(world: MasterWorld, level: int = 0, without: tuple[str, ...] = ()) -> pb.FinalizeUpgradeReply:
    """The reply of a master in a group of masters that all run the next build."""
    request = pb.FinalizeUpgradeRequest(level=level, without=without)
    reply: pb.FinalizeUpgradeReply = await world.call("MasterService", "FinalizeUpgrade", request)
    return reply


@pytest.mark.usefixtures("next_build")
def test_level_is_raised_once_every_server_knows_it() -> None:
    """IN-92. Goal: no process is shut out by mistake. Method: servers are upgraded one by one; each time it is asked
    for, and refused with the names of the others, until the last one; then it is in the replies to heartbeats, in the
    list of servers and in the catalog, and asked again it changes nothing."""

    async def use(world: MasterWorld) -> None:
        for count in range(len(S)):
            await upgraded(world, *S[:count])
            refused = await finalized(world)
            assert refused.error.code == Code.ILLEGAL_STATE and "nothing was changed" in refused.error.message
            assert [u in refused.error.message for u in S] == [n >= count for n in range(len(S))]
            assert world.group.catalog.get(FINALIZED) is None
        await upgraded(world, *S)
        assert (await finalized(world, level=NOW)).level == NOW and world.group.catalog.get(FINALIZED) is None
        raised = await finalized(world)
        assert (raised.level, raised.before) == (NEXT, NOW)
        record = world.group.catalog.get(FINALIZED)
        assert record is not None and record.level == NEXT
        again = await finalized(world, level=NEXT)
        assert (again.error.code, again.level, again.before) == (0, NEXT, NEXT)
        listing = await world.done("ListServers", pb.ListServersRequest())
        assert listing.finalized_level == NEXT and {s.feature_level for s in listing.servers} == {NEXT}
        assert (await world.done("Heartbeat", world.beat(S[0], feature_level=NEXT))).finalized_level == NEXT
        assert (await finalized(world, level=NOW)).error.code == Code.INVALID_ARGUMENT
        assert (await finalized(world, level=NEXT + 1)).error.code == Code.INVALID_ARGUMENT

    in_world(use)


@pytest.mark.usefixtures("next_build")
def test_member_that_is_away_stands_against_it_until_it_is_named() -> None:
    """IN-92. Goal: a server that is away may come back with its former build. Method: a member of the tablet and a
    server of no tablet fall silent; the member is in the way until an operator names it, the other one is not."""

    async def use(world: MasterWorld) -> None:
        await upgraded(world, *S)
        world.clock.now_us += 60_000_000
        for uuid in (*S[:2], S[4]):
            await world.done("Heartbeat", world.beat(uuid, feature_level=NEXT))
        refused = await finalized(world)
        assert refused.error.code == Code.ILLEGAL_STATE
        assert f"{S[2]} does not answer" in refused.error.message and S[3] not in refused.error.message
        assert (await finalized(world, without=(S[3],))).error.code == Code.ILLEGAL_STATE
        assert (await finalized(world, without=(S[2],))).level == NEXT

    in_world(use)


@pytest.mark.usefixtures("next_build")
@pytest.mark.parametrize(
    "builds, why",
    [({}, "does not answer"), ({SECOND_MASTER: NOW}, f"knows level {NOW}"), ({"9" * 32: NEXT}, "does not answer")],
    ids=["away", "behind", "stranger"],
)
def test_other_masters_are_asked_and_each_must_know_it(builds: dict[str, int], why: str) -> None:
    """IN-92. Goal: every master must be able to apply the record. Method: of two masters the other one is away, is of
    the build before, or is another one at its address."""

    async def use(world: MasterWorld) -> None:
        await upgraded(world, *S)
        second = Member(SECOND_MASTER, (where(SECOND_MASTER),), votes=False)
        assert world.group.masters == (Member(MASTER, (where(MASTER),)), second)
        world.builds = builds
        for without in ((), (SECOND_MASTER,)):
            refused = await finalized(world, without=without)
            assert refused.error.code == Code.ILLEGAL_STATE
            assert f"master {SECOND_MASTER} " in refused.error.message and why in refused.error.message
        world.builds = {SECOND_MASTER: NEXT}
        assert (await finalized(world)).level == NEXT

    in_world(use)


def test_server_that_is_too_old_is_in_the_way_even_if_it_is_named() -> None:
    """IN-92. Goal: `--without` is for servers that are away. Method: one that answers, and is behind, is named."""
    builds = {"a": Build(NOW, "0.2.0"), "b": Build(None), "c": Build(NEXT)}
    assert missing(NEXT, {}, builds, ("a", "b")) == [f"tablet server a runs 0.2.0, which knows level {NOW}"]


@pytest.mark.usefixtures("next_build")
def test_heartbeat_of_a_server_that_is_too_old_is_refused() -> None:
    """IN-93. Goal: a server of the former build does not count. Method: after the level was raised, a heartbeat of the
    former build and one of a build before levels; both are refused with what to install, and one of the next counts."""

    async def use(world: MasterWorld) -> None:
        await upgraded(world, *S)
        await finalized(world)
        heard = world.master.soft.servers[S[0]].last_heard_us
        world.clock.now_us += 1_000_000
        for level in (NOW, 0):
            reply = await world.call("MasterService", "Heartbeat", world.beat(S[0], feature_level=level))
            assert reply.error.code == Code.ILLEGAL_STATE
            assert "too old" in reply.error.message and f"cluster_level={NEXT}" in reply.error.message
            assert world.master.soft.servers[S[0]].last_heard_us == heard
        await world.done("Heartbeat", world.beat(S[0], feature_level=NEXT))
        assert world.master.soft.servers[S[0]].last_heard_us > heard

    in_world(use)


def test_master_of_a_former_build_applies_no_record_of_a_later_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-93. Goal: a master that cannot read what will be written ends, and says why. Method: the record in the log
    that it applies, and in the state that it opens; that is no damage, and the next build goes on."""
    box = AppliedCatalog()
    record = {FINALIZED: Finalized(level=NEXT, since_us=1)}
    with pytest.raises(LaterFormat, match=f"install the version .*cluster_level={NEXT}, build_level={NOW}"):
        box.commit((record, [], "", None))
    monkeypatch.setattr(feature_level, "FEATURE_LEVEL", NEXT)
    box = AppliedCatalog()
    box.commit((record, [], "", None))
    box.catalog.flush()
    monkeypatch.undo()
    with pytest.raises(LaterFormat) as later:
        Catalog.open(box.disk)
    assert damaged(later.value, box.disk) is later.value
    monkeypatch.setattr(feature_level, "FEATURE_LEVEL", NEXT)
    assert Catalog.open(box.disk).get(FINALIZED) == record[FINALIZED]


def test_directory_of_a_level_is_opened_by_builds_that_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-93. Goal: a build refuses a directory of a feature level that it does not know. Method: a server hears of the
    next level; its file has it at once, a lower one changes nothing, the uuid, cluster and level are read again; the
    former build refuses the directory."""
    disk = new_disk()
    identity = Identity(disk, open_or_format(disk, TestClock()))
    before = disk.read("instance")
    asyncio.run(identity.join("c" * 32))
    asyncio.run(identity.raise_feature_level(NOW))
    assert identity.feature_level == NOW and disk.read("instance") != before
    unraised = read_instance(disk)
    monkeypatch.setattr(feature_level, "FEATURE_LEVEL", NEXT)
    asyncio.run(identity.raise_feature_level(NEXT))
    asyncio.run(identity.raise_feature_level(NOW))
    found = read_instance(disk)
    assert found is not None and unraised is not None and identity.feature_level == NEXT
    assert (found.uuid, found.cluster_id, found.feature_level) == (identity.uuid, "c" * 32, NEXT)
    assert raise_feature_level(disk, found, NOW) == found
    monkeypatch.undo()
    with pytest.raises(Refused, match=f"start the build that wrote it, or a newer one.*feature-level-{NEXT}"):
        open_or_format(disk, TestClock())
