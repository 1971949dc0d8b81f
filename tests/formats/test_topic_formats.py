"""Records of every topic as version 1 wrote them: producers, masters and jobs of other builds stand on a topic's ends.

`python -m tests.formats.test_topic_formats` writes the records that are missing, and never touches one that is there.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from nyala import schemas
from nyala.pipeline.dead_letter_producer import letter_key
from nyala.pipeline.dead_letter_reader import letter_of
from nyala.pipeline.decision_tasks import newest
from nyala.pipeline.decode import RowDecoder, WriterSchema
from nyala.pipeline.framing import Framing, wrap
from nyala.pipeline.rebalance import proposal_of
from nyala.pipeline.row_schema import row_schema_json
from nyala.replica.policy import Health, Move, MoveKind, view_of_reports
from nyala.replica.rows import Column, ColumnType, RowOp, SourceKey, TableSchema
from nyala.replica.types import (
    Action,
    Address,
    Code,
    ConfigEdit,
    Decision,
    EditKind,
    Member,
    OpId,
    Outcome,
    Report,
    Result,
    RowCode,
)
from tests.harness.former_build import former_build
from tests.harness.row_keys import encode_key

GOLDEN = Path(__file__).parent / "golden" / "topics_v1"
TABLET, TABLE, PLAN = "golden", "t" * 32, "p" * 32
UUID_A, UUID_B, UUID_C = "a" * 32, "b" * 32, "c" * 32
OPID = {"term": 3, "index": 400}
AT_US = 1_700_000_000_000_000
SOURCE = SourceKey("kafka", "topic", 4)


class Datum(NamedTuple):
    """A record of a topic: the schema and the fields of its value, and its Kafka key."""

    schema: str
    key: bytes
    fields: dict[str, Any]


def _member(uuid: str, *, votes: bool, promote: bool = False, holds_data: bool = True) -> dict[str, Any]:
    address = {"host": f"{uuid[:1]}.example", "port": 7050}
    marks = {"votes": votes, "promote": promote, "holds_data": holds_data, "replace": False}
    return {"uuid": uuid, "addresses": [address], **marks, "reserved": b""}


def _replica(uuid: str, *, leads: bool = False, health: str = "HEALTHY") -> dict[str, Any]:
    place = {"uuid": uuid, "address": f"{uuid[:1]}.example:7050", "location": "/rack"}
    marks = {"votes": True, "promote": False, "replace": not leads, "is_leader": leads}
    return {**place, **marks, "health": health, "data_state": 2, "bytes_on_disk": 5 << 30, "rows": 300}


REPORT = {
    "tablet_id": "", "table_id": "", "table_name": "", "range_pos": 0, "bucket": 0, "replication_factor": 0,
    "config_opid": {"term": 0, "index": 0}, "pending_change": False, "leader_uuid": "", "term": 0, "replicas": [],
    "server_uuid": "", "server_address": "", "alive": True, "location": "", "catalog_term": 9, "at_us": AT_US,
    "numbers": {},
}  # fmt: skip
DECISION = {
    "tablet_id": TABLET, "table_id": TABLE, "catalog_term": 9, "version": 2, "action": "CHANGE_CONFIG", "edits": [],
    "target_uuid": "", "config_opid": OPID, "deadline_us": AT_US, "reason": "a better place", "plan_id": PLAN,
    "leader_uuid": UUID_A, "leader_address": "a.example:7050", "reserved": b"",
}  # fmt: skip
EDITS = [
    {"kind": "add", "member": _member(UUID_C, votes=False, promote=True)},
    {"kind": "remove", "member": _member(UUID_B, votes=True)},
    {"kind": "change", "member": _member(UUID_A, votes=True, promote=True, holds_data=False)},
]
HISTORY = {
    "tablet_id": TABLET, "table_id": TABLE, "catalog_opid": {"term": 0, "index": 0}, "after": {"term": 0, "index": 0},
    "tablets": 0, "at_us": AT_US, "by": "", "snapshot_id": "", "config_opid": {"term": 0, "index": 0}, "members": [],
    "decision_term": 0, "decision_version": 0, "unsafe": False, "edits": [], "to_uuid": "", "plan_id": "", "reason": "",
    "reserved": b"",
}  # fmt: skip
DATA: dict[str, Datum] = {
    "proposal": Datum("proposal", b"golden", {
        "proposal_id": f"{PLAN}/{TABLET}", "plan_id": PLAN, "tablet_id": TABLET, "wanted": "MOVE_REPLICA",
        "from_uuid": UUID_B, "to_uuid": UUID_C, "config_opid": OPID, "deadline_us": AT_US, "reason": "a better place",
        "reserved": b"",
    }),
    "decision_change": Datum("decision", b"golden", DECISION | {"edits": EDITS}),
    "decision_transfer": Datum("decision", b"golden", DECISION | {
        "action": "TRANSFER_LEADERSHIP", "target_uuid": UUID_B, "plan_id": "", "leader_address": "",
    }),
    "outcome": Datum("outcome", b"golden", {
        "subject": "DECISION", "subject_id": "golden@9.2", "plan_id": PLAN, "tablet_id": TABLET, "result": "FAILED",
        "code": int(Code.UNAVAILABLE), "message": "nobody leads", "at_us": AT_US, "catalog_term": 9, "version": 2,
        "executor": "spark", "reserved": b"",
    }),
    "report_tablet": Datum("report", b"golden", REPORT | {
        "tablet_id": TABLET, "table_id": TABLE, "table_name": "flights", "range_pos": 1, "bucket": 2,
        "replication_factor": 3, "config_opid": OPID, "pending_change": True, "leader_uuid": UUID_A, "term": 3,
        "replicas": [_replica(UUID_A, leads=True), _replica(UUID_B, health="FAILED")],
    }),
    "report_server": Datum("report", f"server:{UUID_A}".encode(), REPORT | {
        "server_uuid": UUID_A, "server_address": "a.example:7050", "alive": False, "location": "/rack",
        "numbers": {"tablets_max": 1000},
    }),
    "report_tablet_load": Datum("report", b"golden", REPORT | {
        "tablet_id": TABLET, "table_id": TABLE, "table_name": "flights", "replication_factor": 3, "config_opid": OPID,
        "replicas": [_replica(UUID_A, leads=True)],
        "numbers": {"again_within_s": 600, "cluster": 1 << 59, "write_rows_per_s": 70, "read_rows_per_s": 9},
    }),
    "report_server_whole": Datum("report", f"server:{UUID_A}".encode(), REPORT | {
        "server_uuid": UUID_A, "server_address": "a.example:7050", "location": "/dc/rack",
        "numbers": {
            "again_within_s": 60, "cluster": 1 << 59, "servers": 1000, "tablets": 333_000, "tablets_max": 1000,
            "copies_failing": 2, "avoided": 1, "retired": 1, "maintenance": 1, "quiescing": 1,
            "disk_bytes_free": 1 << 40,
        },
    }),
    "history_config": Datum("history", b"golden", HISTORY | {
        "kind": "CONFIG", "catalog_opid": {"term": 9, "index": 70}, "after": {"term": 9, "index": 66}, "tablets": 2,
        "config_opid": OPID, "members": [_member(UUID_A, votes=True), _member(UUID_C, votes=False, promote=True)],
        "decision_term": 9, "decision_version": 2, "unsafe": True,
    }),
    "history_decided": Datum("history", b"golden", HISTORY | {
        "kind": "DECIDED", "by": UUID_A, "config_opid": OPID, "decision_term": 9, "decision_version": 2, "edits": EDITS,
        "plan_id": PLAN, "reason": "a better place",
    }),
    "history_snapshot_ended": Datum("history", b"", HISTORY | {
        "kind": "SNAPSHOT_ENDED", "tablet_id": "", "table_id": "", "catalog_opid": {"term": 9, "index": 70},
        "tablets": 333_000, "by": UUID_A, "snapshot_id": "9.70",
    }),
    "dead_letter": Datum("dead_letter", letter_key(SOURCE, 77), {
        "table": "flights", "table_id": TABLE, "cluster_id": "kafka", "topic": "writes.flights", "topic_id": "topic",
        "kafka_partition": 4, "kafka_offset": 77, "generation": 1, "code": int(RowCode.WRONG_TYPE),
        "reason": "WRONG_TYPE", "column": "carrier", "key": b"\x02", "value": b"\xc3\x01", "op_header": None,
        "at_us": AT_US, "reserved": b"",
    }),
}  # fmt: skip

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="carrier", type=ColumnType.STRING, nullable=False),
        Column(id=2, name="flight", type=ColumnType.INT32, nullable=False),
        Column(id=3, name="bool", type=ColumnType.BOOL),
        Column(id=4, name="int8", type=ColumnType.INT8),
        Column(id=5, name="int64", type=ColumnType.INT64),
        Column(id=6, name="float", type=ColumnType.FLOAT),
        Column(id=7, name="double", type=ColumnType.DOUBLE),
        Column(id=8, name="decimal", type=ColumnType.DECIMAL, precision=9, scale=2),
        Column(id=9, name="binary", type=ColumnType.BINARY),
        Column(id=10, name="date", type=ColumnType.DATE),
        Column(id=11, name="timestamp", type=ColumnType.TIMESTAMP),
        Column(id=12, name="none", type=ColumnType.INT16),
    ),
    ("flight", "carrier"),
)
ROW = {
    "carrier": "Ünïted", "flight": -15, "bool": True, "int8": -128, "int64": 1 << 62, "float": 0.5, "double": 0.1,
    "decimal": Decimal("-12345.67"), "binary": b"\x00\xff", "date": dt.date(2013, 1, 1),
    "timestamp": dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC), "none": None,
}  # fmt: skip
ROWS = {"row_event": (row_schema_json(SCHEMA), ROW), "row_event_part": (row_schema_json(SCHEMA, ["int8"]), ROW)}
"""A whole row, and one of which only the key and a column are told."""


def _golden(name: str) -> tuple[bytes, bytes]:
    """(key, value) as they stand on a topic."""
    return (GOLDEN / f"{name}.key").read_bytes(), (GOLDEN / f"{name}.value").read_bytes()


def _event(writer_json: str, row: dict[str, Any]) -> bytes:
    writer, out = schemas.parse_json(writer_json), io.BytesIO()
    fastavro.schemaless_writer(out, writer, {**row, "op": "UPDATE"})
    return wrap(Framing.SINGLE_OBJECT, out.getvalue(), fingerprint=schemas.fingerprint64(writer))


@pytest.mark.parametrize("name", sorted(DATA))
def test_record_of_version_1_reads_back(name: str) -> None:
    """Goal: masters and jobs of different builds understand each other. Method: decode the golden record; encode the
    same anew."""
    key, value = _golden(name)
    assert (key, schemas.decode(DATA[name].schema, value)) == (DATA[name].key, DATA[name].fields)
    assert schemas.encode(DATA[name].schema, DATA[name].fields) == value


@pytest.mark.parametrize("name", sorted(ROWS))
def test_row_event_of_version_1_is_a_row(name: str) -> None:
    """Goal: what producers of any build published stays readable, also where the catalog has no schema for it. Method:
    the golden event is decoded by the table's schema alone, or with its writer's; the same row is published anew."""
    key, value = _golden(name)
    writer_json, row = ROWS[name]
    assert (encode_key(SCHEMA, row), _event(writer_json, row)) == (key, value)
    whole = name == "row_event"
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [] if whole else [WriterSchema(writer_json)])
    decoded = decoder.decode(pa.array([key]), pa.array([value]), np.array([5]))
    assert decoded.faults == []
    (found,) = [each for batch in decoded.batches for each in batch.to_pylist()]
    told = row if whole else {name: row[name] for name in ("carrier", "flight", "int8")}
    assert found == {**told, "__op": RowOp.UPDATE, "__offset": 5}


def test_records_of_version_1_are_what_the_jobs_write() -> None:
    """Goal: no field is put elsewhere on its way into a record. Method: the plan's move, the policy's decisions and the
    end of one, each turned into a record by who publishes it, give the golden bytes."""
    move = Move(
        kind=MoveKind.REPLICA, tablet_id=TABLET, table_id=TABLE, from_uuid=UUID_B, to_uuid=UUID_C,
        config_opid=OpId(**OPID), bytes=7, reason="a better place",
    )  # fmt: skip
    assert schemas.encode_record(proposal_of(PLAN, move, AT_US)) == _golden("proposal")[1]
    edits = tuple(ConfigEdit(EditKind(e["kind"]), _as_member(e["member"])) for e in EDITS)
    needed = Decision(
        tablet_id=TABLET, table_id=TABLE, action=Action.CHANGE_CONFIG, edits=edits, config_opid=OpId(**OPID),
        leader_uuid=UUID_A, catalog_term=9, reason="a better place", plan_id=PLAN, version=2, deadline_us=AT_US,
        leader_address="a.example:7050",
    )  # fmt: skip
    assert schemas.encode_record(needed) == _golden("decision_change")[1]
    ended = Outcome(
        subject_id="golden@9.2", tablet_id=TABLET, catalog_term=9, version=2, plan_id=PLAN, result=Result.FAILED,
        code=Code.UNAVAILABLE, message="nobody leads", executor="spark", at_us=AT_US,
    )  # fmt: skip
    assert schemas.encode_record(ended) == _golden("outcome")[1]
    for name in ("report_tablet", "report_server"):
        assert schemas.encode_record(schemas.from_avro(Report, DATA[name].fields)) == _golden(name)[1]


def test_reports_of_today_are_read_by_the_former_build() -> None:
    """Goal: a rebalance job of 0.2.0 plans with reports of this version, whose further numbers it leaves out. Method:
    its reader gets the golden records that have them, and its view is made."""
    names = ("report_tablet_load", "report_server_whole")
    told = [[part.hex() for part in _golden(name)] for name in names]
    code = (
        "import json, sys; from nyala.replica.decision_executor import read_record;"
        "from nyala.replica.policy import view_of_reports; from nyala.replica.types import Report, __version__;"
        "told = [[bytes.fromhex(part) for part in pair] for pair in json.load(sys.stdin)];"
        "view = view_of_reports([read_record(Report, *pair) for pair in told], 9);"
        "print(__version__, [(s.uuid, s.tablets_max, s.location) for s in view.servers],"
        "[(t.tablet_id, t.bytes_on_disk) for t in view.tablets])"
    )
    environment = {**os.environ, **former_build()}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(told),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split(maxsplit=1) == ["0.2.0", f"[('{UUID_A}', 1000, '/dc/rack')] [('{TABLET}', {5 << 30})]\n"]


def _as_member(fields: dict[str, Any]) -> Member:
    addresses = tuple(Address(a["host"], a["port"]) for a in fields["addresses"])
    marks = {name: fields[name] for name in ("votes", "promote", "holds_data", "replace")}
    return Member(fields["uuid"], addresses, **marks)


def test_records_of_version_1_are_what_the_jobs_read() -> None:
    """Goal: old decisions, reports and letters are still taken for what they are. Method: the readers of each topic get
    the golden records: both decisions are in force in turn, a view has the tablet and its server, a letter is ours."""
    for name in ("decision_change", "decision_transfer"):
        assert newest([(*_golden(name), 0)], {}) == [schemas.from_avro(Decision, DATA[name].fields)]
    reports = [
        schemas.from_avro(Report, schemas.decode("report", _golden(name)[1]))
        for name in ("report_tablet", "report_server")
    ]
    view = view_of_reports(reports, AT_US)
    (tablet,), (server,) = view.tablets, view.servers
    assert (tablet.tablet_id, tablet.leader_uuid, tablet.pending) == (TABLET, UUID_A, True)
    assert (tablet.health_of(UUID_A), tablet.health_of(UUID_B)) == (Health.HEALTHY, Health.FAILED)
    assert (server.uuid, server.alive, server.tablets_max) == (UUID_A, False, 1000)
    key, value = _golden("dead_letter")
    letter = letter_of(SimpleNamespace(key=key, value=value))
    assert (letter.foreign, letter.letter_key, letter.record) == (False, key, DATA["dead_letter"].fields)


def _write_missing() -> None:
    GOLDEN.mkdir(exist_ok=True)
    found = {name: (d.key, schemas.encode(d.schema, d.fields)) for name, d in DATA.items()}
    found |= {name: (encode_key(SCHEMA, row), _event(writer, row)) for name, (writer, row) in ROWS.items()}
    for name, (key, value) in found.items():
        for path, data in ((GOLDEN / f"{name}.key", key), (GOLDEN / f"{name}.value", value)):
            if not path.exists():
                path.write_bytes(data)


if __name__ == "__main__":
    _write_missing()
