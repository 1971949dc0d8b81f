"""Decisions are sent once per need, again with back-off, and withdrawn when done; they wait while Kafka is away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nyala.replica.master import MasterOptions, SentDecisions, Versions
from nyala.replica.master.kafka.outbox import EVENTS_MAX, Item, Outbox
from nyala.replica.types import Action, ConfigEdit, Decision, EditKind, Member, OpId
from nyala.schemas import decode, encode_record, from_avro

SECOND = 1_000_000
OPTIONS = MasterOptions(root="x", republish_first_ms=10_000, republish_max_ms=25_000, decision_ttl_ms=60_000)
REMOVE = Decision(
    tablet_id="t",
    table_id="T",
    action=Action.CHANGE_CONFIG,
    edits=(ConfigEdit(EditKind.REMOVE, Member("a" * 32)),),
    config_opid=OpId(2, 7),
    leader_uuid="l",
    catalog_term=3,
    reason="why",
)


class Sent:
    """Sent decisions with a clock in seconds."""

    def __init__(self) -> None:
        self.sent = SentDecisions(OPTIONS, Versions())

    def say(self, at_s: float, *needed: Decision) -> dict[str, Any]:
        return self.sent.update(needed, {"l": "h:1"}, int(at_s * SECOND), int(at_s * SECOND))


def test_sent_decisions_a_need_is_said_once_and_again_with_back_off() -> None:
    """Goal: TC-67 and "one decision per need". Method: the same need every half second for 100 s."""
    b = Sent()
    said = [(at / 2, r.version) for at in range(200) if (r := b.say(at / 2, REMOVE).get("t"))]
    assert said == [(0, 1), (10, 2), (30, 3), (55, 4), (80, 5)]


def test_sinks_give_a_decision_of_one_tick_one_version() -> None:
    """Goal: the outcome of the master's own executor names the decision that is in Kafka. Method: two sinks publish in
    one tick; then one of them alone, as after a reconnection; then both again, for two tablets."""
    versions = Versions()
    sinks = [SentDecisions(OPTIONS, versions) for _ in range(2)]

    def tick(at_s: int, which: list[SentDecisions], *needed: Decision) -> list[list[int]]:
        versions.begin_tick()
        found = [sink.update(needed, {}, at_s * SECOND, at_s * SECOND) for sink in which]
        return [[one.version for one in each.values() if one is not None] for each in found]

    assert tick(0, sinks, REMOVE) == [[1], [1]]
    sinks[1].forget()
    assert tick(1, sinks, REMOVE) == [[], [2]]
    assert tick(10, sinks, REMOVE) == [[3], []]
    moved = replace(REMOVE, config_opid=OpId(2, 8))
    assert tick(12, sinks, moved, replace(REMOVE, tablet_id="u")) == [[4, 1], [4, 1]]
    assert tick(13, sinks, replace(REMOVE, catalog_term=4)) == [[1], [1]]


def test_sent_decisions_a_record_is_what_the_schema_says() -> None:
    """Goal: readers of the topic decode it. Method: encode and decode, compare the four checks of a decision."""
    record = Sent().say(5, REMOVE)["t"]
    again = from_avro(Decision, decode("decision", encode_record(record)))
    assert again == record
    assert (again.catalog_term, again.version, again.config_opid) == (3, 1, OpId(2, 7))
    assert again.deadline_us == 65 * SECOND and again.leader_address == "h:1"


def test_sent_decisions_a_need_that_changed_is_said_at_once_under_a_higher_version() -> None:
    """Goal: the newest decision wins by version. Method: another config position, then another term."""
    b = Sent()
    assert b.say(0, REMOVE)["t"].version == 1
    assert b.say(1, replace(REMOVE, config_opid=OpId(2, 8)))["t"].version == 2
    assert b.say(2, replace(REMOVE, catalog_term=4))["t"].version == 1, "versions count within a term"
    assert b.say(3, replace(REMOVE, catalog_term=4, reason="other words", leader_uuid="m")) == {}


def test_sent_decisions_a_need_that_ended_is_withdrawn_once() -> None:
    """Goal: a null withdraws. Method: say, end, stay ended."""
    b = Sent()
    b.say(0, REMOVE)
    assert b.say(1) == {"t": None}
    assert b.say(2) == {}
    assert b.sent.outstanding == 0


def test_sent_decisions_after_an_outage_each_need_is_said_once() -> None:
    """Goal: scenario 125, no burst on return. Method: forget what was said; one need lasts, one ended meanwhile."""
    b = Sent()
    b.say(0, REMOVE, replace(REMOVE, tablet_id="u"))
    b.sent.forget()
    said = b.say(300, REMOVE)
    assert said["t"].version == 2 and said["u"] is None and len(said) == 2
    assert b.say(300.5, REMOVE) == {}


def test_outbox_state_is_replaced_and_events_are_kept() -> None:
    """Goal: an outage leaves no backlog of state. Method: three values of one key, two events, a failed publication."""
    box = Outbox()
    for value in (b"1", b"2", None):
        box.put(Item("decisions", b"t", value))
    events = [Item("outcomes", b"t", bytes([n]), event=True) for n in range(2)]
    for event in events:
        box.put(event)
    taken = box.take(10, 0)
    assert [i.value for i in taken] == [b"\x00", b"\x01", None]
    box.put(Item("decisions", b"t", b"newer"))
    box.put_back(taken)
    assert [i.value for i in box.take(10, 0)] == [b"\x00", b"\x01", b"newer"]
    assert box.take(10, 0) == []


def test_outbox_at_its_bound_drops_the_oldest_event_and_counts_it() -> None:
    """Goal: nothing unbounded. Method: one event more than fits."""
    box = Outbox()
    for n in range(EVENTS_MAX + 1):
        box.put(Item("outcomes", b"t", str(n).encode(), event=True))
    assert box.dropped == 1 and box.take(1, 0)[0].value == b"1"


def test_outbox_at_its_bound_keeps_an_event_that_somebody_waits_for() -> None:
    """Goal: the outcome of a proposal is never dropped, because the reader of proposals waits until it is acknowledged.
    Method: it is the oldest, and two more than fit are put in behind it."""
    box = Outbox()
    box.put(Item("outcomes", b"t", b"awaited", event=True, done=lambda: None))
    for n in range(EVENTS_MAX + 1):
        box.put(Item("outcomes", b"t", str(n).encode(), event=True))
    assert box.dropped == 2 and [i.value for i in box.take(2, 0)] == [b"awaited", b"2"]
