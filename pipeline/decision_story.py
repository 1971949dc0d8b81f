"""Tells from the records of the masters' topics what happened, in the order of time: proposals, decisions, their
outcomes, and the configs of tablets. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from nyala.replica.types import (
    ZERO_OPID,
    Code,
    ConfigEdit,
    Decision,
    EditKind,
    EventKind,
    HistoryEvent,
    Member,
    Outcome,
    Proposal,
    RaftConfig,
    Subject,
    Wanted,
    read_number,
)

TEXT_CHARS_MAX = 1_000
CONFIG_CHARS_MAX = 4_000
"""The most characters that an event keeps of a reason or a change, and of a config. A foreign record may have 64 KiB;
with these bounds, 20,000 events take at most 200 MB. A config of seven members has 1,300 characters."""


class Step(StrEnum):
    """A step of a change. ACCEPTED to FAILED are the results of outcomes."""

    PROPOSED = "PROPOSED"
    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    DECIDED = "DECIDED"
    DONE = "DONE"
    FAILED = "FAILED"
    WITHDRAWN = "WITHDRAWN"
    """The decision is no longer needed: it was carried out, or the cluster has changed."""
    CONFIG = "CONFIG"
    """The masters have recorded a committed config of the tablet."""
    KNOWN = "KNOWN"
    """A snapshot has a config for which there is no CONFIG step, because the history began later, or an event was
    lost."""
    DROPPED = "DROPPED"
    GAP = "GAP"
    """Steps before this one were lost."""


_OF_HISTORY = {
    EventKind.CONFIG: Step.CONFIG,
    EventKind.SNAPSHOT: Step.KNOWN,
    EventKind.DROPPED: Step.DROPPED,
    EventKind.GAP: Step.GAP,
}
_BEGINS = {Subject.PROPOSAL: Step.PROPOSED, Subject.DECISION: Step.DECIDED}
_RANK = {
    step: rank
    for rank, step in enumerate(
        (Step.PROPOSED, Step.ACCEPTED, Step.DECIDED, Step.KNOWN, Step.CONFIG, Step.DONE, Step.FAILED, Step.REFUSED)
    )
}
"""The order of steps at one time; a withdrawal is last."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One step of a change, from one record."""

    at_us: int
    """Wall-clock time of the process that wrote the record. Clocks of processes differ."""
    tablet_id: str
    table_id: str = ""
    step: Step
    subject: Subject | None = None
    """None: a step of the tablet's config."""
    subject_id: str = ""
    """The proposal's id, or `tablet@term.version` of a decision; empty for a withdrawal."""
    plan_id: str = ""
    by: str = ""
    change: str = ""
    reason: str = ""
    code: str = ""
    """The name of an outcome's code; empty if it is OK."""
    config: RaftConfig | None = None
    """The config, for CONFIG and KNOWN; None if it is too large."""


@dataclass(frozen=True)
class Told:
    """One line of the story: an event, and the step since which `took_us` is measured. They are "" and None if that
    step is not known."""

    event: Event
    since: str = ""
    took_us: int | None = None
    cause: str = ""
    """The cause of the change of the config, as far as it is known."""


def event_of(record: Proposal | Decision | Outcome | HistoryEvent | None, tablet_id: str, at_us: int) -> Event:
    """Return the event of a record that was written at `at_us`. The record None withdraws the decision of `tablet_id`.
    A record of the history has a kind of `Step`, or is about a decision.

    An outcome has a time of its own, because it is published later while Kafka is away.
    """
    match record:
        case Proposal():
            return Event(
                at_us=at_us, tablet_id=record.tablet_id, step=Step.PROPOSED, subject=Subject.PROPOSAL,
                subject_id=record.proposal_id, plan_id=record.plan_id, change=_wanted_text(record),
                by="a job" if record.plan_id else "", reason=record.reason[:TEXT_CHARS_MAX],
            )  # fmt: skip
        case Decision():
            return Event(
                at_us=at_us, tablet_id=record.tablet_id, table_id=record.table_id, step=Step.DECIDED,
                subject=Subject.DECISION, subject_id=record.id, plan_id=record.plan_id, change=_decided_text(record),
                by=f"the masters, term {record.catalog_term}", reason=record.reason[:TEXT_CHARS_MAX],
            )  # fmt: skip
        case Outcome():
            return Event(
                at_us=record.at_us or at_us, tablet_id=record.tablet_id, step=Step(record.result.value),
                subject=record.subject, subject_id=record.subject_id, plan_id=record.plan_id, by=record.executor,
                reason=record.message[:TEXT_CHARS_MAX], code=read_number(Code, record.code).name if record.code else "",
            )  # fmt: skip
        case HistoryEvent(kind=EventKind.DECIDED):
            return event_of(record.decision, tablet_id, record.at_us)
        case HistoryEvent() if record.kind in _OF_HISTORY:
            known = record.kind in (EventKind.CONFIG, EventKind.SNAPSHOT)
            small = len(repr(record.members)) <= CONFIG_CHARS_MAX
            return Event(
                at_us=record.at_us, tablet_id=record.tablet_id, table_id=record.table_id, by="the masters",
                step=_OF_HISTORY[record.kind], reason=record.reason[:TEXT_CHARS_MAX],
                config=record.config if known and small else None,
                change=", ".join(map(_member_text, record.members))[:TEXT_CHARS_MAX] if known else "",
            )  # fmt: skip
    at_us = record.at_us if record is not None else at_us
    return Event(
        at_us=at_us, tablet_id=tablet_id, step=Step.WITHDRAWN, subject=Subject.DECISION, by="the masters",
        reason="needed no more",
    )  # fmt: skip


def story(events: Iterable[Event]) -> list[Told]:
    """Return the events in the order of time, each once, with the time since the step before it:

    - of an outcome, since its proposal or decision;
    - of a decision, since the last step of its plan at its tablet;
    - of a withdrawal, since the last decision of its tablet;
    - of a config that contains a further decision, since that decision.

    A withdrawal is both in the history and in the topic of decisions; the first one counts. A snapshot's config is a
    step only if no other step has that config.

    An outcome never comes before its proposal or decision. If its writer's clock is behind, the time that it took is
    not known. The order of `events`, and repetitions in it, do not change the result.
    """
    once: dict[tuple[object, ...], Event] = {}
    for event in sorted(set(events), key=_order):
        once.setdefault(_identity(event), event)
    begun = {_thing(e): e for e in once.values() if e.step in _BEGINS.values()}
    told_configs = {(e.tablet_id, e.config) for e in once.values() if e.step is Step.CONFIG}
    moved: list[tuple[Event, int]] = []
    for event in once.values():
        if event.step is Step.KNOWN:
            if (event.tablet_id, event.config) in told_configs:
                continue
            told_configs.add((event.tablet_id, event.config))
        first = begun.get(_thing(event))
        moved.append((event, max(event.at_us, first.at_us) if first else event.at_us))
    told: list[Told] = []
    last_of_plan: dict[tuple[str, str], Event] = {}
    last_decision: dict[str, Event] = {}
    withdrawn: set[str] = set()
    configs: dict[str, RaftConfig] = {}
    for event, _ in sorted(moved, key=lambda each: (each[1], _order(each[0])[1:])):
        plan, cause = (event.tablet_id, event.plan_id), ""
        match event.step:
            case Step.PROPOSED:
                before = None
            case Step.DECIDED:
                before = last_of_plan.get(plan)
                last_decision[event.tablet_id] = event
                withdrawn.discard(event.tablet_id)
            case Step.WITHDRAWN:
                if event.tablet_id in withdrawn:
                    continue
                withdrawn.add(event.tablet_id)
                before = last_decision.get(event.tablet_id)
            case Step.CONFIG | Step.KNOWN if event.config is not None:
                known = configs.get(event.tablet_id)
                configs[event.tablet_id] = event.config
                cause = cause_of(known, event.config) if event.step is Step.CONFIG else "known from a snapshot"
                rose = known is not None and event.config.decision > known.decision
                before = begun.get(_thing(event)) if rose else None
            case _:
                before = begun.get(_thing(event))
        if event.plan_id:
            last_of_plan[plan] = event
        took_us = event.at_us - before.at_us if before else -1
        told.append(Told(event, before.step, took_us, cause) if before and took_us >= 0 else Told(event, cause=cause))
    return told


def cause_of(before: RaftConfig | None, config: RaftConfig) -> str:
    """Return the cause of a change of a tablet's config, as far as the two configs show it. Pure."""
    if config.unsafe and (before is None or before.opid != config.opid):
        return "forced by an operator, without a majority"
    if before is None:
        return "its first config" if config.opid == ZERO_OPID else "the first config that is known"
    if config.decision > before.decision:
        return "decision {}.{}".format(*config.decision)
    was, now = ({m.uuid: m for m in c.members} for c in (before, config))
    changed = [now[uuid] for uuid in now.keys() & was.keys() if now[uuid] != was[uuid]]
    if was.keys() == now.keys() and changed and all(m.votes and was[m.uuid].promote for m in changed):
        return "its leader promoted a member"
    if was.keys() == now.keys() and all(replace(m, addresses=was[m.uuid].addresses) == was[m.uuid] for m in changed):
        return "a server has another address" if changed else "its first leader" if before.opid == ZERO_OPID else "none"
    return "no decision of the masters"


def without_beginning(told: Iterable[Told]) -> int:
    """Return the number of outcomes whose decisions are not among the events."""
    known = [each.event for each in told]
    decided = {_thing(event) for event in known if event.step is Step.DECIDED}
    outcomes = [e for e in known if e.subject is Subject.DECISION and e.step not in (Step.DECIDED, Step.WITHDRAWN)]
    return sum(_thing(event) not in decided for event in outcomes)


def _thing(event: Event) -> tuple[object, ...]:
    """Return the subject of an event: a proposal or a decision of a tablet; for a config, the last decision in it."""
    if event.config is not None:
        return (
            Subject.DECISION,
            f"{event.tablet_id}@{event.config.decision[0]}.{event.config.decision[1]}",
            event.tablet_id,
        )
    return event.subject, event.subject_id, event.tablet_id


def _identity(event: Event) -> tuple[object, ...]:
    """Return a value that is equal for all records of one event. If a sender did not know whether Kafka has a proposal
    or decision, it wrote it again, with another time."""
    return _thing(event) if event.step in _BEGINS.values() else (event,)


def _order(event: Event) -> tuple[object, ...]:
    texts = event.tablet_id, event.subject or "", event.subject_id, event.plan_id, event.by, event.change, event.reason
    position = (event.config.opid, event.config.decision) if event.config is not None else ()
    return (event.at_us, _RANK.get(event.step, len(_RANK)), *texts, event.table_id, event.code, position)


def _wanted_text(proposal: Proposal) -> str:
    if proposal.wanted is Wanted.MOVE_REPLICA:
        return f"move a replica from {proposal.from_uuid or 'nowhere'} to {proposal.to_uuid}"
    return f"hand leadership to {proposal.to_uuid}"


def _decided_text(decision: Decision) -> str:
    edits = ", ".join(map(_edit_text, decision.edits))
    return edits[:TEXT_CHARS_MAX] or f"hand leadership to {decision.target_uuid}"


def _edit_text(edit: ConfigEdit) -> str:
    member = edit.member
    if edit.kind is EditKind.REMOVE:
        return f"remove {member.uuid}"
    return f"{edit.kind.value} {_member_text(member)}"


def _member_text(member: Member) -> str:
    marks = {
        "no vote": not member.votes,
        "no data": not member.holds_data,
        "to be promoted": member.promote,
        "to be replaced": member.replace,
    }
    told = ", ".join(name for name, holds in marks.items() if holds)
    return member.uuid + (f" ({told})" if told else "")
