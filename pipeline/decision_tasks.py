"""The two kinds of tasks of the decisions query: one reads a Kafka partition, the other carries decisions out.

Between them, Spark sends all decisions for one target server to one task. So a bound on the decisions under way at a
server holds for the whole query.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from nyala.replica.client import Client
from nyala.replica.decision_executor import Bounds, Unusable, carry_out_all, execute, read_record, target_of
from nyala.replica.types import PLAINTEXT, Decision, KafkaSecurity, printable
from nyala.schemas import encode_record

from . import crash, worker
from .kafka_timeouts import KAFKA_TIMEOUT_S
from .task_producer import TaskProducer

NO_CEILING = 1 << 63
BOUNDS = Bounds(workers=16, per_target_max=4, start_within_s=120.0, retry_for_s=20.0)
"""The bounds of one task. A server that does not answer holds four threads, so four such servers stop a task, for a
minute at most. A decision ends as FAILED after `retry_for_s`, and the masters decide anew. Later records of the topic
wait for the end of the micro-batch, so it must end: `start_within_s` and the limit of one attempt bound its time."""
TEXT_CHARS_MAX = 300

DECISION, TERM, SKIPPED, MASTERS = "decision", "term", "skipped", "masters"
"""The kinds of rows between tasks, and from tasks to the driver: a decision with its target, key and value; the catalog
term of a key, if it rose; the number of records that were skipped for one reason; the term that the masters have
reached. The results of outcomes are further kinds."""
_COLUMNS = {
    "kind": ("string", pa.string()), "target": ("string", pa.string()), "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()), "number": ("bigint", pa.int64()), "text": ("string", pa.string()),
}  # fmt: skip
ROW_SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())
_ROW_ARROW = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])


class Row(NamedTuple):
    """A row between tasks, or to the driver; which fields it has depends on its kind."""

    kind: str
    target: str | None = None
    key: bytes | None = None
    value: bytes | None = None
    number: int | None = None
    text: str | None = None


@dataclass(frozen=True)
class DecisionsPlan:
    """The input that the driver sends to the tasks of one micro-batch."""

    masters: str
    bootstrap: str
    outcomes_topic: str
    executor: str
    """The executor's name in `outcomes`."""
    terms: Mapping[bytes, int] = field(default_factory=dict)
    """The highest catalog term of each key in earlier micro-batches."""
    term_known: int = 0
    """A catalog term that the masters have reached."""
    kafka_timeout_s: float = KAFKA_TIMEOUT_S
    security: KafkaSecurity = PLAINTEXT
    bounds: Bounds = BOUNDS
    tls: str = ""
    """The directory of an operator's credentials on each executor; empty: that of NYALA_TLS there."""


def newest(
    records: Iterable[tuple[bytes | None, bytes | None, int]],
    terms: dict[bytes, int],
    *,
    term_max: int = NO_CEILING,
    skip: Callable[[int, str], None] = lambda offset, reason: None,
) -> list[Decision]:
    """Return the decisions in force of (key, value, offset) records: the last of each tablet, withdrawn ones left out.

    `terms`: the highest catalog term of each key so far; this function updates it. A decision of a lower term is left
    out, because a deposed master wrote it, or wrote it earlier. `term_max` is the masters' own term: no master wrote a
    decision of a higher term, so such a decision is left out. A record that is no decision is left out, too. `skip` is
    called with the offset and the reason of each of these.
    """
    in_force: dict[bytes, tuple[int, Decision]] = {}
    for key, value, offset in sorted(records, key=lambda record: record[2]):
        if key is not None and value is None:
            in_force.pop(key, None)
            continue
        decision = read_record(Decision, key, value)
        if isinstance(decision, Unusable):
            skip(offset, decision.reason)
        elif decision.catalog_term > term_max:
            skip(offset, f"no master has reached the catalog term {decision.catalog_term}: they are at {term_max}")
        elif key is not None and decision.catalog_term >= terms.get(key, 0):
            terms[key] = decision.catalog_term
            in_force[key] = (offset, decision)
    return [decision for _, decision in sorted(in_force.values(), key=lambda each: each[0])]


def term_of(key: bytes | None, value: bytes | None) -> int:
    """Return the catalog term of a decision; 0 of anything else."""
    decision = read_record(Decision, key, value)
    return 0 if isinstance(decision, Unusable) else decision.catalog_term


def read_decisions(plan: DecisionsPlan, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the decisions in force of one Kafka partition's records, each with the server that does its work. It is the
    function for `mapInArrow` over (key, value, offset).

    A key stays in one Kafka partition, so one task sees all records of a tablet, in order.
    """
    records: list[tuple[bytes | None, bytes | None, int]] = []
    for batch in batches:
        records += zip(*(batch.column(name).to_pylist() for name in ("key", "value", "offset")), strict=True)
    if records:
        term = plan.term_known
        if any(term_of(key, value) > term for key, value, _ in records):
            term = worker.client_for(plan.masters, tls=plan.tls).catalog_term()
        yield _batch_of(rows_of(plan, records, term))


def rows_of(
    plan: DecisionsPlan, records: Iterable[tuple[bytes | None, bytes | None, int]], term_reached: int
) -> list[Row]:
    """Return the rows of a Kafka partition's records. `term_reached`: the masters' term; 0 if no master answered, and
    then every decision is tried, because the tablets' leaders check the term too. Pure."""
    terms = dict(plan.terms)
    skipped: list[str] = []

    def skip(offset: int, reason: str) -> None:
        skipped.append(f"offset {offset}: {reason}" if not skipped else "")

    found = newest(records, terms, term_max=max(term_reached, plan.term_known) or NO_CEILING, skip=skip)
    rows = [Row(DECISION, target_of(each), each.tablet_id.encode(), encode_record(each)) for each in found]
    rows += [Row(TERM, key=key, number=term) for key, term in terms.items() if term > plan.terms.get(key, 0)]
    if term_reached > plan.term_known:
        rows.append(Row(MASTERS, number=term_reached))
    if skipped:
        rows.append(Row(SKIPPED, number=len(skipped), text=_short(skipped[0])))
    return rows


def carry_out(plan: DecisionsPlan, batches: Iterator[Any]) -> Iterator[Any]:
    """Carry out the decisions of some target servers, and produce their outcomes; the function for `mapInArrow` over
    the rows of `read_decisions`. Yields the other rows, and how many decisions ended with each result.

    It succeeds only if Kafka has acknowledged all outcomes; TaskFailed otherwise.
    """
    rows = [Row(**row) for batch in batches for row in batch.to_pylist()]
    read = (read_record(Decision, row.key, row.value) for row in rows if row.kind == DECISION)
    decisions = [each for each in read if isinstance(each, Decision)]
    told = [row for row in rows if row.kind != DECISION]
    if decisions:
        client = worker.client_for(plan.masters, tls=plan.tls)
        producer = worker.producer_for(plan.bootstrap, plan.outcomes_topic, plan.kafka_timeout_s, plan.security)
        told += produced(plan, decisions, client, producer)
    if told:
        yield _batch_of(told)


def produced(plan: DecisionsPlan, decisions: list[Decision], client: Client, producer: TaskProducer) -> list[Row]:
    """Carry out the decisions and produce their outcomes; returns a row for each result."""
    counts: Counter[str] = Counter()
    texts: dict[str, str] = {}
    for outcome in carry_out_all(decisions, partial(execute, client=client), plan.bounds):
        value = encode_record(replace(outcome, executor=plan.executor, at_us=time.time_ns() // 1000))
        producer.send(outcome.tablet_id.encode(), value)
        counts[outcome.result.value] += 1
        texts.setdefault(outcome.result.value, _short(f"tablet {outcome.tablet_id}: {outcome.message}"))
        crash.reach_in_first_attempt(crash.AMID_DECISIONS)
    crash.reach_in_first_attempt(crash.BEFORE_OUTCOMES)
    producer.flush()
    return [Row(result, number=count, text=texts[result]) for result, count in counts.items()]


def _short(text: str) -> str:
    return printable(text)[:TEXT_CHARS_MAX]


def _batch_of(rows: list[Row]) -> object:
    return pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=_ROW_ARROW)
