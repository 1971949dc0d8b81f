"""Refusals of the user's calls have four parts: what was wrong, the value, what was applied, and what to do."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.argument_errors import valid, valid_text
from nyala.cluster import partitions_of_topic
from nyala.definitions import partition_of, schema_of
from nyala.expressions import as_condition, bound, column_of, parse_condition
from nyala.replica.client import ScanSpec
from nyala.replica.client.channels import Channels
from nyala.replica.client.client import parse_masters
from nyala.replica.client.locator import Locator
from nyala.replica.client.scans import check_spec
from nyala.replica.rows import RowOp
from nyala.replica.types import Address, Applied, Code, Refused, check_table_name, check_whole
from nyala.table import hybrid_time_of, staleness_us_of
from nyala.writing import as_table, checked_on_error, conform
from tests.harness.rows import SCHEMA
from tests.unit.client.test_client_row_errors import TABLE

ROOT = Path(__file__).resolve().parents[3]
C = nyala.col("k")


def closed() -> object:
    channels = Channels()
    channels.close()
    return channels.master(Address("h", 1))


def rows(op: RowOp = RowOp.INSERT, **columns: list[object]) -> object:
    return conform(pa.table(columns), SCHEMA, op)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: schema_of([("a", "int64")], ()), "a"),
    (lambda: schema_of(["a"], "a"), "'a'"),  # type: ignore[list-item]
    (lambda: schema_of({"a": "decimal"}, "a"), "decimal"),
    (lambda: schema_of({"a": "int46"}, "a"), "int46"),
    (lambda: schema_of({"a": "int64"}, "b"), "'b'"),
    (
        lambda: partition_of(SCHEMA, hash_buckets=2, hash_columns=["nothing"], range_column="", range_splits=()),
        "nothing",
    ),
    (lambda: partitions_of_topic(0), "0"),
    (lambda: nyala.connect("  "), "'  '"),
    (lambda: nyala.connect("nowhere"), "nowhere"),
    (lambda: nyala.col(7), "7"),  # type: ignore[arg-type]
    (lambda: C == None, "k"),  # noqa: E711
    (lambda: float("nan") < C, "k"),
    (lambda: nyala.col("v") == C, "v"),
    (lambda: C.isin(7), "7"),  # type: ignore[arg-type]
    (lambda: C.isin([None]), "k"),
    (lambda: C.isin([float("nan")]), "k"),
    (lambda: as_condition(7), "7"),  # type: ignore[arg-type]
    (lambda: as_condition(C), "k"),  # type: ignore[arg-type]
    (lambda: parse_condition("k > OR"), "'OR'"),
    (lambda: bound(C > "seven", SCHEMA), "seven"),
    (lambda: column_of(SCHEMA, "w"), "'w'"),
    (lambda: column_of(SCHEMA, "w" * 5000), "www... (5000 characters)'; name one"),
    (lambda: valid(check_whole, 9, "replication_factor=", 1, 7), "9"),
    (lambda: valid_text(check_table_name, 7), "7"),
    (lambda: valid_text(check_table_name, "a b"), "a b"),
    (lambda: hybrid_time_of("now"), "now"),  # type: ignore[arg-type]
    (lambda: hybrid_time_of(1), "1"),
    (lambda: staleness_us_of("soon"), "soon"),  # type: ignore[arg-type]
    (lambda: staleness_us_of(-1), "-1"),
    (lambda: checked_on_error("Raise"), "Raise"),
    (lambda: as_table(7, SCHEMA), "int"),
    (lambda: as_table([{"k": 1}, 7], SCHEMA), "7"),
    (lambda: as_table([{"k": 1}, {"v": "x"}], SCHEMA), "row=1"),
    (lambda: rows(v=["x"]), "k"),
    (lambda: rows(k=[1], w=[2]), "'w'"),
    (lambda: rows(k=[None]), "row=0"),
    (lambda: rows(k=["seven"]), "seven"),
    (lambda: rows(RowOp.UPDATE, k=[1]), "k"),
    (lambda: parse_masters("nowhere"), "nowhere"),
    (lambda: check_spec(TABLE, ScanSpec(limit=-3)), "-3"),
    (lambda: check_spec(TABLE, ScanSpec(staleness_us=1)), "1e-06"),
    (lambda: Locator(lambda name: []).replicas("t7", random.Random(1)), "t7"),
    (closed, "h:1"),
]


@pytest.mark.parametrize(("call", "value"), WRONG)
def test_refusal_has_its_four_parts(call: Callable[[], object], value: str) -> None:
    """IN-82. Goal: each error tells what was wrong, with which value, that nothing was applied, and what to do. Method:
    each kind of mistake that a caller can make."""
    with pytest.raises(Refused) as caught:
        call()
    error = caught.value
    assert value in str(error), str(error)
    assert error.applied is Applied.NOT_APPLIED and str(error).endswith("; nothing was applied")
    wrong, mark, todo = error.what.partition("; ")
    assert wrong and mark and todo, f"{error} does not say what to do"


def calls(*names: str, folders: Sequence[str] = ("replica/api", "replica/client")) -> Iterator[tuple[str, ast.Call]]:
    """Calls of these names in the user's sources, or those of other folders, with their place."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_each_mistake_says_what_to_do() -> None:
    """IN-82. Goal: the next message has its parts, too. Method: each mistake in the sources is made of what was wrong
    and of what to do; each other refusal with a text of its own has both in it."""
    found = []
    assert len(list(calls("invalid_argument"))) > 20
    for place, call in calls("invalid_argument"):
        if len([a for a in call.args if not isinstance(a, ast.Starred)]) != 2:
            found.append(place)
    for place, call in calls("Refused", "NotApplied"):
        text = call.args[1] if len(call.args) > 1 else None
        if isinstance(text, ast.Constant) and not any(mark in str(text.value) for mark in ("; ", ": ")):
            found.append(f"{place} {text.value}")
    assert found == []


def test_refusal_of_what_is_not_there_says_how_to_see_what_is() -> None:
    """Goal: a wrong name of a table, tablet, server or source ends no command without a next step. Method: each such
    refusal in the sources of masters and tools has one."""
    texts = {
        place: str(call.args[1].value)
        for place, call in calls("Refused", folders=("replica/master", "replica/tools"))
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) and "no such" in str(call.args[1].value)
    }
    assert len(texts) > 7 and [place for place, text in texts.items() if "; " not in text] == []


def test_no_consumer_without_a_group_commits() -> None:
    """Goal: no command prints a warning of Kafka's library, which a user cannot judge: a consumer without a group that
    is to commit prints one. Method: each consumer in the sources says that it does not."""
    found = list(calls("KafkaConsumer", folders=("replica", "pipeline", "infra", "jobs")))
    assert len(found) > 5
    silent = [place for place, call in found if "enable_auto_commit=False" not in ast.unparse(call)]
    assert silent == []


def test_closed_client_is_refused_as_any_call_is() -> None:
    """IN-82. Goal: no raw exception from a client that was closed. Method: ask it for a connection."""
    with pytest.raises(Refused, match="this client is closed; connect anew") as caught:
        closed()
    assert caught.value.code is Code.ILLEGAL_STATE
