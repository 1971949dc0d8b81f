"""Plans which lost tablets are replaced by empty ones: a pure function from evidence to a plan.

`recovery_plan` needs a survivor; this plan is for tablets without one. An operator reads it; when it is carried out,
the masters check it again by what they know themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nyala.replica.rows import SourceKey
from nyala.replica.rpc import pb
from nyala.replica.types import DataState

from .evidence import ReplicaEvidence
from .recovery_plan import LeftAlone, SourceLowering, Why


@dataclass(frozen=True, kw_only=True)
class LostTablet:
    """A tablet that is to be replaced, and the evidence about it."""

    tablet_id: str
    table_id: str
    table_name: str
    members: tuple[str, ...]
    """Servers of the last config that the masters know."""
    unseen: tuple[str, ...]
    """Those of them that did not answer: they, or their disks, may still exist."""
    with_rows: tuple[str, ...] = ()
    """Running servers whose replica still holds rows; it is deleted."""


@dataclass(frozen=True, kw_only=True)
class SourceLoss:
    """Offsets of a source that Kafka no longer has: their rows are lost."""

    table: str
    topic: str
    kafka_partition: int
    start: int
    first_kept: int


@dataclass(frozen=True, kw_only=True)
class ReplacementPlan:
    """The whole plan. `fingerprint` identifies the tablets that it gives up; Kafka's first offsets are no part of
    it."""

    tablets: tuple[LostTablet, ...]
    left_alone: tuple[LeftAlone, ...] = ()
    lowerings: tuple[SourceLowering, ...] = ()
    losses: tuple[SourceLoss, ...] = ()
    fingerprint: str = field(default="")


def plan_replacement(
    infos: Iterable[pb.TabletInfo],
    names: Mapping[str, str],
    evidence: Mapping[str, Sequence[ReplicaEvidence]],
    answered: Iterable[str],
    *,
    positions: Iterable[pb.SourcePosition] = (),
    floors: Mapping[SourceKey, int] | None = None,
    despite_replicas: bool = False,
) -> ReplacementPlan:
    """Return the plan for these tablets. `names`: table id to name; `evidence`: of running servers, by tablet;
    `answered`: uuids of the servers that reported their replicas; `floors`: the first offset that Kafka still has, by
    source."""
    heard = frozenset(answered)
    lost: list[LostTablet] = []
    alone: list[LeftAlone] = []
    for info in sorted(infos, key=lambda i: i.tablet_id):
        seen, name = evidence.get(info.tablet_id, ()), names.get(info.table_id, "")
        holders = [r for r in seen if r.data_state is DataState.READY and not r.witness]
        if holders and not despite_replicas:
            alone.append(
                LeftAlone(
                    tablet_id=info.tablet_id, table_name=name, why=Why.REPLICA, what=_why_alone(info, holders)
                )
            )  # fmt: skip
            continue
        members = tuple(sorted(m.uuid for m in info.config.members))
        lost.append(
            LostTablet(
                tablet_id=info.tablet_id,
                table_id=info.table_id,
                table_name=name,
                members=members,
                unseen=tuple(u for u in members if u not in heard),
                with_rows=tuple(sorted(r.server_uuid for r in holders)),
            )
        )
    tables = {t.table_id for t in lost}
    mine = [p for p in positions if p.table_id in tables]
    lowerings, losses = _sources(mine, floors or {})
    plan = ReplacementPlan(
        tablets=tuple(lost), left_alone=tuple(alone), lowerings=tuple(lowerings), losses=tuple(losses)
    )
    return replace(plan, fingerprint=_fingerprint(plan))


def _why_alone(info: pb.TabletInfo, holders: Sequence[ReplicaEvidence]) -> str:
    if info.running:
        return f"{info.leader_uuid} leads it, nothing is lost"
    where = ", ".join(f"{r.server_uuid} at {r.place}" for r in holders)
    return f"a replica with rows is left on {where}: `nyala unsafe recover` goes on from it"


def _sources(
    positions: Iterable[pb.SourcePosition], floors: Mapping[SourceKey, int]
) -> tuple[list[SourceLowering], list[SourceLoss]]:
    """Return the positions from which sources are read again (their start, or Kafka's first offset), and the offsets
    lost."""
    lowerings, losses = [], []
    for p in sorted(positions, key=lambda p: (p.table, p.topic, p.source.kafka_partition)):
        key = SourceKey(p.source.cluster_id, p.source.topic_id, p.source.kafka_partition)
        kept_from = floors.get(key, 0)
        to = max(p.start, min(p.done, kept_from))
        if to < p.done:
            lowerings.append(
                SourceLowering(
                    table=p.table, topic=p.topic, source=key, generation=p.generation, done=p.done, to=to
                )
            )  # fmt: skip
        if kept_from > p.start:
            losses.append(
                SourceLoss(
                    table=p.table,
                    topic=p.topic,
                    kafka_partition=key.kafka_partition,
                    start=p.start,
                    first_kept=kept_from,
                )
            )
    return lowerings, losses


def _fingerprint(plan: ReplacementPlan) -> str:
    given_up = [[t.tablet_id, list(t.members), list(t.with_rows)] for t in plan.tablets]
    return hashlib.sha256(json.dumps(["replace", given_up], sort_keys=True).encode()).hexdigest()[:12]


def replacement_json(plan: ReplacementPlan, replaced_by: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a plan as JSON; `replaced_by`: lost tablet -> new one, after the plan was carried out."""
    return {
        "fingerprint": plan.fingerprint,
        "tablets": [
            {
                "tablet_id": t.tablet_id,
                "table": t.table_name,
                "members": list(t.members),
                "unseen": list(t.unseen),
                "with_rows": list(t.with_rows),
                "replaced_by": (replaced_by or {}).get(t.tablet_id),
            }
            for t in plan.tablets
        ],
        "left_alone": [
            {"tablet_id": a.tablet_id, "table": a.table_name, "why": str(a.why), "what": a.what}
            for a in plan.left_alone
        ],
        "sources": [{**lowering.__dict__, "source": list(lowering.source)} for lowering in plan.lowerings],
        "kafka_no_longer_has": [loss.__dict__ for loss in plan.losses],
    }
