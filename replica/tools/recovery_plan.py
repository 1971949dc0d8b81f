"""Plans the recovery of tablets whose majority is lost for good: a pure function from evidence to a plan.

No guarantee holds for such a tablet any more [kudu raft-config-change, "Catastrophe"]: the plan keeps what one survivor
has, lists what may be missing, and begins a new generation of the group with the survivor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from nyala.replica.rows import SourceKey
from nyala.replica.rpc import pb
from nyala.replica.types import (
    ZERO_OPID,
    Address,
    Code,
    DataState,
    Member,
    OpId,
    RaftConfig,
    Refused,
    is_uuid,
    next_generation,
)

from .evidence import ReplicaEvidence, SourceMark
from .living import LivingMajority, living_majority

LAST_RESORT = "if none ever comes back, `nyala unsafe replace` puts an empty tablet in its place"


class Why(StrEnum):
    """The reason why a tablet is left as it is."""

    UNKNOWN = "UNKNOWN"
    """No directory, server or master knows it."""
    NO_SURVIVOR = "NO_SURVIVOR"
    """No replica is left that a group could go on from."""
    MAJORITY = "MAJORITY"
    """It needs no recovery: a majority lives, and one of its members leads or can be elected."""
    RUNNING = "RUNNING"
    """The server of the most up-to-date replica has to be stopped first, and its directory named."""
    REPLICA = "REPLICA"
    """It cannot be replaced by an empty tablet: a running server holds rows of it."""
    TARGET = "TARGET"
    """A server that is to receive a copy has acknowledged more than the survivor has, or its files cannot be read."""


@dataclass(frozen=True, kw_only=True)
class LeftAlone:
    """A tablet that the plan does not touch."""

    tablet_id: str
    table_name: str
    why: Why
    what: str


@dataclass(frozen=True, kw_only=True)
class Target:
    """A stopped server that is to be a member of every recovered tablet, beside the survivor."""

    uuid: str
    addresses: tuple[Address, ...]


@dataclass(frozen=True, kw_only=True)
class TabletPlan:
    """One tablet's recovery. The position of `config` is right after the survivor's last entry."""

    tablet_id: str
    table_id: str
    table_name: str
    survivor: str
    place: str
    last: OpId
    time: int
    """The hybrid time of the config's entry, right after that of the survivor's last one."""
    config: RaftConfig
    before: RaftConfig
    known: OpId
    """The highest OpId in all evidence."""
    unseen: tuple[str, ...] = ()
    """Members of known configs without any evidence, neither running nor in a directory: they may live."""
    stuck: str = ""
    """The reason why a live majority cannot go on by itself; empty if no majority lives."""
    sources: tuple[SourceMark, ...] = ()

    @property
    def entries_lost(self) -> int:
        """Return the least number of entries that are lost."""
        return max(0, self.known.index - self.last.index) if self.known > self.last else 0

    @property
    def given_up(self) -> tuple[str, ...]:
        """Return the former members that the new config drops: entries that only they have are lost."""
        return tuple(sorted(m.uuid for m in self.before.members if self.config.member(m.uuid) is None))


@dataclass(frozen=True, kw_only=True)
class SourceLowering:
    """A source whose `done` in the catalog is too high: it must go back to `to`."""

    table: str
    topic: str
    source: SourceKey
    generation: int
    done: int
    to: int


@dataclass(frozen=True, kw_only=True)
class RecoveryPlan:
    """The whole plan. `fingerprint` identifies its decisions: the same evidence leads to the same one."""

    tablets: tuple[TabletPlan, ...]
    left_alone: tuple[LeftAlone, ...] = ()
    lowerings: tuple[SourceLowering, ...] = ()
    fingerprint: str = field(default="")


def chosen_tablets(
    found: Iterable[ReplicaEvidence],
    catalog: Mapping[str, Sequence[str]],
    *,
    tablets: Sequence[str] = (),
    tables: Sequence[str] = (),
) -> set[str]:
    """Return the tablets named by id, by its beginning, or by table; default: all of directories and catalog.

    `catalog`: table name to tablet ids, if masters answer. A tablet of which nothing is left is in no directory.
    Refused(NOT_FOUND) for a table that neither knows, INVALID_ARGUMENT for the beginning of several tablets.
    """
    found = list(found)
    resting = [e for e in found if not e.running]
    if not (tablets or tables):
        return {e.tablet_id for e in resting} | {t for ids in catalog.values() for t in ids}
    unknown = sorted(set(tables) - {e.table_name for e in resting} - set(catalog))
    if unknown:
        raise Refused(Code.NOT_FOUND, "no directory holds a tablet of that table", table=", ".join(unknown))
    held = {e.tablet_id for e in resting if e.table_name in tables}
    known = {e.tablet_id for e in found} | {t for ids in catalog.values() for t in ids}
    return {*(_whole_id(t, known) for t in tablets), *held, *(t for name in tables for t in catalog.get(name, ()))}


def _whole_id(asked: str, known: Iterable[str]) -> str:
    """Return the only id that begins so; an unknown one is returned unchanged, and the plan reports it."""
    fitting = sorted(t for t in known if asked and t.startswith(asked))
    if len(fitting) > 1 and asked not in fitting:
        raise Refused(Code.INVALID_ARGUMENT, "several tablets begin so: give more of the id", tablet=asked)
    return fitting[0] if len(fitting) == 1 else asked


def make_plan(
    evidence: Mapping[str, Sequence[ReplicaEvidence]],
    wanted: Iterable[str],
    *,
    targets: Sequence[Target] = (),
    positions: Iterable[pb.SourcePosition] = (),
    despite_majority: bool = False,
) -> RecoveryPlan:
    """Return the plan for the `wanted` tablets; `evidence` by tablet. `positions` are the catalog's, of all tables."""
    planned: list[TabletPlan] = []
    alone: list[LeftAlone] = []
    for tablet_id in sorted(set(wanted)):
        found = decide(tablet_id, evidence.get(tablet_id, ()), targets, despite_majority=despite_majority)
        if isinstance(found, TabletPlan):
            planned.append(found)
        else:
            alone.append(found)
    plan = RecoveryPlan(
        tablets=tuple(planned), left_alone=tuple(alone), lowerings=tuple(lower_sources(planned, positions))
    )
    return replace(plan, fingerprint=_fingerprint(plan))


def decide(
    tablet_id: str, replicas: Sequence[ReplicaEvidence], targets: Sequence[Target] = (), *, despite_majority: bool
) -> TabletPlan | LeftAlone:
    """Return the plan for one tablet."""
    name = next((r.table_name for r in replicas if r.table_name), "")

    def left(why: Why, what: str) -> LeftAlone:
        return LeftAlone(tablet_id=tablet_id, table_name=name, why=why, what=what)

    if not replicas:
        what = "no directory and no running server that was looked at has this tablet"
        return left(Why.UNKNOWN, f"{what}; {LAST_RESORT}" if is_uuid(tablet_id) else what)
    best = most_up_to_date(replicas)
    if best is None:
        seen = "; ".join(f"{r.server_uuid} in {r.place}: {_remains(r)}" for r in replicas)
        return left(Why.NO_SURVIVOR, f"no replica is left to go on from: {seen}; {LAST_RESORT}")
    living = None if despite_majority else living_majority(replicas)
    if living is not None and living.goes_on:
        return left(Why.MAJORITY, f"{living.what}; start their servers instead")
    if best.running:
        what = f"the most up-to-date replica with rows is on {best.server_uuid}, which runs at {best.place}"
        stuck = f"; {living.what}" if living is not None else ""
        return left(Why.RUNNING, f"{what}: stop that server and name its directory with --root{stuck}")
    named = {t.uuid for t in targets} - {best.server_uuid}
    receiving = [r for r in replicas if r.server_uuid in named]
    for replica in receiving:
        if replica.unreadable:
            what = f"what {replica.server_uuid} acknowledged cannot be read ({replica.problem})"
            return left(Why.TARGET, f"{what}: copy to another server")
        if _known(replica) > best.last:
            what = f"{replica.server_uuid} once knew of {_known(replica)}, the survivor ends at {best.last}"
            return left(Why.TARGET, f"{what}: copy to another server")
    return _plan_of(tablet_id, name, best, replicas, targets, living)


def most_up_to_date(replicas: Iterable[ReplicaEvidence]) -> ReplicaEvidence | None:
    """Return the survivor: the highest (term, index) of the last entry, as in an election [raft §5.4.1].

    A longer log that ends in an older term loses: its end was never committed, or a later leader's log has it. A
    witness is no survivor. The disk shows which replica is one, because the config may not record its rows yet.
    """
    usable = [r for r in replicas if r.usable and not r.witness]
    return max(usable, key=lambda r: (r.last, r.commit_index, not r.running, r.server_uuid), default=None)


def _plan_of(
    tablet_id: str,
    name: str,
    best: ReplicaEvidence,
    replicas: Sequence[ReplicaEvidence],
    targets: Sequence[Target],
    living: LivingMajority | None,
) -> TabletPlan:
    before = best.configs[-1]
    own = before.member(best.server_uuid)
    members = {best.server_uuid: Member(best.server_uuid, own.addresses if own is not None else ())}
    for target in targets:
        members.setdefault(target.uuid, Member(target.uuid, target.addresses))
    terms = [max(r.term, r.highest.term, *(c.opid.term for c in r.configs)) for r in replicas if r.config is not None]
    opid = OpId(next_generation(max(terms)), best.last.index + 1)
    return TabletPlan(
        tablet_id=tablet_id,
        table_id=best.table_id,
        table_name=name,
        survivor=best.server_uuid,
        place=best.place,
        last=best.last,
        time=best.last_time + 1,
        config=RaftConfig(opid, tuple(members[u] for u in sorted(members)), before.decision, unsafe=True),
        before=before,
        known=max((_known(r) for r in replicas), default=ZERO_OPID),
        unseen=_unseen(replicas),
        stuck=living.what if living is not None else "",
        sources=best.sources,
    )


def _known(replica: ReplicaEvidence) -> OpId:
    """Return the highest OpId that the replica is known to have had: its config or commit index may be above a damaged
    log."""
    configs = [c.opid for c in replica.configs]
    return max([replica.highest, *configs])


def _unseen(replicas: Sequence[ReplicaEvidence]) -> tuple[str, ...]:
    members = {m.uuid for r in replicas for c in r.configs for m in c.members}
    return tuple(sorted(members - {r.server_uuid for r in replicas}))


def _remains(replica: ReplicaEvidence) -> str:
    if replica.problem:
        return replica.problem
    if replica.data_state is DataState.READY:
        return "a witness, which holds no rows"
    return f"{replica.data_state.name}, once had {replica.last}"


def lower_sources(planned: Sequence[TabletPlan], positions: Iterable[pb.SourcePosition]) -> Iterable[SourceLowering]:
    """Yield the sources of the recovered tables whose `done` is above the position up to which every tablet is
    complete.

    A tablet without the source's present generation has none of its records, so all of them are read again. Records
    that are read again are applied once, because the tablets' ledgers drop them [design §3.4].
    """
    for position in sorted(positions, key=lambda p: (p.table, p.topic, p.source.kafka_partition)):
        key = SourceKey(position.source.cluster_id, position.source.topic_id, position.source.kafka_partition)
        to = position.done
        for tablet in planned:
            if tablet.table_id != position.table_id:
                continue
            marks = [m for m in tablet.sources if m.source == key and m.generation == position.generation]
            to = min(to, max((m.position for m in marks), default=0))
        to = max(to, position.start)
        if to < position.done:
            yield SourceLowering(
                table=position.table,
                topic=position.topic,
                source=key,
                generation=position.generation,
                done=position.done,
                to=to,
            )


def _fingerprint(plan: RecoveryPlan) -> str:
    decisions = {
        "tablets": [
            [t.tablet_id, t.survivor, str(t.config.opid), [m.uuid for m in t.config.members]] for t in plan.tablets
        ],
        "sources": [[lowering.table, *lowering.source, lowering.to] for lowering in plan.lowerings],
    }
    return hashlib.sha256(json.dumps(decisions, sort_keys=True).encode()).hexdigest()[:12]
