"""Random histories of a cluster as the leading master knows it: its catalog, reports, silences, and what it decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from nyala.replica.master import MasterOptions
from nyala.replica.master.catalog.records import (
    DESIRED_CHANGE,
    MAINTENANCE,
    RETIRED,
    TABLE,
    TABLET,
    Maintenance,
    Record,
    Retired,
    Tablet,
)
from nyala.replica.master.catalog.tables import table_record
from nyala.replica.master.heartbeats.belief import newer
from nyala.replica.master.heartbeats.soft_state import LIVE, OPEN, SoftState
from nyala.replica.master.requests import lists
from nyala.replica.master.requests.infos import tablet_infos
from nyala.replica.master.tablets.draining import tablets_on
from nyala.replica.master.tablets.kept_view import KeptView, is_later
from nyala.replica.master.tablets.look_ups import LookUps
from nyala.replica.policy import (
    Caps,
    ChangeKind,
    DesiredChange,
    Need,
    copies_in_place,
    decide,
    is_at_rest,
    replica_load,
)
from nyala.replica.rpc import pb
from nyala.replica.types import (
    Action,
    Address,
    DataState,
    Decision,
    EditKind,
    FailingCopy,
    Heartbeat,
    Member,
    OpId,
    PeerReport,
    RaftConfig,
    Refused,
    ReportedReplica,
    limits,
)
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.whole_view import cluster_view

SERVERS = [letter * 32 for letter in "abcdef"]
TABLES, TABLETS = ["1", "2"], ["t1", "t2", "t3", "t4", "t5"]
DEAD_US, REPLACE_US = 3_000_000, 30_000_000
WAITS_US = [1, 1, 500_000, 500_000, 500_000, 2_000_000, DEAD_US - 1, DEAD_US, DEAD_US + 1, 14_000_000, 16_000_000]
WAITS_US += [REPLACE_US - 1, REPLACE_US, REPLACE_US + 1]
EVENTS = [
    "form", "config", "factor", "drop", "bring", "forget", "want", "unwant", "table", "no table", "retire", "unretire",
    "reset", "prove", "restart", "boot", "away", "away", "back", "back", "evolve", "evolve",
    "maintain", "maintain", "work ends", "clock", "forget server",
]  # fmt: skip
CALM_EVENTS = [
    "form", "config", "want", "want", "want", "want", "unwant", "unwant", "lost", "lost", "back", "back", "retire",
    "unretire", "unretire", "unretire", "evolve", "maintain", "work ends", "work ends", "work ends", "reset", "table",
]  # fmt: skip


def member(uuid: str, **marks: bool) -> Member:
    return Member(uuid, (Address("h", 1 + SERVERS.index(uuid)),), **marks)


def kind_of(decision: Decision) -> str:
    """Which advice of the policy, or which desired change, a decision follows."""
    reason = decision.reason.lower()
    if reason.startswith("the leader"):
        return Need.TRANSFER
    if reason.startswith("demote: it was lost again"):
        return Need.DEMOTE_AGAIN
    word, colon, _ = reason.partition(":")
    return word.upper() if colon else f"desired {word.split(',')[0]}"


class World:
    """A catalog, reports of servers, and what is true of each tablet: its config, leader and term."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.options = MasterOptions(
            root="x", server_dead_ms=DEAD_US // 1000, rereplicate_after_ms=REPLACE_US // 1000,
            heal_by_witness=self.rng.random() < 0.7,
        )  # fmt: skip
        self.calm = self.rng.random() < 0.7
        """Whether most replicas are well, so that desired changes are granted."""
        self.caps = Caps(moves_max=self.rng.choice([1, 3, 100]), moves_per_server_max=self.rng.choice([1, 100]))
        self.cluster_id = "c"
        self.box = AppliedCatalog()
        self.catalog = self.box.catalog
        self.now_us = 1_000_000
        self.wall_ahead_us = 5_000_000
        self.soft = SoftState(self.now_us, self.box.known, long_silence_us=REPLACE_US // 2)
        self.proofs: dict[str, RaftConfig] = {}
        self.kept = KeptView(lambda: self.catalog, lambda: self.soft, self.proofs.get, self.options)
        self.look_ups = LookUps(lambda: self.catalog, self.kept)
        self.up = dict.fromkeys(SERVERS, True)
        self.lost = SERVERS[0]
        self.booting = dict.fromkeys(SERVERS, False)
        self.process = dict.fromkeys(SERVERS, 1)
        self.sequence = 0
        self.held: dict[str, dict[str, ReportedReplica]] = {u: {} for u in SERVERS}
        self.open_us: dict[str, dict[str, int]] = {u: {} for u in SERVERS}
        self.heard_us: dict[str, tuple[str, int]] = {}
        """Slow twins: as `ServerState.open_us`; by tablet, its leader and when that one was heard."""
        self.truth: dict[str, tuple[RaftConfig, str, int]] = {}
        self.decisions: list[Decision] = []
        self.reached: set[str] = set()
        """The last decisions, and the kinds of all so far."""
        self.put({TABLE + t: replace(table_record(new_table()), name=t) for t in TABLES})
        for tablet in TABLETS:
            members = tuple(member(u) for u in self.rng.sample(SERVERS, 3))
            self.truth[tablet] = RaftConfig(OpId(1, 1), members), members[0].uuid, 1
            self.put({TABLET + tablet: self.record(members, formed=self.rng.random() < 0.7)})

    def record(self, members: tuple[Member, ...], *, formed: bool) -> Tablet:
        return Tablet(table_id=self.rng.choice(TABLES), bucket=0, range_pos=0, members=members, formed=formed)

    @property
    def wall_us(self) -> int:
        """The wall clock, which operators may set."""
        return self.now_us + self.wall_ahead_us

    def put(self, puts: dict[str, Record], *deletes: str) -> None:
        self.box.commit((puts, list(deletes), "", None))

    @property
    def mono_us(self) -> int:
        """The clock of silences."""
        return self.now_us

    def page(self, table_id: str) -> list[pb.TabletInfo]:
        """Return what a client is told that looks a table up."""
        request = pb.TableRequest(table_id=table_id, with_tablets=True, limit_bytes=limits.PAGE_BYTES)
        master: Any = self
        answering = lists.table_page(master, request)
        while True:
            try:
                answering.send(None)
            except StopIteration as done:
                assert not done.value.next
                return list(done.value.tablets)

    def told(self, table_id: str) -> list[pb.TabletInfo]:
        """Return what it would be told if nothing was kept."""
        master: Any = self
        return list(tablet_infos(master, table_id))

    # ------------------------------------------------------------------------------------------------------- reports

    def evolve(self, tablet: str) -> None:
        """Another config, or another leader."""
        config, _, term = self.truth[tablet]
        members = {m.uuid: m for m in config.members}
        uuid = self.rng.choice(SERVERS)
        kind = self.rng.choice(["lead", "join", "leave", "mark", "unmark", "promote", "demote"])
        known = members.get(uuid)
        if kind == "lead" and config.voters:
            self.truth[tablet] = config, self.rng.choice(config.voters), term + 1
            return
        if kind == "join" and known is None:
            members[uuid] = member(uuid, votes=False, promote=True, holds_data=self.rng.random() < 0.8)
        elif kind == "leave" and known is not None and len(config.voters) > 1:
            del members[uuid]
        elif kind in ("mark", "unmark") and known is not None:
            members[uuid] = replace(known, replace=kind == "mark")
        elif kind == "promote" and known is not None:
            members[uuid] = self.promoted(known)
        elif kind == "demote" and known is not None and len(config.voters) > 1:
            members[uuid] = replace(known, votes=False)
        self.commit(tablet, members)

    @staticmethod
    def promoted(known: Member) -> Member:
        """A member that has caught up; a witness votes before it has its data."""
        joins = known.promote and not known.votes and not known.holds_data
        return replace(known, votes=True, promote=joins, holds_data=not joins)

    def settle(self, tablet: str) -> None:
        """The tablet's leader promotes a member that waits for it, if their servers go on."""
        config, leader, _ = self.truth[tablet]
        for known in config.members:
            if known.promote and self.up[known.uuid] and self.up[leader] and self.rng.random() < 0.2:
                self.commit(tablet, {m.uuid: self.promoted(m) if m is known else m for m in config.members})
                return

    def commit(self, tablet: str, members: dict[str, Member]) -> None:
        """The tablet has another config, and another leader if the present one does not vote in it."""
        config, leader, term = self.truth[tablet]
        if any(m.votes for m in members.values()):
            later = RaftConfig(OpId(term, config.opid.index + 1), tuple(members.values()))
            self.truth[tablet] = later, leader if leader in later.voters else later.voters[0], term

    def obey(self, decision: Decision) -> None:
        """The tablet's leader carries out a decision, if it is still of its config."""
        config, _, term = self.truth[decision.tablet_id]
        if decision.config_opid != config.opid:
            return
        if decision.action is Action.TRANSFER_LEADERSHIP:
            self.truth[decision.tablet_id] = config, decision.target_uuid, term + 1
            return
        members = {m.uuid: m for m in config.members}
        for edit in decision.edits:
            members[edit.member.uuid] = edit.member
            if edit.kind is EditKind.REMOVE:
                del members[edit.member.uuid]
        self.commit(decision.tablet_id, members)

    def status(self, uuid: str, tablet: str) -> ReportedReplica:
        config, leader, term = self.truth[tablet]
        rng = self.rng
        odd = rng.random() < (0.01 if self.calm else 0.2)
        leads = leader == uuid or (odd and rng.random() < 0.2)
        peers = tuple(
            PeerReport(
                m.uuid,
                rng.choices(["OK", "LAGGING", "UNREACHABLE", "NEEDS_COPY"], [99 if self.calm else 10, 1, 3, 1])[0],
                rng.choice([0, REPLACE_US - 1, REPLACE_US + 1, 10 * REPLACE_US]),
            )
            for m in config.members
            if m.uuid != uuid
        )
        return ReportedReplica(
            tablet_id=tablet,
            data_state=rng.choice([DataState.DELETED, DataState.COPYING, DataState.READY]) if odd else DataState.READY,
            phase=rng.choice(["FAILED", "BOOTSTRAPPING", "CONFIGURING"]) if odd and not leads else "RUNNING",
            role="LEADER" if leads else "FOLLOWER",
            term=term,
            leader_uuid=leader,
            commit_opid=config.opid,
            config=config,
            config_opid=config.opid,
            config_wire=repr(config).encode(),
            pending=leads and rng.random() < 0.1,
            peers=peers if leads else (),
            damaged=odd and rng.random() < 0.5,
            witness=False,
            rows=0,
            bytes_on_disk=rng.choice([0, 5]),
            wal_bytes=0,
        )

    def beat(self, uuid: str) -> None:
        """One heartbeat of a server: all that it has, or what changed and some of the others."""
        rng, held = self.rng, self.held[uuid]
        changed = set()
        for tablet, (config, _, _) in self.truth.items():
            if (config.member(uuid) is not None or tablet in held) and rng.random() < 0.5:
                held[tablet] = self.status(uuid, tablet)
                changed.add(tablet)
        if rng.random() < 0.05 and held:
            del held[rng.choice(sorted(held))]
        known = self.soft.servers.get(uuid)
        full = known is None or not known.reported or rng.random() < 0.2
        told = [s for t, s in sorted(held.items()) if full or t in changed or rng.random() < 0.3]
        failing = rng.choice([(), (), (), (FailingCopy(rng.choice(TABLETS), rng.choice([1, 3]), ""),)])
        self.sequence += 1
        beat = Heartbeat(
            server_uuid=uuid,
            addresses=(Address("h", 1 + SERVERS.index(uuid)),),
            process=self.process[uuid],
            sequence=self.sequence,
            replicas=len(told),
            full_report=full,
            slice_until="t3" if full and rng.random() < 0.1 else "",
            booting=self.booting[uuid],
            disk_bytes_free=1 << 40,
            copies_failing=failing,
        )
        try:
            self.soft.heartbeat(beat, lambda before: told, self.now_us)
        except Refused:
            return
        server = self.soft.servers[uuid]
        if server.counted_us == self.now_us:
            self.remember(uuid)

    def remember(self, uuid: str) -> None:
        """The slow twins: a walk over all replicas of a server whose heartbeat counted."""
        server, opened = self.soft.servers[uuid], self.open_us[uuid]
        for tablet in list(opened):
            if tablet not in server.replicas:
                del opened[tablet]
        for tablet, replica in server.replicas.items():
            if replica.phase in OPEN and not server.last_report.booting:
                opened.setdefault(tablet, self.now_us)
            else:
                opened.pop(tablet, None)
            state = self.soft.tablets.get(tablet)
            if state is not None and replica.role == "LEADER" and state.leader_uuid == uuid:
                self.heard_us[tablet] = uuid, self.now_us
        for tablet, state in self.soft.tablets.items():
            if state.leader_status is None:
                self.heard_us.pop(tablet, None)
            elif self.heard_us.get(tablet, ("", 0))[0] != state.leader_uuid:
                self.heard_us[tablet] = state.leader_uuid, self.soft.servers[state.leader_uuid].counted_us

    # -------------------------------------------------------------------------------------------------------- events

    def happen(self) -> None:
        """One change of the catalog, of a server or of the leadership."""
        rng = self.rng
        tablet, uuid, table = rng.choice(TABLETS), rng.choice(SERVERS), rng.choice(TABLES)
        record, config = self.catalog.get(TABLET, tablet), self.truth[tablet][0]
        kind = rng.choice(CALM_EVENTS if self.calm else EVENTS)
        if kind == "form" and record is not None:
            self.put({TABLET + tablet: replace(record, formed=True)})
        elif kind == "config" and record is not None:
            self.put({TABLET + tablet: replace(record, formed=True, config=config)})
        elif kind == "factor" and record is not None:
            self.put({TABLET + tablet: replace(record, replication_factor=rng.choice([0, 1, 3, 5]))})
        elif kind == "drop" and record is not None and rng.random() < 0.3:
            self.put({TABLET + tablet: replace(record, dropped_us=1)})
        elif kind == "bring" and (record is None or record.dropped):
            self.put({TABLET + tablet: self.record(config.members, formed=True)})
        elif kind == "forget" and record is not None and rng.random() < 0.3:
            self.put({}, TABLET + tablet)
        elif kind == "want":
            self.put({DESIRED_CHANGE + tablet: self.desired(config)})
        elif kind == "unwant":
            self.put({}, DESIRED_CHANGE + tablet)
        elif kind == "table":
            self.put({TABLE + table: replace(table_record(new_table()), replication_factor=rng.choice([1, 3, 5]))})
        elif kind == "no table" and rng.random() < 0.1:
            self.put({}, TABLE + table)
        elif kind == "retire":
            self.put({RETIRED + uuid: Retired(since_us=1, reason="", tablets_at_first=0)})
        elif kind == "unretire":
            self.put({}, RETIRED + uuid)
        elif kind == "maintain":
            seconds_us = rng.choice([1, 500_000, DEAD_US, REPLACE_US, 10 * REPLACE_US])
            work = Maintenance(since_us=0, until_us=self.wall_us + seconds_us, seconds=1, owner="", reason="")
            self.put({MAINTENANCE + uuid: work})
        elif kind == "forget server" and self.soft.forget_server(uuid):
            self.open_us[uuid] = {}
        elif kind == "work ends":
            self.put({}, MAINTENANCE + uuid)
        elif kind == "clock":
            self.wall_ahead_us = max(0, self.wall_ahead_us + rng.choice([-DEAD_US, REPLACE_US]))
        elif kind == "reset" and rng.random() < 0.3:
            self.soft.reset(self.now_us)
            self.proofs.clear()
            self.heard_us.clear()
            self.open_us = {u: {} for u in SERVERS}
        elif kind == "prove":
            self.proofs[tablet] = config
            self.soft.touched.add(tablet)  # as an inquiry does that has ended
        elif kind == "restart":
            self.process[uuid] += 1
            self.booting[uuid] = rng.random() < 0.7
        elif kind == "boot":
            self.booting[uuid] = not self.booting[uuid]
        elif kind in ("away", "back"):
            self.up[uuid] = kind == "back"
        elif kind == "lost":
            self.lose(rng.choice([self.lost, uuid]))
        elif kind == "evolve":
            self.evolve(tablet)

    def lose(self, uuid: str) -> None:
        """One server alone is silent for longer than the delay."""
        self.lost = uuid
        self.up = {u: u != uuid for u in SERVERS}
        for _ in range(16):
            self.now_us += 2_000_000
            for other in SERVERS:
                if other != uuid:
                    self.beat(other)

    def desired(self, config: RaftConfig) -> DesiredChange:
        kind = self.rng.choice([*ChangeKind])
        others = [m.uuid for m in config.members if not m.votes]
        source, target = self.rng.choice(config.members).uuid, self.rng.choice(SERVERS)
        if others and self.rng.random() < 0.6:
            kind, source = self.rng.choice([ChangeKind.PROMOTE, ChangeKind.REMOVE]), self.rng.choice(others)
            target = source
        deadline_us = self.rng.choice([0, 1, self.wall_us + 10_000_000])
        votes = kind is not ChangeKind.ADD or self.rng.random() < 0.5
        return DesiredChange(
            kind=kind, wish_id="w", from_uuid=source, to_uuid=target, deadline_us=deadline_us, votes=votes
        )

    # --------------------------------------------------------------------------------------------------------- twins

    def unrecorded(self) -> set[str]:
        """By a walk: the tablets of which servers report more than the record has."""
        found = set()
        for tablet_id, record in self.catalog.items(TABLET):
            state = self.soft.tablets.get(tablet_id)
            config = state.config if state is not None else None
            if record.dropped:
                continue
            if not record.formed:
                told = state is not None and state.leader_status is not None and config is not None
            else:
                told = record.config is None or (config is not None and newer(config.opid, record.known_config.opid))
                told = told or is_later(record, self.proofs.get(tablet_id))
            if told:
                found.add(tablet_id)
        return found

    def placed(self) -> dict[str, int]:
        """By a walk: the replicas of each server, also those that new tablets will get."""
        load: Counter[str] = Counter()
        for tablet_id, record in self.catalog.items(TABLET):
            state = self.soft.tablets.get(tablet_id)
            config = state.config if state and state.config else record.known_config
            load.update(m.uuid for m in config.members if not record.dropped)
        return dict(load)

    def compare(self) -> None:
        """Everything that the masters do next is the same by the kept view and by a walk."""
        kept, now_us = self.kept, self.now_us
        whole = cluster_view(self.catalog, self.soft, self.options, now_us, self.wall_us)
        assert kept.tablets == {t.tablet_id: t for t in whole.tablets}
        draining = {uuid for uuid, _ in self.catalog.items(RETIRED)}
        assert kept.busy == {t.tablet_id for t in whole.tablets if not is_at_rest(t, draining)}
        assert kept.unwell == {t.tablet_id for t in whole.tablets if t.damaged or t.without_replica}
        assert kept.unrecorded == self.unrecorded()
        assert kept.replica_load() == self.placed()
        load = kept.viewed_load()
        assert +load == replica_load(whole)
        part = replace(whole, tablets=kept.views(kept.busy))
        decisions = decide(whole, 1, self.caps)
        assert decide(part, 1, self.caps, load) == decisions
        self.reached |= {kind_of(d) for d in decisions}
        ages = self.soft.copy_order_ages(now_us)
        wanted = copies_in_place(whole, self.caps, ages)
        assert copies_in_place(replace(whole, tablets=kept.views(kept.unwell)), self.caps, ages, load) == wanted
        self.reached |= {"copy in place" for _ in wanted}
        self.decisions = decisions
        self.soft.order_copies_in_place({(r.uuid, r.tablet_id): r.config_opid for r in wanted}, now_us)
        self.compare_servers()
        self.compare_look_ups(at_once=False)

    def compare_look_ups(self, *, at_once: bool) -> None:
        """Clients are told what is; `at_once`: before the next look, without what time and the servers change. Of each
        third round, because it takes as long as all the rest."""
        for table, _ in self.catalog.items(TABLE) if self.sequence % 3 == 0 else ():
            page, told = self.page(table), self.told(table)
            for info in (*page, *told) if at_once else ():
                info.running = False
                info.health.clear()
                for known in info.config.members:
                    known.ClearField("addresses")
            assert page == told

    def compare_servers(self) -> None:
        for uuid, server in self.soft.servers.items():
            assert server.open_us == self.open_us[uuid]
            known = ((t, self.soft.tablets.get(t)) for t in server.replicas)
            strange = {t for t, s in known if s is not None and s.config is not None and not s.config.member(uuid)}
            assert server.strays == strange
            assert self.soft.member_of(uuid) == {
                t for t, s in self.soft.tablets.items() if s.config is not None and s.config.member(uuid) is not None
            }
            configs = {t: r.known_config for t, r in self.catalog.items(TABLET)}
            assert self.catalog.tablets_with(uuid) == sorted(t for t, c in configs.items() if c.member(uuid))
            assert self.catalog.addresses_of(uuid) == {
                address for c in configs.values() for m in c.members if m.uuid == uuid for address in m.addresses
            }
            assert tablets_on(self.catalog, self.soft, uuid) == self.walk_of_tablets_on(uuid)
            assert self.catalog.unformed(uuid) == [
                t
                for t, r in self.catalog.items(TABLET)
                if not r.formed and not r.dropped and any(m.uuid == uuid for m in r.members)
            ]
        for tablet, state in self.soft.tablets.items():
            # A report of a tablet that the catalog does not know changes nothing of the tablet.
            if state.leader_status is not None and self.catalog.get(TABLET, tablet) is not None:
                if self.soft.replica(state.leader_uuid, tablet) != state.leader_status:
                    continue
                assert self.heard_us[tablet] == (state.leader_uuid, self.soft.servers[state.leader_uuid].counted_us)
            reporters = {u for u, s in self.soft.servers.items() if tablet in s.replicas}
            assert {s.uuid for s in self.soft.reporters(tablet)} == reporters
        unreported = [
            t for t, r in self.catalog.items(TABLET) if r.formed and not r.dropped and self.config_of(t) is None
        ]
        assert self.kept.unreported() == len(unreported)
        dropped = [(t, r) for t, r in self.catalog.items(TABLET) if r.dropped]
        assert self.catalog.dropped() == dropped
        assert self.catalog.dropped_among(dict.fromkeys(TABLETS).keys()) == {t for t, _ in dropped}

    def config_of(self, tablet: str) -> RaftConfig | None:
        """The config of the tablet that is believed."""
        state = self.soft.tablets.get(tablet)
        return state.config if state is not None else None

    def walk_of_tablets_on(self, uuid: str) -> list[str]:
        """The tablets that are on the server, found by a walk over all."""
        found = []
        for tablet, record in self.catalog.items(TABLET):
            config = self.config_of(tablet) or (None if record.formed else record.known_config)
            replica = self.soft.replica(uuid, tablet)
            live = replica is not None and replica.data_state in LIVE
            if not record.dropped and (live or (config is not None and config.member(uuid) is not None)):
                found.append(tablet)
        return found

    def round(self) -> None:
        """Time passes, servers report, something happens; then a look, at once or in steps with events between."""
        self.now_us += self.rng.choice([500_000] if self.calm and self.rng.random() < 0.6 else WAITS_US)
        for uuid in SERVERS:
            if self.up[uuid] and self.rng.random() < 0.9:
                self.beat(uuid)
        while self.rng.random() < 0.5:
            self.happen()
        self.compare_look_ups(at_once=True)
        if self.rng.random() < 0.3:
            for _ in range(3):  # a fixed number, because the order of a look is not that of a history
                self.kept.refresh(self.now_us, self.wall_us, 1)
                self.now_us += self.rng.choice([1, 1, DEAD_US])
                if self.rng.random() < 0.3:
                    self.beat(self.rng.choice(SERVERS))
        assert self.kept.refresh(self.now_us, self.wall_us)
        self.compare()
        for decision in self.decisions if self.calm else ():
            if self.rng.random() < 0.6:
                self.obey(decision)
                if kind_of(decision) == Need.RESTORE and self.rng.random() < 0.9:
                    self.lose(decision.edits[0].member.uuid)
        for tablet in TABLETS if self.calm else ():
            self.settle(tablet)
