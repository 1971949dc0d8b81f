"""The tasks of the decisions query and what the driver keeps of them, without Spark and Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from nyala import schemas
from nyala.pipeline import crash, decision_tasks, worker
from nyala.pipeline.decision_tasks import TEXT_CHARS_MAX, DecisionsPlan, Row, carry_out, read_decisions
from nyala.pipeline.decisions import DecisionsOptions, DecisionsProgress, DecisionsQuery, with_terms
from nyala.pipeline.errors import TaskFailed
from nyala.replica.decision_executor import Bounds, outcome_of
from nyala.replica.types import Code, Decision, Outcome, Refused
from tests.harness.certificates import directory_for

PLAN = DecisionsPlan(
    "m:1", "k:1", "outcomes", "me", term_known=5, bounds=Bounds(workers=3, per_target_max=2, retry_for_s=0.0)
)


def decision(tablet: str, version: int = 1, term: int = 5, leader: str = "l") -> bytes:
    value: dict[str, Any] = {
        "tablet_id": tablet, "table_id": "t", "catalog_term": term, "version": version, "action": "TRANSFER_LEADERSHIP",
        "edits": [], "config_opid": {"term": 1, "index": 1}, "deadline_us": 0, "reason": "", "target_uuid": "x",
        "leader_uuid": leader,
    }  # fmt: skip
    return schemas.encode("decision", value)


def batch(*records: tuple[bytes | None, bytes | None]) -> Any:
    keys, values = ([record[pos] for record in records] for pos in (0, 1))
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(range(len(records)), pa.int64())],
        names=["key", "value", "offset"],
    )


class Kafka:
    """The producer of outcomes of one task: `sent` is what it got, `acknowledged` what it has waited for."""

    def __init__(self, *, away: bool = False) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.acknowledged = 0
        self._away = away

    def send(self, key: bytes, value: bytes) -> None:
        self.sent.append((key, value))

    def flush(self) -> None:
        if self._away:
            raise TaskFailed("outcomes could not be produced", fatal=False)
        self.acknowledged = len(self.sent)

    def outcomes(self) -> list[tuple[str, str, str]]:
        read = [schemas.decode("outcome", value) for _, value in self.sent]
        return [(each["tablet_id"], each["result"], each["executor"]) for each in read]


@pytest.fixture
def masters(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The terms that masters answer with; empty: no master is asked."""
    terms: list[int] = []
    monkeypatch.setattr(worker, "client_for", lambda *_, **__: SimpleNamespace(catalog_term=lambda: terms.pop()))
    return terms


def attempts(monkeypatch: pytest.MonkeyPatch, kafka: Kafka, **errors: Refused | Exception) -> list[str]:
    """Let attempts end as given by tablet, else well; returns the tablets that are tried."""
    tried: list[str] = []

    def execute(made: Decision, *, client: Any) -> Outcome:
        tried.append(made.tablet_id)
        error = errors.get(made.tablet_id)
        if isinstance(error, Refused) or error is None:
            return outcome_of(made, error)
        raise error

    monkeypatch.setattr(decision_tasks, "execute", execute)
    monkeypatch.setattr(worker, "producer_for", lambda *_: kafka)
    return tried


def run(plan: DecisionsPlan, *records: tuple[bytes | None, bytes | None]) -> list[Row]:
    """Both tasks of a micro-batch, one after the other; returns what reaches the driver."""
    rows: Iterator[Any] = carry_out(plan, read_decisions(plan, iter([batch(*records)])))
    return [Row(**row) for part in rows for row in part.to_pylist()]


def query(told: list[DecisionsProgress] | None = None) -> DecisionsQuery:
    options = DecisionsOptions(masters="m:1", bootstrap="k:1", checkpoint="c")
    return DecisionsQuery(None, options, [].append if told is None else told.append)


def test_task_ends_with_an_outcome_of_every_decision_in_force(
    masters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-90, TC-67. Goal: each decision in force is carried out once and has an outcome that Kafka has acknowledged; a
    defect is one outcome, not a failed task; the driver gets counts and one text of each kind. Method: replaced,
    withdrawn, foreign, refused, failing and good decisions; what is tried, produced and reported."""
    kafka = Kafka()
    tried = attempts(monkeypatch, kafka, b=Refused(Code.CAS_FAILED, "another config"), c=KeyError("x" * 10_000))
    found = run(
        PLAN, (b"a", decision("a")), (b"a", decision("a", 2)), (b"b", decision("b")), (b"c", decision("c")),
        (b"d", decision("d")), (b"d", None), (b"e", b"garbage"), (b"f", decision("g")), (None, None),
    )  # fmt: skip
    assert sorted(tried) == ["a", "b", "c"]
    assert sorted(kafka.outcomes()) == [("a", "DONE", "me"), ("b", "REFUSED", "me"), ("c", "FAILED", "me")]
    assert kafka.acknowledged == 3
    told: list[DecisionsProgress] = []
    here = query(told)
    here._note(found)
    (progress,) = told
    assert (progress.results, progress.skipped) == ({"DONE": 1, "REFUSED": 1, "FAILED": 1}, 3)
    assert len(progress.examples) == 3 and max(map(len, progress.examples)) <= TEXT_CHARS_MAX + 20
    assert progress.line().startswith("decisions in 0.0 s: 1 DONE, 1 FAILED, 1 REFUSED, 3 records skipped; ")


def test_task_fails_if_kafka_has_not_acknowledged_its_outcomes(
    masters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a micro-batch is not over before Kafka has its outcomes. Method: a broker that is away at the flush; the
    task that runs again carries the decision out again and produces its outcome again."""
    tried = attempts(monkeypatch, away := Kafka(away=True))
    with pytest.raises(TaskFailed, match=r"\[retryable\]"):
        run(PLAN, (b"a", decision("a")))
    assert away.acknowledged == 0
    again = Kafka()
    monkeypatch.setattr(worker, "producer_for", lambda *_: again)
    run(PLAN, (b"a", decision("a")))
    assert (tried, again.acknowledged) == (["a", "a"], 1)


def test_term_of_a_key_holds_in_later_micro_batches_and_in_one_that_runs_again(
    masters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-69. Goal: a late decision of an older catalog term is dropped in a later micro-batch, after a withdrawal too,
    and a micro-batch that runs again does the same as before. Method: the driver's terms go into the next plan; each
    micro-batch runs twice, and only the second time its end reaches the driver."""
    kafka = Kafka()
    tried = attempts(monkeypatch, kafka)
    here = query()

    def micro_batch(*records: tuple[bytes | None, bytes | None]) -> list[str]:
        plan = replace(PLAN, terms=here._terms)
        run(plan, *records)
        first = sorted(tried)
        tried.clear()
        here._note(run(plan, *records))
        second = sorted(tried)
        tried.clear()
        assert first == second
        return second

    late, new = (b"a", decision("a", 7, term=3)), (b"a", decision("a", 1, term=4))
    assert micro_batch(new, late, (b"b", decision("b", 1, term=3))) == ["a", "b"]
    assert here._terms == {b"a": 4, b"b": 3}
    assert micro_batch(late) == []
    assert micro_batch(late, (b"b", decision("b", 2, term=3))) == ["b"]
    assert micro_batch((b"a", decision("a", 2, term=4)), (b"a", None)) == []
    assert micro_batch(late) == []
    assert micro_batch((b"a", decision("a", 3, term=5))) == ["a"]
    assert here._terms == {b"a": 5, b"b": 3}


@pytest.mark.deep
def test_only_terms_that_rose_reach_the_driver(masters: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what the driver collects does not grow with the decisions of keys that it knows. Method: 500 decisions of
    known and of new keys; the rows that the tasks return."""
    attempts(monkeypatch, Kafka())
    records = [(f"t{n}".encode(), decision(f"t{n}", leader=f"l{n % 9}")) for n in range(500)]
    here = query()
    here._note(first := run(PLAN, *records))
    assert [row.kind for row in first].count("term") == 500
    again = run(replace(PLAN, terms=here._terms), *records)
    assert [(row.kind, row.number) for row in again] == [("DONE", 500)]


def test_terms_that_are_kept_are_bounded_and_the_oldest_go_first() -> None:
    """Goal: the driver's memory of terms is bounded. Method: more keys than are kept; a key that rose again stays."""
    kept = with_terms({b"a": 1, b"b": 1, b"c": 1}, {b"a": 2, b"d": 1}, 3)
    assert kept == {b"c": 1, b"a": 2, b"d": 1}
    assert with_terms({b"a": 1}, {}, 3) == {b"a": 1}


def test_tasks_show_the_certificate_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: with TLS, both kinds of tasks reach the cluster with the certificate that the job's option names. Method: a
    query with the option; the directories that its tasks ask a client for."""
    asked: list[str] = []

    def client_for(masters: str, write_timeout_s: float = 0.0, tls: str = "") -> Any:
        asked.append(tls)
        return SimpleNamespace(catalog_term=lambda: 5)

    attempts(monkeypatch, Kafka())
    monkeypatch.setattr(worker, "client_for", client_for)
    tls = str(directory_for("operator", "ops"))
    options = DecisionsOptions(masters="m:1", bootstrap="k:1", checkpoint="c", tls=tls)
    run(DecisionsQuery(None, options)._plan(), (b"a", decision("a", term=5)))
    assert asked == [tls, tls]
    with pytest.raises(Refused, match="absent"):
        DecisionsQuery(None, replace(options, tls="/absent"))


def test_masters_are_asked_only_for_a_term_above_the_known_one(
    masters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-90. Goal: a decision of a term that no master has reached is skipped; the driver learns the masters' term.
    Method: known terms, a new one, a forged one, and masters that do not answer."""
    kafka = Kafka()
    tried = attempts(monkeypatch, kafka)
    here = query()
    here._term_known = 5
    run(PLAN, (b"a", decision("a", term=5)))
    masters.append(8)
    here._note(run(PLAN, (b"b", decision("b", term=7)), (b"c", decision("c", term=9))))
    assert sorted(tried) == ["a", "b"] and here._term_known == 8 and here._terms == {b"b": 7}
    masters.append(0)
    run(replace(PLAN, term_known=0), (b"d", decision("d", term=9)))
    assert "d" in tried


def test_task_reaches_its_crash_points_before_kafka_has_its_outcomes(
    masters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a worker can be made to die after each decision and before its outcomes are acknowledged. Method: what
    Kafka has at each point that two decisions reach."""
    attempts(monkeypatch, kafka := Kafka())
    reached: list[tuple[str, int, int]] = []
    monkeypatch.setattr(crash, "reach", lambda point: reached.append((point, len(kafka.sent), kafka.acknowledged)))
    run(PLAN, (b"a", decision("a")), (b"b", decision("b")))
    amid, before = crash.AMID_DECISIONS, crash.BEFORE_OUTCOMES
    assert reached == [(amid, 1, 0), (amid, 2, 0), (before, 2, 0)]
