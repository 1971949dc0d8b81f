"""Every Kafka topic: records as any process that reaches Kafka may write them, at every reader here.

An input is the length of the key, one byte, the key, and the value; a length of 255 stands for no key.
"""

from __future__ import annotations

import datetime as dt
import io
import random
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from nyala import schemas
from nyala.pipeline.dead_letter_reader import letter_of
from nyala.pipeline.decision_story import event_of, story
from nyala.pipeline.decision_tasks import newest
from nyala.pipeline.decode import RowDecoder, WriterSchema
from nyala.pipeline.framing import Framing, wrap
from nyala.pipeline.history import fold
from nyala.pipeline.plan_tasks import newest_reports
from nyala.pipeline.row_schema import row_schema_json
from nyala.replica.decision_executor import Unusable, read_record
from nyala.replica.master.kafka.kafka_state import KafkaState
from nyala.replica.master.kafka.proposals import Proposals
from nyala.replica.policy import view_of_reports
from nyala.replica.rpc import decision_to_pb
from nyala.replica.types import Decision, EventKind, HistoryEvent, OpId, Outcome, Proposal, Report, Result, SystemClock
from tests.formats import test_topic_formats as golden
from tests.fuzz.sessions import pure
from tests.fuzz.spoil import spoilt
from tests.fuzz.spoil_avro import Writer, spoilt_datum
from tests.fuzz.target import Broken, Target
from tests.harness.row_keys import encode_key


def pack(key: bytes | None, value: bytes) -> bytes:
    """Return an input: one record."""
    return b"\xff" + value if key is None else bytes([min(len(key), 254)]) + key[:254] + value


def unpack(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return (key, value) of an input; an input without a byte has neither."""
    if not data:
        return None, None
    size = data[0]
    return (None, data[1:]) if size == 255 else (data[1 : 1 + size], data[1 + size :])


def _spoilt_record(rng: random.Random, data: Sequence[golden.Datum]) -> bytes:
    """Return a record of that topic, its value changed by its schema, and now and then its key."""
    one = rng.choice(data)
    key: bytes | None = one.key if rng.random() < 0.7 else rng.choice((None, b"", b"\xff\xfe", spoilt(one.key, rng)))
    return pack(key, spoilt_datum(one.schema, one.fields, rng))


def _read(kind: Any, data: bytes) -> object:
    """Read a record as every reader of a masters' topic does, and use it as each of them would."""
    key, value = unpack(data)
    found = read_record(kind, key, value)
    if isinstance(found, Unusable):
        return found.fault
    if isinstance(found, Report):
        return view_of_reports([found], golden.AT_US)
    if isinstance(found, Decision):
        return decision_to_pb(found, golden.UUID_A).SerializeToString()
    return found


def _proposal(data: bytes) -> object:
    """Return the master's answer: every record has one."""
    key, value = unpack(data)
    state = KafkaState(SystemClock())
    proposals = Proposals(_considered, state, lambda: True)
    record = SimpleNamespace(topic="proposals", partition=0, offset=7, key=key, value=value)
    outcome = proposals.outcome_of(record)
    if outcome is None or len(schemas.encode_record(outcome)) > 16 << 10:
        raise Broken(f"a proposal has no answer, or a long one: {outcome!r}")
    texts = (outcome.subject_id, outcome.plan_id, outcome.tablet_id, outcome.message)
    if not all(text.isprintable() for text in texts):
        raise Broken(f"an answer that cannot be shown: {texts!r}")
    return outcome.result, _read(Proposal, data)


def _considered(proposal: Proposal) -> Outcome:
    """Refuse whatever can be read, by the proposal's own ids."""
    return Outcome(
        subject_id=proposal.proposal_id,
        plan_id=proposal.plan_id,
        tablet_id=proposal.tablet_id,
        result=Result.REFUSED,
        code=0,
        message=proposal.reason,
    )


def _decision(data: bytes) -> object:
    """Return the executor's choice among a record and an honest one of another tablet: the honest one is in it."""
    key, value = unpack(data)
    honest = golden.DATA["decision_change"]
    told: list[str] = []
    other = honest.fields | {"tablet_id": "honest"}
    records = [(b"honest", schemas.encode("decision", other), 1), (key, value, 2)]
    chosen = newest(records, {}, term_max=1000, skip=lambda offset, why: told.append(why))
    if "honest" not in {each.tablet_id for each in chosen} and key != b"honest":
        raise Broken(f"an honest decision is lost beside this record: {chosen}")
    if not all(why.isprintable() and len(why) < 4096 for why in told):
        raise Broken(f"a reason that cannot be shown: {told}")
    return len(chosen), _read(Decision, data)


def _report(data: bytes) -> object:
    """Return the last report of each key: an honest one stays beside the record."""
    key, value = unpack(data)
    honest = golden.DATA["report_server"]
    rows = [(honest.key, schemas.encode("report", honest.fields), 1), (key, value, 2)]
    kept = [report for some in newest_reports(rows) for report in some]
    if read_record(Report, *rows[0][:2]) not in kept and key != honest.key:
        raise Broken("an honest report is lost beside this record")
    return len(kept), _read(Report, data)


def _history(data: bytes) -> object:
    """Return what a replay says of an event, and of an honest one of another tablet, which is told whatever it is."""
    honest = HistoryEvent(kind=EventKind.CONFIG, tablet_id="honest", catalog_opid=OpId(1, 1), tablets=1, at_us=1)
    found = read_record(HistoryEvent, *unpack(data))
    if isinstance(found, Unusable):
        return found.fault
    replayed = fold([found, honest])
    if found.tablet_id != "honest" and "honest" not in replayed.configs:
        raise Broken(f"an honest event is lost beside this one: {replayed}")
    return len(replayed.configs), found.decision, story([event_of(found, found.tablet_id, found.at_us)])


def _letter(data: bytes) -> object:
    key, value = unpack(data)
    return letter_of(SimpleNamespace(key=key, value=value, topic="t", partition=0, offset=1, timestamp=1)).foreign


class _Rows:
    """A record of a table's topic between two honest ones, which are rows whatever it is."""

    def __init__(self, framing: Framing) -> None:
        self._writer = row_schema_json(golden.SCHEMA)
        self._key = encode_key(golden.SCHEMA, golden.ROW)
        self.seeds = []
        for schema_json, row in golden.ROWS.values():
            datum = golden._event(schema_json, row)[10:]
            parsed = schemas.parse_json(schema_json)
            head = wrap(framing, b"", fingerprint=schemas.fingerprint64(parsed), registry_id=1)
            self.seeds.append((head, parsed, datum))
            if framing is not Framing.SINGLE_OBJECT:
                break
        self._honest = pack(self._key, self.seeds[0][0] + self.seeds[0][2])
        writers = [WriterSchema(text, 1) for text, _ in list(golden.ROWS.values())[: len(self.seeds)]]
        bare = self._writer if framing is Framing.BARE else ""
        self._decoder = RowDecoder(golden.SCHEMA, framing, writers, bare_schema=bare)
        self._rows = self._decoded([self._honest])

    def packed(self) -> list[bytes]:
        return [pack(self._key, head + datum) for head, _, datum in self.seeds]

    def mutate(self, rng: random.Random) -> bytes:
        head, parsed, datum = rng.choice(self.seeds)
        key: bytes | None = self._key if rng.random() < 0.8 else rng.choice((None, b"", spoilt(self._key, rng)))
        if rng.random() < 0.5:
            return pack(key, spoilt(head + datum, rng))
        row = fastavro.schemaless_reader(io.BytesIO(datum), parsed, None, return_record_name=False)
        return pack(key, head + Writer(rng, rng.choice((0.02, 0.1, 0.3))).write(parsed, _plain(row)))

    def _decoded(self, records: list[bytes]) -> Any:
        keys, values = zip(*map(unpack, records), strict=True)
        offsets = np.arange(len(records), dtype=np.int64)
        return self._decoder.decode(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), offsets)

    def read(self, data: bytes) -> object:
        decoded = self._decoded([self._honest, data, self._honest])
        (honest,) = self._rows.batches
        names, rows = honest.schema.names[:-1], {}
        for batch in decoded.batches:
            offsets = batch.column(batch.num_columns - 1).to_pylist()
            rows |= {offset: batch.slice(pos, 1) for pos, offset in enumerate(offsets)}
        faulty = {fault.offset for fault in decoded.faults}
        if faulty | set(rows) != {0, 1, 2} or faulty & set(rows):
            raise Broken(f"each record is a row or a fault: rows at {sorted(rows)}, faults at {sorted(faulty)}")
        for pos in (0, 2):
            if not rows[pos].select(names).equals(honest.select(names)):
                raise Broken(f"the honest row {pos} became {rows[pos].to_pylist()}")
        return sorted(faulty)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with dates, times and decimals as Avro has them."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dt.datetime):
            value = int((value - epoch).total_seconds() * 1_000_000)
        elif isinstance(value, dt.date):
            value = (value - epoch.date()).days
        elif isinstance(value, Decimal):
            number = int(value.scaleb(-int(value.as_tuple().exponent)))
            value = number.to_bytes(max(1, (number.bit_length() + 8) // 8), "big", signed=True)
        out[name] = value
    return out


def targets() -> list[Target]:
    """Return one target for every topic."""
    by_topic = {
        "proposals": (_proposal, ["proposal"]),
        "decisions": (_decision, ["decision_change", "decision_transfer"]),
        "outcomes": (partial(_read, Outcome), ["outcome"]),
        "history": (_history, ["history_config", "history_decided", "history_snapshot_ended"]),
        "reports": (_report, ["report_tablet", "report_server"]),
        "dead-letters": (_letter, ["dead_letter"]),
    }
    found = []
    for topic, (read, names) in by_topic.items():
        data = [golden.DATA[name] for name in names]
        seeds = [pack(d.key, schemas.encode(d.schema, d.fields)) for d in data]
        found.append(pure(f"topic/{topic}", seeds, partial(_spoilt_record, data=data), read))
    for framing in Framing:
        rows = _Rows(framing)
        found.append(pure(f"topic/writes-{framing.value}", rows.packed(), rows.mutate, rows.read, brief=200))
    return found
