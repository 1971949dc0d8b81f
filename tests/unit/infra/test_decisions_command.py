"""`nyala decisions`: what it prints, for people and for programs, and what it says that it does not have."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from typer.testing import CliRunner

from nyala.infra.cli import decision_topics, decisions
from nyala.infra.cli.app import app
from nyala.infra.cli.decision_topics import moment_us, time_text
from nyala.infra.cli.decisions import _newest, took_text
from nyala.pipeline import decision_log
from nyala.pipeline.decision_story import Event, Step, event_of
from nyala.replica.types import Address, Code, EventKind, HistoryEvent, Member, OpId, Refused, Result, Subject
from nyala.schemas import encode_record
from tests.unit.pipeline.test_decision_log import Kafka
from tests.unit.pipeline.test_decision_story import ADD, PROPOSAL, A, B, decision, outcome

NOW_US = 1_700_000_000_000_000
OTHER = decision(1, plan="", tablet="tother", reason="add: \x1b[31mnone")


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """A broker whose topics hold a move of tablet `t` and a decision of tablet `tother`, and one record of a
    stranger. A record's time in milliseconds is its offset."""
    refused = outcome(ADD, Result.REFUSED, 62_000, Code.CAS_FAILED, "the config is another")
    found = Kafka(
        {
            ("proposals", 0): [(b"t", encode_record(PROPOSAL))],
            ("decisions", 0): [(b"tother", encode_record(OTHER)), (b"t", encode_record(ADD))],
            ("outcomes", 0): [
                (b"t", encode_record(outcome(PROPOSAL, Result.ACCEPTED, 2_000))),
                (b"t", encode_record(refused)),
                (b"t", b"?"),
            ],
            ("history", 0): [],
        },
        {},
    )
    monkeypatch.setattr(decision_log, "KafkaConsumer", lambda **_: found)
    monkeypatch.setattr(decision_log, "check_reachable", lambda _: None)
    return found


def run(*line: str) -> Any:
    return CliRunner().invoke(app, ["decisions", *line, "--kafka", "k:1"], env={"COLUMNS": "300"})


def rows(text: str) -> list[list[str]]:
    """The cells of the table's rows."""
    return [[c.strip() for c in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_list_shows_who_did_what_why_and_how_long_it_took(kafka: Kafka) -> None:
    """Goal: an operator reads the whole change in one table. Method: a move whose decision is refused, beside one
    decision of another tablet, whose reason has an escape sequence; then the newest two only."""
    done = run("list")
    assert done.exit_code == 0, done.output
    assert rows(done.stdout) == [
        ["1970-01-01T00:00:00.000Z", "t", "PROPOSED", f"move a replica from {A[:8]} to {B[:8]}", "evens bytes", "",
         "a job", "plan"],
        ["1970-01-01T00:00:00.000Z", "tother", "DECIDED", "hand leadership to", "add: \\\\u001b[31mnone", "",
         "the masters, term 3", ""],
        ["1970-01-01T00:00:00.001Z", "t", "DECIDED", f"add {B[:8]} (no vote, to be promoted)", "add",
         "1 ms since PROPOSED", "the masters, term 3", "plan"],
        ["1970-01-01T00:00:00.002Z", "t", "ACCEPTED", "proposal p1", "", "2 ms since PROPOSED", "x", "plan"],
        ["1970-01-01T00:00:00.062Z", "t", "REFUSED", "decision 3.1", "CAS_FAILED: the config is another",
         "61 ms since DECIDED", "x", "plan"],
    ]  # fmt: skip
    assert done.stderr == "records of outcomes that cannot be read and are not shown: 1 (other schema)\n"
    few = run("list", "--limit", "2")
    assert [row[2] for row in rows(few.stdout)] == ["ACCEPTED", "REFUSED"]
    assert few.stderr.startswith("the newest 2 of 5 records; --limit, --since and --table choose others\n")


def test_json_has_one_object_a_line(kafka: Kafka) -> None:
    """Goal: a program reads steps one by one, with whole ids. Method: `list --json` and `explain --json`."""
    found = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert [one["step"] for one in found] == ["PROPOSED", "DECIDED", "DECIDED", "ACCEPTED", "REFUSED"]
    assert found[-1] == {
        "at": "1970-01-01T00:00:00.062Z", "at_us": 62_000, "tablet_id": "t", "table_id": "", "step": "REFUSED",
        "subject": "DECISION", "subject_id": "t@3.1", "plan_id": "plan", "by": "x", "change": "",
        "reason": "the config is another", "code": "CAS_FAILED", "since": "DECIDED", "took_us": 61_000,
        "cause": "",
    }  # fmt: skip
    (line,) = run("explain", "to", "--json").stdout.splitlines()
    assert (json.loads(line)["tablet_id"], json.loads(line)["table_id"]) == ("tother", "i")


def test_explain_shows_one_tablet_or_says_why_not(kafka: Kafka) -> None:
    """Goal: nobody takes the story of two tablets for that of one, or silence for peace. Method: a beginning that two
    tablets have, one that one has, one that none has; a decision that the compacted topic no longer has."""
    both = run("explain", "t")
    assert both.exit_code == 2 and "2 tablets with records begin with t, such as t, tother" in both.stderr
    one = run("explain", "tot")
    assert [row[1:4] for row in rows(one.stdout)] == [["DECIDED", "hand leadership to", "add: \\\\u001b[31mnone"]]
    none = run("explain", "x")
    assert isinstance(none.exception, Refused) and none.exception.code is Code.NOT_FOUND and not none.stdout
    kafka.logs = {place: items for place, items in kafka.logs.items() if place.topic == "outcomes"}
    kafka.first["outcomes"] = 1
    late = run("explain", "t")
    assert [row[1] for row in rows(late.stdout)] == ["REFUSED"]
    why = "the masters have not made it, have another --topic-prefix, or this login may not see it"
    assert late.stderr.splitlines() == [
        f"there is no topic proposals: {why}",
        f"there is no topic decisions: {why}",
        f"there is no topic history: {why}",
        "the first 1 records of outcomes are not shown: Kafka keeps them no more",
        "outcomes whose decision is not shown: 1; Kafka keeps the newest decision of each tablet only",
        "records of outcomes that cannot be read and are not shown: 1 (other schema)",
    ]


def test_explain_shows_what_changed_the_config(kafka: Kafka) -> None:
    """Goal: an operator sees how a tablet's config changed, also where no decision caused it. Method: a config from a
    snapshot, one of a decision, and a forced one; then the loss of events, and a tablet of which only that is known."""
    member = {uuid: Member(uuid, (Address("h", 7),)) for uuid in (A, B)}
    first = HistoryEvent(
        kind=EventKind.SNAPSHOT, tablet_id="t", at_us=0, config_opid=OpId(1, 5), members=(member[A],), snapshot_id="s"
    )
    both = replace(
        first, kind=EventKind.CONFIG, at_us=50_000, config_opid=OpId(1, 9), members=(member[A], member[B]),
        decision_term=3, decision_version=1,
    )  # fmt: skip
    forced = replace(both, at_us=70_000, config_opid=OpId(4, 1), members=(member[B],), unsafe=True)
    gap = HistoryEvent(kind=EventKind.GAP, at_us=80_000, reason="Kafka was away")
    events = (gap, forced, both, first, both)
    kafka.logs[TopicPartition("history", 0)] = [(e.tablet_id.encode(), encode_record(e)) for e in events]
    del kafka.logs[TopicPartition("decisions", 0)][0]
    shown = [row[1:5] for row in rows(run("explain", "t").stdout)]
    assert [row for row in shown if row[0] in ("KNOWN", "CONFIG", "GAP")] == [
        ["KNOWN", A[:8], "known from a snapshot", ""],
        ["CONFIG", f"{A[:8]}, {B[:8]}", "decision 3.1", "50 ms since DECIDED"],
        ["CONFIG", B[:8], "forced by an operator, without a majority", ""],
        ["GAP", "", "Kafka was away", ""],
    ]
    assert len(shown) == 8
    assert isinstance(run("explain", "x").exception, Refused)


def test_empty_topics_are_no_empty_table_without_a_word(kafka: Kafka) -> None:
    """Goal: an empty answer says what is empty. Method: topics without records; a table whose tablets have none; a time
    after the last record."""
    assert run("list", "--since", "1s").stderr == "Kafka has no proposal, decision or outcome since 1s\n"
    kafka.logs = {place: [] for place in kafka.logs}
    assert run("list").stderr == "Kafka has no proposal, decision or outcome\n"


def test_table_chooses_its_tablets(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one table's changes are found among those of all. Method: masters that know its tablets, and the address of
    Kafka."""
    asked: list[str] = []

    @contextmanager
    def client(masters: str) -> Any:
        asked.append(masters)
        tablets = [SimpleNamespace(tablet_id="tother")]
        yield SimpleNamespace(get_table=lambda _: SimpleNamespace(tablets=tablets), kafka_of_masters=lambda: "k:9")

    for module in (decisions, decision_topics):
        monkeypatch.setattr(module, "client", client)
    line = ["decisions", "list", "--table", "flights", "--masters", "m:1", "--json"]
    done = CliRunner().invoke(app, line, env={"NYALA_KAFKA": ""})
    assert [json.loads(each)["tablet_id"] for each in done.stdout.splitlines()] == ["tother"]
    assert asked == ["m:1", "m:1"]


def test_tail_prints_what_comes_once(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: `tail` shows the newest steps, then each new one with the time that it took, and says at its end that it
    changed nothing. Method: two older steps; then Kafka has the end of the move, once more what it had, and garbage;
    then Ctrl-C."""
    done = (b"t", encode_record(outcome(PROPOSAL, Result.DONE, 120_000_000)))
    came = [[done], [done, kafka.logs[next(p for p in kafka.logs if p.topic == "outcomes")][0]], [(b"t", b"??")]]
    outcomes = next(items for place, items in kafka.logs.items() if place.topic == "outcomes")

    def follow(log: Any, tell: Any) -> Any:
        tell("Kafka is away")
        for page in came:
            outcomes.extend(page)
            yield list(log.until_now())
        raise KeyboardInterrupt

    monkeypatch.setattr(decision_log.DecisionLog, "follow", follow)
    ended = run("tail", "--limit", "2")
    assert ended.exit_code == 130
    assert [line.split(maxsplit=2)[1:] for line in ended.stdout.splitlines()] == [
        ["t", "ACCEPTED  proposal p1; by x; 2 ms since PROPOSED"],
        ["t", "REFUSED   decision 3.1; CAS_FAILED: the config is another; by x; 61 ms since DECIDED"],
        ["t", "DONE      proposal p1; by x; 2.0 min since PROPOSED"],
    ]
    assert "Kafka is away" in ended.stderr and ended.stderr.endswith("nyala: interrupted: nothing was changed\n")
    assert "not shown: 1 (other schema)" in ended.stderr


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 10))
def test_newest_events_are_kept_and_no_more(times: list[int], most: int) -> None:
    """Goal: memory is bounded, and what is left out is the oldest. Method: events in any order, against a sorted
    list."""
    events = [Event(at_us=at, tablet_id=str(n), step=Step.DONE, subject=Subject.DECISION) for n, at in enumerate(times)]
    kept, total = _newest(iter(events), most)
    assert total == len(times) and [e.at_us for e in kept] == sorted(times)[-most:]
    assert len(set(kept)) == len(kept)


@pytest.mark.parametrize(
    ("since", "at_us"),
    [
        ("", 0),
        ("90s", NOW_US - 90_000_000),
        ("15m", NOW_US - 900_000_000),
        ("2h", NOW_US - 7_200_000_000),
        ("7d", NOW_US - 604_800_000_000),
        ("999999999d", 1),
        ("1970-01-01T00:00:01+00:00", 1_000_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000),
        ("0001-01-01T00:00+00:00", 1),
    ],
)
def test_since_is_a_span_or_a_time(since: str, at_us: int) -> None:
    """Goal: both ways to name a time are understood, and a time before all records means all. Method: each unit; times
    in two zones; the earliest ones."""
    assert moment_us(since, NOW_US, "--since") == at_us


@pytest.mark.parametrize("since", ["5", "5w", "-5s", "1.5h", "yesterday", "2026-01-31", "2026-01-31T10:00", "٥s"])
def test_since_of_another_form_is_refused(since: str) -> None:
    """Goal: no time is guessed. Method: spans without a unit, with an unknown one, with other digits; times without a
    zone."""
    with pytest.raises(typer.BadParameter, match="--since"):
        moment_us(since, NOW_US, "--since")


@pytest.mark.parametrize(
    ("took_us", "text"),
    [(None, ""), (0, "0 ms"), (999_000, "999 ms"), (1_000_000, "1.0 s"), (119_000_000, "119.0 s"),
     (120_000_000, "2.0 min"), (7_200_000_000, "2.0 h"), (172_800_000_000, "2.0 d")],
)  # fmt: skip
def test_span_is_shown_in_a_unit_that_fits(took_us: int | None, text: str) -> None:
    """Goal: spans of all lengths are readable. Method: the borders of each unit."""
    assert took_text(took_us) == text


def test_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    """Goal: a forged time ends no command. Method: the greatest time that a record may hold, in all outputs."""
    assert time_text((1 << 63) - 1) == "9223372036854775807 us"
    assert time_text(1_500) == "1970-01-01T00:00:00.001Z"
    forged = event_of(outcome(ADD, Result.DONE, (1 << 63) - 1), "t", 0)
    assert decisions.document_of(decisions.pipeline.story([forged])[0])["at"] == "9223372036854775807 us"
