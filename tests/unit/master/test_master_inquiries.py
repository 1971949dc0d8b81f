"""Inquiries to members about the config they hold: how often, how many at once, and what the catalog keeps of the
answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.master.catalog.records import TABLET, Tablet, read, write
from nyala.replica.master.decisions.reconciler import Reconciler, is_later, marked, pause_s
from nyala.replica.master.requests.confirming import confirm_config
from nyala.replica.master.tablets.inquiries import FRESH_US, PAUSE_US_FIRST, PAUSE_US_MAX, Inquiries
from nyala.replica.rpc import config_to_pb, heartbeat_from_pb, pb
from nyala.replica.types import Address, Code, DataState, Member, OpId, RaftConfig, Refused, limits
from tests.harness.leading_master import Masters, S
from tests.harness.master_calls import MasterWorld, where
from tests.harness.reachable import ReachableServers

A, B, C, D, E = S[:5]
PLACE = Address("h", 1)


def config(index: int, *uuids: str) -> RaftConfig:
    return RaftConfig(OpId(1, index), tuple(Member(u, (where(u),)) for u in uuids))


class World(Masters):
    """A tablet on a, b and c; each server listens at an address of its own."""

    def __init__(self) -> None:
        super().__init__(4)
        self.servers = ReachableServers()
        self.inquiries = Inquiries(self.servers, lambda: self.box.catalog, lambda: self.state.soft, self.clock)
        for uuid in S[:4]:
            self.state.soft.servers[uuid].addresses = (where(uuid),)
            self.servers.listen(uuid, where(uuid))
            self.holds(uuid, config(1, A, B, C))

    def holds(self, uuid: str, held: RaftConfig, tablet: str = "") -> None:
        status = pb.ReplicaStatus(
            tablet_id=tablet or self.tablet, uuid=uuid, data_state=DataState.READY, phase="RUNNING", term=1
        )
        status.committed_config.CopyFrom(config_to_pb(held))
        self.servers.held.setdefault(uuid, {})[status.tablet_id] = status

    async def ask(self, tablet: str = "") -> int:
        """How many servers were called for it now."""
        before = len(self.servers.calls)
        self.inquiries.request(tablet or self.tablet)
        await self.inquiries.settled()
        return len(self.servers.calls) - before


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await scenario(World())

    asyncio.run(all_of_it())


def test_members_are_asked_once_for_a_while_and_with_back_off_in_vain() -> None:
    """IN-41. Goal: a deletion costs one call to each voter, and a config that no voter confirms costs ever fewer calls.
    Method: answers of all voters, which hold for 10 s; then only one voter answers, and each failed inquiry doubles the
    pause."""

    async def scenario(w: World) -> None:
        assert w.inquiries.proof(w.tablet) is None
        assert await w.ask() == 3
        proof = w.inquiries.proof(w.tablet)
        assert proof is not None and proof.confirmed and proof.config == config(1, A, B, C)
        assert await w.ask() == 0, "a moment ago"
        w.clock.now_us += FRESH_US
        assert w.inquiries.proof(w.tablet) is None, "answers get old"
        for uuid in (B, C):
            del w.servers.listening[where(uuid)]
        pauses, waited_us = [], 0
        while len(pauses) < 10:
            if await w.ask():  # a call that nobody takes counts, too
                pauses.append(waited_us)
                waited_us = 0
                assert (late := w.inquiries.proof(w.tablet)) is not None and not late.confirmed
            waited_us += PAUSE_US_FIRST
            w.clock.now_us += PAUSE_US_FIRST
        assert pauses[1:4] == [2 * PAUSE_US_FIRST, 4 * PAUSE_US_FIRST, 8 * PAUSE_US_FIRST]
        assert pauses[-1] == PAUSE_US_MAX

    run(scenario)


def test_dead_voter_does_not_keep_a_majority_from_confirming() -> None:
    """IN-41. Goal: a removal goes on though a member is dead. Method: one of three does not answer; another uuid
    answers at its address; its server is not known at all."""

    async def scenario(w: World) -> None:
        del w.servers.listening[where(C)]
        for _ in range(3):
            w.inquiries.forget()
            assert await w.ask() in (2, 3)
            proof = w.inquiries.proof(w.tablet)
            assert proof is not None and proof.confirmed
            w.servers.listen(E, where(C))
            w.holds(E, config(99, E))
            if C in w.state.soft.servers and where(C) in w.servers.listening:
                w.state.soft.servers.pop(C, None)

    run(scenario)


def test_few_tablets_are_asked_for_at_once_and_each_once() -> None:
    """IN-41. Goal: a thousand deletions do not open a thousand connections, and each tablet is asked about once.
    Method: inquiries for many tablets are requested again and again while no server answers; then all answer."""

    async def scenario(w: World) -> None:
        record = dict(w.box.catalog.records.get(TABLET + w.tablet) or {})
        tablets = [f"{n:032x}" for n in range(100)]
        w.box.commit(({TABLET + t: record for t in tablets}, [], "", None))
        for tablet in tablets:
            for uuid in (A, B, C):
                w.holds(uuid, config(1, A, B, C), tablet)
        w.servers.slow = asyncio.Event()
        for _ in range(3):
            for tablet in tablets:
                w.inquiries.request(tablet)
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert w.servers.open == 3 * limits.INQUIRIES_MAX
        w.servers.slow.set()
        await w.inquiries.settled()
        proven = [t for t in tablets if w.inquiries.proven(t) is not None]
        assert len(proven) == limits.INQUIRIES_PENDING_MAX < len(tablets), "the others later"
        for tablet in tablets:
            w.inquiries.request(tablet)
        await w.inquiries.settled()
        assert w.servers.open_max == 3 * limits.INQUIRIES_MAX and len(w.servers.calls) == 300
        assert sum(w.inquiries.proven(t) is not None for t in tablets) == 100

    run(scenario)


def test_one_server_keeps_few_inquiries_waiting() -> None:
    """IN-41. Goal: a server that reports thousands of tablets starts few inquiries and does not delay those of other
    servers. Method: one server's replicas of 2,000 tablets, while no server answers; then one of another server's."""

    async def scenario(w: World) -> None:
        record = dict(w.box.catalog.records.get(TABLET + w.tablet) or {})
        tablets = [f"{n:032x}" for n in range(2001)]
        w.box.commit(({TABLET + t: record for t in tablets}, [], "", None))
        w.servers.slow = asyncio.Event()
        before = len(asyncio.all_tasks())
        for tablet in tablets[:2000]:
            w.inquiries.request(tablet, D)
        assert len(asyncio.all_tasks()) - before == limits.INQUIRIES_PENDING_PER_SERVER_MAX
        w.inquiries.request(tablets[2000], E)
        assert len(asyncio.all_tasks()) - before == limits.INQUIRIES_PENDING_PER_SERVER_MAX + 1
        w.servers.slow.set()
        await w.inquiries.settled()
        asked = len(w.servers.calls)
        w.inquiries.request(tablets[1999], D)
        await w.inquiries.settled()
        assert len(w.servers.calls) == asked + 3, "its turn comes"

    run(scenario)


def test_members_of_every_config_that_is_told_of_are_asked() -> None:
    """IN-42. Goal: the masters ask the former members before they believe a config that drops them. Method: d reports
    that it is alone. The masters call all members; the former ones still have their config, so d's config is not
    proven."""

    async def scenario(w: World) -> None:
        alone = config(9, D)
        w.holds(D, alone)
        status = w.servers.held[D][w.tablet]
        beat = pb.HeartbeatRequest(server_uuid=D, full_report=True, replicas=[status])
        beat.addresses.add(host=where(D).host, port=where(D).port)
        w.state.soft.heartbeat(*heartbeat_from_pb(beat), w.clock.now_us)
        assert await w.ask() == 4
        assert w.inquiries.proven(w.tablet) == config(1, A, B, C)

    run(scenario)


def test_one_of_two_voters_is_believed_by_an_operators_word_only() -> None:
    """IN-42. Goal: if one of two voters reports that it is alone, the masters believe it only after an operator wanted
    one voter for the tablet, or confirmed the forced config. Method: two voters, one of which tells a config of itself;
    the desired change for one replica; then the same with a forced config."""

    async def scenario(w: World) -> None:
        two, one = config(2, A, B), config(3, A)
        forced = RaftConfig(OpId(1 << 32, 4), one.members, unsafe=True)
        tablet = stored(w)

        async def proven() -> RaftConfig:
            w.inquiries.forget()
            await w.ask()
            proof = w.inquiries.proof(w.tablet)
            assert proof is not None
            return proof.config

        for told, word in ((one, "wanted"), (forced, "confirmed")):
            w.box.commit(({TABLET + w.tablet: replace(tablet, config=two)}, [], "", None))
            w.holds(A, told)
            w.holds(B, two)
            w.servers.held[A][w.tablet].term = told.opid.term
            assert await proven() == two
            if word == "wanted":
                w.box.commit((wanting(w, 1), [], "", None))
            else:
                w.box.commit(confirm_config(w.box.catalog, w.tablet, told, 1))
            assert await proven() == told
            proof = w.inquiries.proof(w.tablet)
            assert proof is not None and proof.leaves_out(B, two.opid)

    def wanting(w: World, voters: int) -> dict[str, Any]:
        return {TABLET + w.tablet: replace(stored(w), replication_factor=voters)}

    def stored(w: World) -> Tablet:
        tablet = w.box.catalog.get(TABLET, w.tablet)
        assert tablet is not None
        return tablet

    run(scenario)


def test_catalog_keeps_each_proven_config_once() -> None:
    """IN-40. Goal: the catalog records each proven config, for the next leading master; a config change costs one
    record, a heartbeat none. Method: the record of a new tablet, of one of an older build, and of one that is kept
    already, each with nothing proven, with the same config, an older one and a newer one."""
    members = tuple(Member(u, (PLACE,)) for u in (A, B, C))
    first = Tablet(table_id="t", bucket=0, range_pos=0, members=members)
    begun = marked(first, None)
    assert begun.formed and begun.config == first.known_config == RaftConfig(OpId(0, 0), members)
    legacy = replace(first, formed=True)
    assert marked(legacy, None).config is None
    later = config(9, B, C, D)
    assert marked(legacy, later).known_config == marked(first, later).known_config == later
    kept = marked(begun, later)
    assert [is_later(kept, c) for c in (None, config(8, A), later, config(10, B, C))] == [False, False, False, True]
    assert is_later(legacy, config(0, A, B, C)) and not is_later(begun, first.known_config)
    assert marked(kept, config(8, A)) == kept


def test_config_survives_in_the_catalog_as_it_is() -> None:
    """IN-40. Goal: a config is read from the catalog exactly as it was written. Method: configs with all marks, without
    addresses, and an unsafe one."""
    members = (
        Member(A, (PLACE, Address("[::1]", 2))),
        Member(B, (), votes=False, promote=True, replace=True),
        Member(C, (PLACE,), promote=True, holds_data=False),
    )
    whole = RaftConfig(OpId(1 << 32, 7), members, (3, 9), unsafe=True)
    tablet = Tablet(table_id="t", bucket=0, range_pos=0, members=(), config=whole)
    found = read(TABLET, json.loads(json.dumps(write(tablet))))
    assert found == tablet and tablet.known_config == whole


def test_operator_confirms_a_config_only_forward() -> None:
    """IN-42. Goal: an operator can confirm only a config later than the one that the masters know. Method: a later one,
    the same again, an earlier one, another one at the same position; a tablet of an older build takes any."""
    m = Masters()
    record = m.box.catalog.records.get(TABLET + m.tablet) or {}
    m.box.commit(({TABLET + m.tablet: {k: v for k, v in record.items() if k != "config"}}, [], "", None))
    confirm = lambda c: m.box.commit(  # noqa: E731
        confirm_config(m.box.catalog, m.tablet, c, 1)
    )
    assert confirm(config(3, D)) is True, "nothing was kept of it before"
    assert confirm(config(9, D)) is True and confirm(config(9, D)) is False
    for refused in (config(8, D), config(9, E)):
        with pytest.raises(Refused) as caught:
            confirm(refused)
        assert caught.value.code is Code.CAS_FAILED
    assert m.box.known(m.tablet) == config(9, D)


def test_masters_tick_keeps_what_changed_and_asks_only_then() -> None:
    """IN-40. Goal: a whole master records each reported config change after it has asked the members, and asks only
    then. Method: the config of a tablet of an older build is asked for and recorded; nothing is asked while nothing
    changes; a reported change is asked for and recorded once; one that members told before any report is, too;
    a change that its members deny is not."""

    async def scenario(w: MasterWorld) -> None:
        reconciler = Reconciler(w.master)

        async def ticked(times: int = 2) -> int:
            calls = len(w.servers.calls)
            for _ in range(times):
                w.clock.now_us += PAUSE_US_FIRST
                await reconciler.tick()
                await w.master.inquiries.settled()
            return len(w.servers.calls) - calls

        def say(held: RaftConfig) -> None:
            for uuid in held.voters:
                status = w.beat(uuid).replicas[0]
                status.committed_config.CopyFrom(config_to_pb(held))
                w.servers.held[uuid] = {w.tablet: status}

        def kept() -> Any:
            return (w.group.catalog.records.get(TABLET + w.tablet) or {}).get("config")

        say(config(1, *S[:3]))
        assert kept() is None
        assert await ticked() == 3 and kept()["index"] == 1
        await w.report()
        log = w.group.replica.last_logged
        assert await ticked(5) == 0 and w.group.replica.last_logged == log
        w.members, w.config_index = S[:4], 2
        say(config(2, *S[:4]))
        await w.report()
        assert await ticked() == 4 and kept()["index"] == 2 and len(kept()["members"]) == 4
        assert await ticked(5) == 0, "it is kept, though no replica has reported since"
        say(config(3, *S[:4]))
        w.clock.now_us += PAUSE_US_FIRST
        w.master.inquiries.request(w.tablet)
        await w.master.inquiries.settled()
        await ticked(1)
        assert kept()["index"] == 3, "it was proven, though no replica has reported it"
        w.members, w.config_index = [S[0], S[4]], 4
        await w.report()
        await ticked()
        assert kept()["index"] == 3

    async def all_of_it() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            await scenario(world)
        finally:
            await world.end()

    asyncio.run(all_of_it())


@pytest.mark.parametrize(("looks", "expected_s"), [(0, 0.5), (5_000, 0.5), (12_000, 1.2), (333_000, 2.0)])
def test_tick_that_looked_at_many_tablets_is_followed_by_a_longer_pause(looks: int, expected_s: float) -> None:
    """IN-80. Goal: while the reports of all servers come in, requests have at least half of the loop, and a tablet that
    three reports touch is not looked at three times. Method: the pause for numbers of looks; a reconciler counts those
    since its last pause."""
    assert pause_s(500, looks) == expected_s
    m = Masters()
    reconciler = Reconciler(m.state)
    m.state.kept.refreshes += looks
    assert [reconciler.next_in_s(), reconciler.next_in_s()] == [expected_s, 0.5]
