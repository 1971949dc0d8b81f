"""Clusters as the policy sees them, written in short words, and the effects of its decisions at leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from nyala.replica.policy import ChangeState, ClusterView, Health, ServerView, TabletView, change_state, decide
from nyala.replica.types import Address, Decision, EditKind, Member, OpId, RaftConfig

_HEALTH = {
    "H": Health.HEALTHY,
    "U": Health.UNKNOWN,
    "F": Health.FAILED,
    "X": Health.FAILED_UNRECOVERABLE,
}
_ROUNDS_MAX = 200


def server(uuid: str, **fields: Any) -> ServerView:
    """Return a server that lives, with other fields as given."""
    return ServerView(uuid=uuid, member=Member(uuid, (Address("h", 1),)), **fields)


def cluster(names: Iterable[str], *tablets: TabletView, draining: str = "", dead: str = "") -> ClusterView:
    """Return a cluster of servers named by letters."""
    servers = tuple(server(n, alive=n not in dead, draining=n in draining) for n in names)
    return ClusterView(servers=servers, tablets=tablets)


def tablet(
    words: str, leader: str = "", *, rf: int = 3, name: str = "t", table: str = "T", **fields: Any
) -> TabletView:
    """Return a tablet from words such as `a:* b c:Fr d:p`, a member each.

    Marks: `*` leads, unless `leader` is given, r is to be replaced, p waits for promotion, n never votes; H healthy,
    which is the default, U unknown, F failed, X failed for good.
    """
    members, health = [], {}
    for word in words.split():
        uuid, _, marks = word.partition(":")
        learner = "n" in marks or "p" in marks
        members.append(Member(uuid, votes=not learner, promote="p" in marks, replace="r" in marks))
        health[uuid] = next((_HEALTH[m] for m in marks if m in _HEALTH), Health.HEALTHY)
        if "*" in marks:
            leader = leader or uuid
    return TabletView(
        tablet_id=name,
        table_id=table,
        replication_factor=rf,
        config=RaftConfig(OpId(1, 1), tuple(members)),
        leader_uuid=leader,
        **{"health": health, **fields},
    )


def words_of(view: TabletView) -> str:
    """Return the config in the words of `tablet`, sorted, without health and leader."""
    return " ".join(_word(m) for m in sorted(view.config.members, key=lambda m: m.uuid))


def _word(member: Member) -> str:
    marks = ("" if member.votes else "p" if member.promote else "n") + ("r" if member.replace else "")
    return f"{member.uuid}:{marks}" if marks else member.uuid


def said(decisions: Iterable[Decision]) -> list[str]:
    """Return each decision in words: `lead b`, or its edits such as `add d:p, change c:r`."""
    return [
        f"lead {d.target_uuid}" if d.target_uuid else ", ".join(f"{e.kind} {_word(e.member)}" for e in d.edits)
        for d in decisions
    ]


def edited(members: Mapping[str, Member], decision: Decision, leader: str) -> dict[str, Member]:
    """Return the members, by uuid, once `leader` has made a decision's edits.

    Asserts what holds of every decision: a leader is never evicted, an added server is no member and a changed one is a
    member, and at most one voter changes at once.
    """
    after = dict(members)
    for edit in decision.edits:
        if edit.kind is EditKind.REMOVE:
            assert edit.member.uuid != leader, "a leader is never evicted"
            del after[edit.member.uuid]
        else:
            assert (edit.member.uuid in after) == (edit.kind is EditKind.CHANGE)
            after[edit.member.uuid] = edit.member
    assert len(_voters(members) ^ _voters(after)) <= 1, "one voter at a time"
    return after


def _voters(members: Mapping[str, Member]) -> set[str]:
    return {u for u, m in members.items() if m.votes}


def obey(view: ClusterView, decision: Decision, *, promote: bool = True) -> ClusterView:
    """Return the view once the tablet's leader has carried `decision` out and promoted every healthy learner that
    waits.

    Members without a report are healthy from then on.
    """
    return replace(
        view,
        tablets=tuple(
            _obeyed(t, decision, promote=promote) if t.tablet_id == decision.tablet_id else t for t in view.tablets
        ),
    )


def _obeyed(t: TabletView, decision: Decision, *, promote: bool) -> TabletView:
    assert decision.config_opid == t.config.opid
    members = edited({m.uuid: m for m in t.config.members}, decision, t.leader_uuid)
    health = {u: t.health.get(u, Health.HEALTHY) for u in members}
    if promote:
        members = {
            u: replace(m, votes=True, promote=False) if m.promote and health[u] is Health.HEALTHY else m
            for u, m in members.items()
        }
    config = RaftConfig(OpId(1, t.config.opid.index + 1), tuple(members.values()))
    return replace(t, config=config, health=health, leader_uuid=decision.target_uuid or t.leader_uuid)


def settle(view: ClusterView) -> tuple[ClusterView, list[Decision], dict[str, int]]:
    """Obey all decisions until there are none; desired changes that hold or failed are dropped, as the master does.

    Returns the end, the decisions, and the fewest voters that each tablet had.
    """
    trail: list[Decision] = []
    low = {t.tablet_id: len(t.config.voters) for t in view.tablets}
    for _ in range(_ROUNDS_MAX):
        view = replace(view, tablets=tuple(_without_desired_change_that_is_over(t, view.now_us) for t in view.tablets))
        decisions = decide(view, 1)
        if not decisions:
            return view, trail, low
        for decision in decisions:
            view = obey(view, decision)
            trail.append(decision)
            low = {t.tablet_id: min(low[t.tablet_id], len(t.config.voters)) for t in view.tablets}
    raise AssertionError([d.reason for d in trail[-5:]])


def _without_desired_change_that_is_over(t: TabletView, now_us: int) -> TabletView:
    over = t.desired is not None and change_state(t, t.desired, now_us) in (ChangeState.DONE, ChangeState.FAILED)
    return replace(t, desired=None) if over else t
