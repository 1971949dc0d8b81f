"""A leading master with its real checks, admission, inquiries and ticks; honest tablet servers that carry out its
orders and decisions; and one process that may send and answer anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from google.protobuf.message import Message

from nyala.replica.fs import MASTER, TABLET_SERVER
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.decisions.reconciler import Reconciler
from nyala.replica.master.group.entries import unfit_record
from nyala.replica.master.heartbeats.tablet_servers import Identity, reports_in
from nyala.replica.raft.membership import edited_members
from nyala.replica.rpc import checked_request, config_to_pb, heartbeat_from_pb, pb
from nyala.replica.types import (
    Action,
    Address,
    Code,
    DataState,
    Decision,
    Member,
    OpId,
    RaftConfig,
    Refused,
    ReportedReplica,
    limits,
)
from tests.harness.catalogs import table_info
from tests.harness.master_calls import PROCESS, MasterWorld, S, where

STRANGER = "f" * 32
UUIDS = [*S, STRANGER, "e1" * 16]
FORGED = [*S[:3], STRANGER, UUIDS[-1]]
"""The uuids under which it sends heartbeats. If no config has a server, the first heartbeat under its uuid counts."""
LAIR = Address("lair", 9)
"""Where the liar listens, beside its own address if it is a member."""
LAIRS = {Address("lair", 10 + n): uuid for n, uuid in enumerate(S)}
"""Where it listens, too, and answers by the uuid of one server each."""
TEXTS = ["", "a", "h", "h.1", "[::1]", "a\nb", "a\0b", "é", "x" * 255, "x" * 300, "LEADER", "OK", "FAILED", *UUIDS]
NUMBERS = [0, 1, 2, 3, -1, 5_000, 65_535, 65_536, 60_000_000_000, 1 << 31, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1]
PHASES = ["RUNNING", "RUNNING", "BOOTSTRAPPING", "CONFIGURING", "FAILED", "STOPPED"]
RECORD_BYTES_MAX = 2 * limits.REPLICA_STATUS_BYTES_MAX
"""A record has the config of one report beside the first members."""


class LiedTo(MasterWorld):
    """`tablet` has three honest members, or two beside the liar; `alone` has its only replica on the liar's server."""

    def __init__(self, liar: str, seed: int) -> None:
        super().__init__()
        self.liar, self.rng = liar, Random(seed)
        self.honest = [u for u in S if u != liar]
        self.servers.processes = {where(u): PROCESS for u in self.honest}
        self.down: set[str] = set()
        """The honest servers that do not run now."""
        self.claims = liar
        """The uuid under which it answers."""
        self.seems_well = self.rng.random() < 0.5
        """Whether it never reports that a replica of its own has failed, so that it stays a member."""
        self.said: dict[str, pb.ReplicaStatus] = {}
        """By tablet, its last lie."""
        self.lairs: set[Address] = set()
        """Where the liar listens: nowhere before the table is made."""
        self.truly = self.servers.identity, self.servers.is_process, self.servers.replicas
        self.servers.identity = self._identity  # type: ignore[method-assign]
        self.servers.is_process = self._is_process  # type: ignore[method-assign]
        self.servers.replicas = self._replicas  # type: ignore[method-assign]
        self.reconciler = Reconciler(self.master)
        self.reconciler.add_sink(lambda sent: self.decided.extend(d for d in sent.values() if d is not None))
        self.decided: list[Decision] = []
        self.alone = ""
        self.history: list[RaftConfig] = []
        self.held: dict[str, RaftConfig] = {}
        """By honest server, the config of its replica."""
        self.leader = S[0]

    async def begin(self) -> None:
        await super().begin()
        made = await self.done("CreateTable", pb.CreateTableRequest(table=table_info("alone", buckets=1, rf=1)))
        drawn = made.tablets[0].tablet_id
        record = self.group.catalog.get(TABLET, drawn)
        assert record is not None
        at_liar = replace(record, members=(Member(self.liar, (LAIR,)),), formed=True)
        self.alone = "f" * 32  # behind the other one, so that a seed gives the same history each time
        await self.group.change(lambda: ({TABLET + self.alone: at_liar}, [TABLET + drawn], "", None))
        self.config_index = 1
        self.history = [RaftConfig(OpId(1, 1), tuple(Member(u, (where(u),)) for u in S[:3]))]
        self.held = dict.fromkeys((u for u in S[:3] if u != self.liar), self.truth)
        self.keys = set(self.group.catalog.records)
        self.lairs = {LAIR, *([where(self.liar)] if self.liar in S else [])}

    @property
    def truth(self) -> RaftConfig:
        """The committed config of `tablet`."""
        return self.history[-1]

    # -------------------------------------------------------------------------------------------------------- the liar

    async def _identity(self, address: Address) -> Identity:
        if address in LAIRS:
            return Identity(LAIRS[address], TABLET_SERVER, self.master.cluster_id)
        if address in map(where, self.down):
            raise Refused(Code.UNAVAILABLE, "nobody answers there", address=address)
        if address not in self.lairs:
            return await self.truly[0](address)
        kind, cluster = self.rng.choice([TABLET_SERVER] * 20 + [MASTER]), self.master.cluster_id
        return Identity(self.claims, kind, self.rng.choice([*["", cluster] * 10, "e" * 32]))

    async def _is_process(self, uuid: str, address: Address, process: int) -> bool | None:
        if address in LAIRS:
            return process == PROCESS + 1
        if address not in self.lairs:
            return await self.truly[1](uuid, address, process)
        return self.rng.choice([*[True] * 10, None, False])

    async def _replicas(
        self, uuid: str, addresses: Sequence[Address], tablet_ids: Sequence[str]
    ) -> Sequence[ReportedReplica]:
        if addresses[0] in self.lairs or addresses[0] in LAIRS:
            lies = [self._again(uuid, tablet_id) for tablet_id in tablet_ids]
            return reports_in(pb.ListTabletsReply(replicas=lies), uuid, len(tablet_ids))
        self.servers.held = {u: {self.tablet: status} for u in self.honest if (status := self.true_status(u))}
        return await self.truly[2](uuid, addresses, tablet_ids)

    def _again(self, uuid: str, tablet_id: str) -> pb.ReplicaStatus:
        """What the liar said before of the tablet, under any uuid, or something else."""
        said = self.said.get(tablet_id)
        if said is None or self.rng.random() < 0.2:
            return self.lie(uuid, tablet_id)
        again = pb.ReplicaStatus.FromString(said.SerializeToString())
        again.uuid = uuid
        return again

    def lie(self, uuid: str, tablet_id: str) -> pb.ReplicaStatus:
        """A report that may be true, half true, or one that no server sends."""
        rng = self.rng
        status = pb.ReplicaStatus(tablet_id=tablet_id, uuid=uuid, role=rng.choice(["LEADER", "LEADER", "FOLLOWER", ""]))
        if not self.seems_well:
            status.data_state, status.phase = rng.choice([*DataState, DataState.READY]), rng.choice(PHASES)
        else:
            status.data_state, status.phase = DataState.READY, "RUNNING"
        status.term = rng.choice([0, 1, 2, 1 << 40, (1 << 62)])
        status.damaged, status.leader_uuid = rng.random() < 0.2, rng.choice(["", *UUIDS])
        opid = OpId(rng.choice([0, 1, 1, 1, 2, 1 << 32]), max(0, self.truth.opid.index + rng.randint(-1, 4)))
        votes = 0.2 if tablet_id == self.alone else 0.9
        members = [self._member(u, rng.random() < votes) for u in rng.sample(UUIDS, rng.randint(0, 4)) if u != uuid]
        if rng.random() < 0.8 or not members:
            members.append(self._member(uuid, True))
        config = rng.choice([self.truth, RaftConfig(opid, tuple(members), unsafe=rng.random() < 0.2)])
        status.committed_config.CopyFrom(config_to_pb(config))
        if rng.random() < 0.2:
            status.pending_config.CopyFrom(config_to_pb(RaftConfig(opid, tuple(members))))
        for peer in rng.sample(UUIDS, rng.randint(0, 4)):
            health = rng.choice(["OK", "LAGGING", "UNREACHABLE", "NEEDS_COPY"])
            status.peers.add(uuid=peer, health=health, last_contact_us_ago=rng.choice(NUMBERS[:9]))
        for _ in range(rng.choice([0, 0, 0, 0, 1, 3])):
            self._garble(status)
        self.said[tablet_id] = status
        return status

    def _member(self, uuid: str, votes: bool) -> Member:
        rng = self.rng
        places = [where(uuid), LAIR, where(rng.choice(S)), Address("h", 0), Address("", 1), Address("x" * 255, 65535)]
        addresses = rng.choices(places, [20, 20, 4, 1, 1, 1], k=rng.choice([1, 1, 1, 1, 0, 2, 16]))
        return Member(uuid, tuple(addresses), votes=votes, holds_data=rng.random() < 0.9)

    def _garble(self, message: Message) -> None:
        """Give one field, at any depth, any value that its type can carry."""
        rng = self.rng
        field = rng.choice(message.DESCRIPTOR.fields)
        repeated = field.is_repeated
        if field.message_type is not None:
            if repeated and (not len(getattr(message, field.name)) or rng.random() < 0.2):
                getattr(message, field.name).add()
            self._garble(rng.choice(getattr(message, field.name)) if repeated else getattr(message, field.name))
            return
        value = rng.choice(TEXTS if field.type == field.TYPE_STRING else NUMBERS)
        if field.type in (field.TYPE_BOOL, field.TYPE_DOUBLE):
            value = rng.choice([False, True] if field.type == field.TYPE_BOOL else [0.0, 1.5, float("nan"), 1e300])
        try:
            if repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
        except ValueError:  # an int32 cannot carry it
            message.ClearField(field.name)

    async def hear_lies(self) -> None:
        """The liar sends a few heartbeats: of its own server, or under any other uuid, from a place of its own."""
        rng = self.rng
        if len(self.down) > 1 and rng.random() < 0.5:
            await self._conspire()
        for _ in range(rng.randint(0, 3)):
            uuid = rng.choice([self.liar, self.liar, self.liar, *FORGED])
            self.claims = uuid if rng.random() < 0.9 else rng.choice(UUIDS)
            process = rng.choice([*[PROCESS + 1] * 8, PROCESS + 2, 0])
            at = rng.choices([LAIR, where(uuid), where(rng.choice(S)), Address("h", 0)], [20, 2, 1, 1])
            if self.down and rng.random() < 0.8:
                at = [rng.choice([a for a, u in LAIRS.items() if u in self.down])]
                uuid, process = LAIRS[at[0]], PROCESS + 1
            self.sequence += rng.random() < 0.9
            beat = pb.HeartbeatRequest(server_uuid=uuid, process=process, sequence=self.sequence)
            beat.addresses.extend(pb.Address(host=a.host, port=a.port) for a in at)
            beat.full_report, beat.booting = rng.random() < 0.8, rng.random() < 0.1
            tablets = rng.choices([self.tablet, self.alone, "0" * 32], [5, 5, 1], k=rng.randint(0, 2))
            tell = self._again if rng.random() < 0.5 else self.lie
            beat.replicas.extend(tell(uuid, t) for t in dict.fromkeys(tablets))
            for _ in range(rng.choice([0, 0, 0, 0, 1, 2])):
                self._garble(beat)
            if beat.process == PROCESS:
                continue  # a number that it cannot guess
            try:
                wire = beat.SerializeToString()
                checked = checked_request("MasterService.Heartbeat", wire, pb.HeartbeatRequest)
                heartbeat_from_pb(checked)
            except Refused:
                continue
            await self.call("MasterService", "Heartbeat", checked)
        self.claims = rng.choice([self.liar] * 5 + UUIDS)

    async def _conspire(self) -> None:
        """Tell under the uuids of all servers that are down that the stranger is the whole config of the tablet."""
        alone = RaftConfig(OpId(2, self.truth.opid.index + 5), (Member(STRANGER, (LAIR,)),))
        self.claims = STRANGER
        for at, uuid in [*((a, u) for a, u in LAIRS.items() if u in self.down), (LAIR, STRANGER)]:
            told = pb.ReplicaStatus(tablet_id=self.tablet, uuid=uuid, phase="RUNNING", term=2)
            told.data_state, told.role = DataState.READY, "LEADER" if uuid == STRANGER else "FOLLOWER"
            told.committed_config.CopyFrom(config_to_pb(alone))
            self.said[self.tablet] = told
            self.sequence += 1
            beat = pb.HeartbeatRequest(server_uuid=uuid, process=PROCESS + 1, sequence=self.sequence, replicas=[told])
            beat.addresses.add(host=at.host, port=at.port)
            beat.full_report = True
            await self.call("MasterService", "Heartbeat", beat)

    # ----------------------------------------------------------------------------------------------- the honest servers

    def true_status(self, uuid: str) -> pb.ReplicaStatus | None:
        """The status of the server's replica of `tablet`; None if it has none."""
        config = self.held.get(uuid)
        if config is None:
            return None
        leads = uuid == self.leader
        status = pb.ReplicaStatus(tablet_id=self.tablet, uuid=uuid, data_state=DataState.READY, phase="RUNNING", term=1)
        status.role, status.leader_uuid = "LEADER" if leads else "FOLLOWER", self.leader
        status.committed_config.CopyFrom(config_to_pb(config))
        for member in config.members if leads else ():
            status.peers.add(uuid=member.uuid, health="OK", data_state=DataState.READY)
        return status

    async def hear_truth(self) -> None:
        """Each honest server sends a heartbeat, and carries out the orders of the reply."""
        for uuid in (u for u in self.honest if u not in self.down):
            beat = self.beat(uuid, rows=False)
            if (status := self.true_status(uuid)) is not None:
                beat.replicas.append(status)
            reply = await self.done("Heartbeat", beat)
            for order in reply.orders:
                assert not order.HasField("create") and not order.HasField("renew"), order
                assert self.truth.member(uuid) is None, f"{uuid[0]} is a member, and is ordered to delete"
                assert order.delete.tablet_id == self.tablet
                self.held.pop(uuid, None)

    def change(self, members: Sequence[Member]) -> None:
        """Commit a config of these members; every honest one of them that runs has it at once. Nothing if they can
        commit none."""
        if sum(m.votes and m.uuid in self.honest and m.uuid not in self.down for m in members) < 2 or (
            self.leader in self.down
        ):
            return
        index = self.truth.opid.index + 1
        self.history.append(RaftConfig(OpId(1, index), tuple(sorted(members, key=lambda m: m.uuid))))
        self.held |= {
            m.uuid: self.truth for m in self.truth.members if m.uuid in self.honest and m.uuid not in self.down
        }

    def carry_out(self) -> list[Decision]:
        """The tablet's leader carries out the decisions of the last tick, and promotes who has caught up; return those
        of the honest tablet."""
        decided, self.decided = [d for d in self.decided if d.tablet_id == self.tablet], []
        for decision in decided:
            if decision.config_opid != self.truth.opid:
                continue
            if decision.action is Action.TRANSFER_LEADERSHIP:
                self.leader = decision.target_uuid if decision.target_uuid in self.honest else self.leader
                continue
            members = edited_members(self.truth, decision.edits)
            if any(m.uuid == self.leader and m.votes for m in members):
                self.change(members)
        for learner in self.truth.members:
            if learner.promote and learner.uuid in self.honest:
                others = [m for m in self.truth.members if m.uuid != learner.uuid]
                self.change([*others, replace(learner, votes=True, promote=False)])
        return decided

    async def round(self, elapsed_us: int = 1_000_000) -> list[Decision]:
        """Lies and truth, a tick, and what follows; return the decisions of the honest tablet."""
        for hear in self.rng.sample([self.hear_lies, self.hear_truth], 2):
            await hear()
        await self.reconciler.tick()
        await self.master.inquiries.settled()
        self.clock.now_us += elapsed_us
        return self.carry_out()

    def stop(self, uuid: str) -> None:
        """Stop an honest server; if it led, another one leads."""
        self.down.add(uuid)
        running = [u for u in self.truth.voters if u in self.honest and u not in self.down]
        self.leader = self.leader if self.leader in running or not running else running[0]

    def start_all(self) -> None:
        """Start all servers that were stopped; they have what the others have."""
        self.down.clear()
        self.held |= {m.uuid: self.truth for m in self.truth.members if m.uuid in self.honest}

    # ------------------------------------------------------------------------------------------------- what must hold

    def check(self) -> None:
        """The masters know nothing false of the honest servers and their tablet, and can read their catalog again."""
        catalog = self.group.catalog
        for uuid in self.honest:
            if uuid not in self.down:
                assert self.master.soft.servers[uuid].addresses == (where(uuid),), f"{uuid[0]} is locked out"
            assert catalog.addresses_of(uuid) <= {where(uuid)}, f"the catalog has {uuid[0]} elsewhere"
        known = self.master.known_config(self.tablet)
        assert known is not None and (known.opid == OpId(0, 0) or known.opid in [c.opid for c in self.history])
        truly = next((c for c in self.history if c.opid == known.opid), self.history[0])
        assert known.voters == truly.voters
        view = self.master.kept.tablets.get(self.tablet)
        for uuid in self.honest if view is not None else ():
            assert uuid in self.down or not view.health_of(uuid).failed, f"{uuid[0]} is held for failed"
        records = catalog.records
        assert set(records) == self.keys
        for key, record in records.items():
            assert unfit_record(key, record) == "" and len(str(record)) < RECORD_BYTES_MAX, key
