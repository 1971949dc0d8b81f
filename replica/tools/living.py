"""Decides whether a tablet can go on by itself: a pure function of the evidence of its replicas.

Votes alone do not make a leader. One server must have the rows and a log that is not behind those of the voters that it
needs [raft §5.4.1]. So a living majority may have no member that can be elected, and then waiting does not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nyala.replica.types import OpId, RaftConfig, generation_of

from .evidence import ReplicaEvidence


@dataclass(frozen=True, kw_only=True)
class LivingMajority:
    """A majority of one config's voters that is whole, running or at rest."""

    config: RaftConfig
    present: tuple[str, ...]
    leader: str = ""
    """The one of them that leads already, or wins an election by their votes alone; empty if none does."""
    obstacles: tuple[str, ...] = ()
    """The reason why each of them cannot lead, in words for an operator; empty if one can."""

    @property
    def goes_on(self) -> bool:
        """Return whether the tablet goes on once their servers run."""
        return bool(self.leader)

    @property
    def what(self) -> str:
        """Return which voters are whole and, if they are not enough, why."""
        count = f"{len(self.present)} of {len(self.config.voters)} voters are whole, a majority"
        if self.goes_on:
            return f"{count}: {', '.join(self.present)}"
        return f"{count}, but none of them can be elected: {'; '.join(self.obstacles)}"


def living_majority(replicas: Sequence[ReplicaEvidence]) -> LivingMajority | None:
    """Return the newest config whose majority lives and can go on; else the newest whose majority lives; else None.

    Every config that a replica of the newest generation knows counts, because a recovery that is refused does less harm
    than two groups.
    """
    usable = [r for r in replicas if r.usable]
    newest = max((generation_of(c.opid.term) for r in usable for c in r.configs), default=0)
    stuck = None
    for config in sorted((c for r in usable for c in r.configs), key=lambda c: c.opid, reverse=True):
        if generation_of(config.opid.term) < newest:
            continue
        present = [r for u in config.voters for r in usable if r.server_uuid == u]
        if len(present) < config.majority:
            continue
        uuids = tuple(r.server_uuid for r in present)
        leader = _leader(config, present)
        if leader is not None:
            return LivingMajority(config=config, present=uuids, leader=leader.server_uuid)
        obstacles = tuple(_obstacle(config, r, present) for r in present)
        stuck = stuck or LivingMajority(config=config, present=uuids, obstacles=obstacles)
    return stuck


def _leader(config: RaftConfig, present: Sequence[ReplicaEvidence]) -> ReplicaEvidence | None:
    """Return the replica that leads in the highest term seen, else one that a majority votes for, itself included.

    A leader needs no votes, and statuses read one after the other may show a follower ahead of it.
    """
    leading = [r for r in present if r.leads and r.term == max(p.term for p in present)]
    able = [r for r in present if _may_lead(config, r) and len(_votes_for(r, present)) >= config.majority]
    return next(iter([*leading, *able]), None)


def _may_lead(config: RaftConfig, replica: ReplicaEvidence) -> bool:
    """Return whether it has rows by its disk and by the config: only its leader knows when a witness has its rows."""
    member = config.member(replica.server_uuid)
    return member is not None and member.holds_data and not replica.witness and not _silenced(replica)


def _votes_for(candidate: ReplicaEvidence, present: Sequence[ReplicaEvidence]) -> list[ReplicaEvidence]:
    """Return the replicas that would vote for it: those that vote, and whose logs are not ahead of its own."""
    return [r for r in present if r.last <= candidate.last and not _silenced(r)]


def _silenced(replica: ReplicaEvidence) -> bool:
    """Return whether its log's end is damaged: then it neither votes nor campaigns until a leader has restored that
    end."""
    return replica.withheld > replica.last


def _obstacle(config: RaftConfig, replica: ReplicaEvidence, present: Sequence[ReplicaEvidence]) -> str:
    who = replica.server_uuid
    if replica.witness:
        return f"{who} is a witness, which votes up to {replica.last} and holds no rows"
    if _silenced(replica):
        return f"{who} has lost the end of its log up to {replica.withheld}, and does not vote before a leader sends it"
    if not _may_lead(config, replica):
        return f"{who} has rows, but no leader has made it whole, and it is a witness until then"
    ahead = [r for r in present if r.last > replica.last]
    if not ahead:
        return f"{who} lacks the votes of those that have lost the end of their logs"
    return f"{who} has rows up to {replica.last} only, behind {_ends(ahead)}"


def _ends(replicas: Sequence[ReplicaEvidence]) -> str:
    ends: list[tuple[str, OpId]] = [(r.server_uuid, r.last) for r in replicas]
    return " and ".join(f"{uuid} at {last}" for uuid, last in ends)
