"""The masters against a process that may say anything: their rules, beside an honest tablet that changes, moves and is
forced; and a whole master, with its checks, admission, inquiries and ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.master.decisions.reconciler import at_known_places, is_later, marked
from nyala.replica.master.heartbeats.soft_state import SoftState
from nyala.replica.master.requests.confirming import confirm_config
from nyala.replica.master.tablets.view import wanted_voters
from nyala.replica.policy import ServerView
from nyala.replica.rpc import config_to_pb, heartbeat_from_pb, opid_from_pb, pb
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.lied_to import LAIR, STRANGER, LiedTo
from tests.harness.master_calls import S, where
from tests.harness.reachable import AskedAtOnce, orders_now

HONEST, LIAR, STRANGERS = "abcde", "f", "fgh"
GENERATION = 1 << 32
STEPS = ["change", "change", "catch up", "beat", "beat", "lie", "conspire", "tick", "obey", "fail over", "force"]


def config(opid: OpId, names: str, *, unsafe: bool = False) -> RaftConfig:
    members = tuple(Member(n * 32, (Address(n, 1),)) for n in sorted(names))
    return RaftConfig(opid, members, unsafe=unsafe)


class Tablet:
    """One tablet as it truly is, what the masters know of it, and a liar, who may also be one of its members, with
    strangers that say what the liar wants."""

    def __init__(self, liar: str) -> None:
        self.liar = liar
        self.box = AppliedCatalog()
        self.soft = SoftState(0, self.box.known)
        self.asked = AskedAtOnce(self.box.known, lambda tablet_id: wanted_voters(self.box.catalog, tablet_id))
        self.now_us = 0
        hosts = [ServerView(uuid=n * 32, member=Member(n * 32, (Address(n, 1),))) for n in "abc"]
        self.box.commit(create_table(self.box.catalog, new_table(buckets=1), hosts, {}, 1))
        self.tablet, record = next(iter(self.box.catalog.items(TABLET)))
        self.box.commit(({TABLET + self.tablet: marked(record, None)}, [], "", None))
        self.history = [config(OpId(0, 0), "abc")]
        self.held: dict[str, RaftConfig] = dict.fromkeys("abc", self.history[0])
        """By letter, what each live replica holds."""
        self.tombstones: dict[str, RaftConfig] = {}
        """By letter, what a replica held when it was deleted."""
        self.lies = {name: self.status(name, self.history[0]) for name in {*STRANGERS, liar}}
        """The answers of the liar and the strangers."""
        self.admit()

    def admit(self) -> None:
        for name in HONEST + STRANGERS:
            self.soft.admit(name * 32, (Address(name, 1),), self.now_us)

    @property
    def newest(self) -> RaftConfig:
        return self.history[-1]

    @property
    def voters(self) -> str:
        return "".join(u[0] for u in self.newest.voters)

    def change(self, name: str, agree: int, fewest: int) -> None:
        """One voter joins, or leaves if `fewest` stay; a majority of the new config holds it. One stays only if an
        operator wants that, and until the masters know it."""
        names = self.voters
        if len(names) == 1 and self.box.known(self.tablet) != self.newest:
            return
        if name in names and len(names) > fewest:
            names = names.replace(name, "")
        elif name not in names and len(names) < 5:
            names += name
        else:
            return
        before = self.newest.opid
        self.history.append(config(OpId(before.term, before.index + 1), names))
        tablet = self.box.catalog.get(TABLET, self.tablet)
        assert tablet is not None
        wanted = replace(tablet, replication_factor=1 if len(names) == 1 else 3)
        self.box.commit(({TABLET + self.tablet: wanted}, [], "", None))
        have = [n for n in names if self.held.get(n) == self.history[-2]]
        order = [*have, *(n for n in names if n not in have)]
        for one in order[: max(self.newest.majority, min(agree, len(order)))]:
            self.held[one] = self.newest

    def force(self, name: str) -> None:
        """All but one are lost, an operator forces a config of that one, and tells the masters."""
        if self.newest.unsafe or self.held.get(name) != self.newest:
            return
        self.history.append(config(OpId(GENERATION, self.newest.opid.index + 1), name, unsafe=True))
        self.held[name] = self.newest
        self.box.commit(confirm_config(self.box.catalog, self.tablet, self.newest, 1))

    def status(self, name: str, held: RaftConfig, role: str = "FOLLOWER") -> pb.ReplicaStatus:
        status = pb.ReplicaStatus(
            tablet_id=self.tablet, uuid=name * 32, data_state=DataState.READY, phase="RUNNING", role=role, term=1 << 40
        )
        status.committed_config.CopyFrom(config_to_pb(held))
        return status

    def true_status(self, name: str) -> pb.ReplicaStatus | None:
        held = self.held.get(name)
        if held is None and name in self.tombstones:
            status = self.status(name, self.tombstones[name])
            status.data_state, status.phase = DataState.DELETED, "STOPPED"
            return status
        leads = held == self.newest and name == next(n for n in self.voters if self.held.get(n) == self.newest)
        return self.status(name, held, "LEADER" if leads else "FOLLOWER") if held is not None else None

    def beat(self, name: str, status: pb.ReplicaStatus | None) -> None:
        replicas = [status] if status is not None else []
        beat = pb.HeartbeatRequest(server_uuid=name * 32, full_report=True, replicas=replicas)
        beat.addresses.add(host=name, port=1)
        self.soft.heartbeat(*heartbeat_from_pb(beat), self.now_us)

    def answers(self) -> None:
        """Return every server's answer to the masters: the truth, except for the liar and for strangers at the
        addresses where they listen."""
        self.asked.held = {}
        for name in HONEST + STRANGERS:
            status = self.lies.get(name) or self.true_status(name)
            if status is not None:
                self.asked.held[name * 32] = {self.tablet: status}

    def tick(self) -> None:
        """The catalog keeps what is proven, if something new is believed."""
        self.answers()
        proof, record = self.asked.proof(self.tablet), self.box.catalog.get(TABLET, self.tablet)
        if proof is not None and proof.confirmed and record is not None and is_later(record, proof.config):
            self.box.commit(({TABLET + self.tablet: marked(record, proof.config)}, [], "", None))
        assert self.box.known(self.tablet) in self.history, "the catalog never keeps a lie"

    def obey(self) -> list[str]:
        """Every honest server carries its orders out; who deleted its replica. None of them is needed."""
        self.answers()
        gone = []
        for name in HONEST:
            for order in orders_now(self.box.catalog, self.soft, self.asked, name * 32, self.now_us, 0):
                if name == self.liar or not order.HasField("delete"):
                    continue
                assert self.newest.member(name * 32) is None, f"{name} is a member, and is ordered to delete"
                if name in self.held and self.held[name].opid <= opid_from_pb(order.delete.committed_config_id):
                    self.tombstones[name] = self.held.pop(name)
                    gone.append(name)
                    self.beat(name, self.true_status(name))
        return gone

    def believes_only_the_truth(self) -> None:
        known = self.soft.tablets.get(self.tablet)
        if known is not None:
            assert known.config is None or known.config in self.history
            assert known.leader_uuid[:1] not in STRANGERS or not known.leader_uuid
        for name in HONEST:
            assert self.soft.servers[name * 32].addresses == (Address(name, 1),)

    def comes_to_rest(self) -> None:
        """All learn the newest config, tell the masters, and whoever left it has deleted its replica.

        Where two voted, and one of them missed the change in which it might have agreed, an operator has to confirm."""
        for name in self.voters:
            self.held[name] = self.newest
        for round in range(4):
            for name in HONEST:
                if name != self.liar:
                    self.beat(name, self.true_status(name))
            self.tick()
            self.obey()
            known = self.box.known(self.tablet)
            if round == 1 and known != self.newest and known is not None and len(known.voters) == 2:
                self.box.commit(confirm_config(self.box.catalog, self.tablet, self.newest, 1))
        assert sorted(self.held) == sorted(self.voters)
        state = self.soft.tablets[self.tablet]
        assert state.config == self.box.known(self.tablet) == self.newest and state.leader_uuid


def lies(draw: st.DrawFn, tablet: Tablet, name: str) -> pb.ReplicaStatus:
    """Return any report that a server may send of a tablet."""
    others = draw(st.sets(st.sampled_from(HONEST + STRANGERS), max_size=3))
    names = "".join(others | ({name} if not others or draw(st.booleans()) else set()))
    opid = OpId(draw(st.sampled_from([0, 1, 2, GENERATION, GENERATION + 1])), draw(st.integers(0, 12)))
    status = tablet.status(name, config(opid, names, unsafe=draw(st.booleans())), draw(st.sampled_from(["LEADER", ""])))
    status.leader_uuid = draw(st.sampled_from(["", *(n * 32 for n in HONEST + STRANGERS)]))
    status.damaged = draw(st.booleans())
    status.data_state = draw(st.sampled_from([DataState.READY, DataState.DELETED, DataState.COPYING]))
    status.phase = draw(st.sampled_from(["RUNNING", "STOPPED", "FAILED"]))
    status.term = draw(st.sampled_from([0, 2, 1 << 40, 1 << 62]))
    return status


def conspire(draw: st.DrawFn, tablet: Tablet) -> None:
    """The liar and the strangers lead away from the true config together: by steps of one voter each, which strangers
    tell, to a config that its own voters hold."""
    names, (term, index) = tablet.voters, tablet.newest.opid
    steps: list[RaftConfig] = []
    for _ in range(draw(st.integers(1, 3))):
        leaves = [n for n in names if n != tablet.liar]
        if len(names) > 1 and leaves and draw(st.booleans()):
            names = names.replace(draw(st.sampled_from(leaves)), "")
        else:
            names += draw(st.sampled_from([n for n in (*STRANGERS, tablet.liar) if n not in names] or [""]))
        index += 1
        steps.append(config(OpId(term, index), names))
    for name in {*STRANGERS, tablet.liar}:
        role = draw(st.sampled_from(["LEADER", "FOLLOWER"]))
        tablet.lies[name] = tablet.status(name, steps[-1], role)
    for name, held in zip(draw(st.permutations(STRANGERS)), steps[:-1], strict=False):
        tablet.lies[name] = tablet.status(name, held)
    for name, lie in tablet.lies.items():
        tablet.beat(name, lie)


@pytest.mark.a_third
@pytest.mark.parametrize("kind", ["a stranger", "under a member's uuid", "a member"])
@settings(max_examples=60)
@given(st.data())
def test_liar_deletes_nothing_moves_nobody_and_keeps_nothing_from_its_end(kind: str, data: st.DataObject) -> None:
    """IN-40, IN-41, IN-42, IN-43. Goal: with one lying server, the masters never order a needed replica away; a server
    that is no member changes no belief; true changes are completed. Method: random steps of an honest tablet (voters
    join and leave, members lag, a recovery is forced and confirmed, masters fail over, the catalog keeps what is
    proven, servers obey) beside a liar that is no member, that speaks under members' uuids from elsewhere, or that is a
    member itself, with three made-up servers. The tablet has five voters to one, or to two beside a member that lies;
    where one stays, an operator wanted one."""
    tablet = Tablet({"a stranger": LIAR, "under a member's uuid": LIAR, "a member": "c"}[kind])
    draw: st.DrawFn = data.draw
    for one in HONEST:
        if one != tablet.liar:
            tablet.beat(one, tablet.true_status(one))
    for step in draw(st.lists(st.sampled_from(STEPS), max_size=30)):
        name = draw(st.sampled_from(HONEST))
        tablet.now_us += 1_000_000
        if step == "change":
            tablet.change(name, draw(st.integers(0, 5)), 2 if kind == "a member" else 1)
        elif step == "catch up" and name in tablet.voters:
            tablet.held[name] = tablet.newest
        elif step == "beat" and name != tablet.liar:
            tablet.beat(name, tablet.true_status(name))
        elif step == "lie":
            speaks = name if kind == "under a member's uuid" else tablet.liar
            tablet.lies[tablet.liar] = lies(draw, tablet, tablet.liar)
            tablet.beat(speaks, lies(draw, tablet, speaks))
            tablet.obey()
        elif step == "conspire":
            conspire(draw, tablet)
            tablet.obey()
        elif step == "tick":
            tablet.tick()
        elif step == "obey":
            tablet.obey()
        elif step == "fail over":
            tablet.soft.reset(tablet.now_us)
            tablet.admit()
        elif step == "force" and kind != "a member":
            tablet.force(name)
        if kind == "a stranger":
            tablet.believes_only_the_truth()
    if kind != "a member":
        tablet.comes_to_rest()


async def with_liar(liar: str, seed: int, scenario: Callable[[LiedTo], Awaitable[None]]) -> None:
    world = LiedTo(liar, seed)
    await world.begin()
    try:
        await scenario(world)
    finally:
        await world.end()


async def any_lies(world: LiedTo) -> None:
    """Rounds of lies and truth; masters fail over, and the honest tablet's config changes."""
    settled = world.truth
    for n in range(20):
        settled = world.truth if n == 14 else settled
        if n < 14 and world.rng.random() < 0.1:
            world.master.led_term = -1  # another leadership begins
        if n < 14 and world.rng.random() < 0.2:
            world.change(world.truth.members)
        decided = await world.round(world.rng.choice([500_000, 1_000_000, 9_000_000, 12_000_000]))
        world.check()
        if world.liar == STRANGER:
            assert decided == [], "a stranger causes no decision of a tablet of which it is no member"
    known = world.master.known_config(world.tablet)
    assert known is not None and known.opid >= settled.opid, "the ticks go on for the honest tablet"


KINDS = {"a stranger": STRANGER, "a member": S[2]}


async def lies_beside_restarts(world: LiedTo) -> None:
    """Rounds of lies and truth, in which honest servers are stopped, one or more at a time, and start again where they
    were, and the master does too."""
    for n in range(24):
        if world.rng.random() < 0.4:
            world.stop(world.rng.choice(world.honest))
        if world.rng.random() < 0.1 and world.down <= {*S[:3]}:
            world.master.led_term = -1  # it forgets where a server was that no config has
        await world.round(world.rng.choice([500_000, 1_000_000, 3_000_000]))
        if world.rng.random() < 0.4 or n > 20:
            world.start_all()
            await world.round()
            world.check()
            if world.rng.random() < 0.5 and n < 20:
                world.change(world.truth.members)
        state = world.master.soft.tablets.get(world.tablet)
        leads = state.leader_uuid if state is not None else ""
        if not world.down and leads:
            assert leads in world.honest, "a look-up names an honest leader"
    for _ in range(4):
        settled = world.truth
        await world.round(12_000_000)
        world.check()
    known = world.master.known_config(world.tablet)
    assert known is not None and known.opid >= settled.opid, "the ticks go on for the honest tablet"


@pytest.mark.deep
def test_whole_master_that_hears_lies_under_the_uuids_of_stopped_servers_believes_them_when_they_are_back() -> None:
    """IN-40, IN-41, IN-43. Goal: a process elsewhere that takes the uuids of any number of servers while these are down
    causes no deletion of a needed replica, gets no address of its own into the catalog, and keeps no server out that
    starts again where it was. Method: a leading master as in the test before; a stranger that listens at an address for
    each uuid; servers are stopped and started at random, and the master fails over."""
    for seed in range(30):
        try:
            asyncio.run(with_liar(STRANGER, seed, lies_beside_restarts))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def hears_any_lies(kind: str, seeds: range) -> None:
    for seed in seeds:
        try:
            asyncio.run(with_liar(KINDS[kind], seed, any_lies))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("kind", KINDS)
def test_whole_master_that_hears_any_lie_orders_and_decides_nothing_by_it(kind: str) -> None:
    """IN-40, IN-41, IN-43. Goal: whatever one process reports and answers, under its own uuid and any other, no needed
    replica is ordered away and no honest one is held for failed; no honest server gets another address or is refused;
    the catalog can be read again and grows by nothing; other tablets' new configs are kept. A stranger causes no
    decision of another's tablet. Method: a leading master with its real checks, admission, inquiries and ticks; honest
    servers that carry out each order and decision; heartbeats and answers of which any field has any value."""
    hears_any_lies(kind, range(12))


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_whole_master_that_hears_any_of_many_lies_orders_and_decides_nothing_by_it(kind: str) -> None:
    """IN-40, IN-41, IN-43. Goal and method: as the test before, with 400 histories."""
    hears_any_lies(kind, range(12, 412))


async def tells(world: LiedTo, tablet: str, told: RaftConfig, at: Address, *peers: pb.PeerHealth) -> None:
    """Let the liar say from now on, in each heartbeat and answer, that it leads the tablet with that config."""
    lie = pb.ReplicaStatus(tablet_id=tablet, uuid=world.liar, role="LEADER", phase="RUNNING", term=1 << 40, peers=peers)
    lie.data_state = DataState.READY
    lie.committed_config.CopyFrom(config_to_pb(told))

    async def hear_lies() -> None:
        world.claims, world.said = world.liar, {tablet: lie}
        world.sequence += 1
        beat = pb.HeartbeatRequest(server_uuid=world.liar, process=6, sequence=world.sequence, full_report=True)
        beat.addresses.add(host=at.host, port=at.port)
        beat.replicas.append(lie)
        await world.done("Heartbeat", beat)

    async def is_process(uuid: str, address: Address, process: int) -> bool | None:
        return uuid == world.liar if address in world.lairs else await world.truly[1](uuid, address, process)

    world.hear_lies, world.lie = hear_lies, lambda uuid, _: lie  # type: ignore[method-assign]
    world.servers.is_process = is_process  # type: ignore[method-assign]


def test_member_that_no_master_knows_keeps_the_address_of_the_config() -> None:
    """IN-43. Goal: after a recovery by force, a config may name a server that the masters never heard, and can be
    written. Method: two members, of which one is known."""
    told = config(OpId(1, 1), "ab")
    placed = at_known_places(told, lambda uuid: (where("z"),) if uuid == told.members[0].uuid else ())
    assert [m.addresses for m in placed.members] == [(where("z"),), told.members[1].addresses]
    assert all(m.addresses for m in placed.members)


def test_config_that_a_liar_reports_gives_no_other_server_an_address() -> None:
    """IN-43. Goal: a server cannot lock another one out by a config that names that one elsewhere. Method: the only
    voter of a tablet reports the other as a learner at the liar's address, where it answers by the other's uuid; the
    masters fail over, and the other's heartbeat counts."""

    async def scenario(world: LiedTo) -> None:
        other = S[3]
        members = (Member(STRANGER, (LAIR,)), Member(other, (LAIR,), votes=False))
        await tells(world, world.alone, RaftConfig(OpId(1, 2), members), LAIR)
        for _ in range(4):
            await world.round()
        known = world.master.known_config(world.alone)
        assert known is not None and known.member(other) is not None
        world.master.led_term, world.claims = -1, other
        await world.hear_truth()
        assert world.master.soft.servers[other].addresses == (where(other),)

    asyncio.run(with_liar(STRANGER, 0, scenario))


def test_voter_that_says_that_it_leads_has_no_healthy_one_replaced() -> None:
    """IN-41. Goal: a voter that does not lead cannot have another one replaced by its report of it. Method: for longer
    than the re-replication delay it says that it leads, in a high term, and does not reach the other, which reports its
    true leader."""

    async def scenario(world: LiedTo) -> None:
        unreached = pb.PeerHealth(uuid=S[1], health="NEEDS_COPY", last_contact_us_ago=60_000_000_000)
        await tells(world, world.tablet, world.truth, where(world.liar), unreached)
        for _ in range(8):
            assert await world.round(10_000_000) == []
        state = world.master.soft.tablets[world.tablet]
        assert state.leader_uuid == world.liar, "its lie is heard"

    asyncio.run(with_liar(S[2], 0, scenario))
