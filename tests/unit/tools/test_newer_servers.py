"""The answers of an older client, Spark job or command to a number that only a newer server knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, EnumType, IntEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from nyala import schemas
from nyala.infra.cli import cluster, copies, quarantine
from nyala.infra.cli.app import app
from nyala.pipeline.dead_letter_producer import DeadLetter, Origin, encode_letter
from nyala.replica import tools
from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rows import PartitionSpec, RowOp, SourceKey
from nyala.replica.rpc import (
    column_from_pb,
    config_to_pb,
    edit_from_pb,
    entry_from_pb,
    error_from_pb,
    message_from_pb,
    pb,
    row_errors_from_pb,
)
from nyala.replica.tools.evidence import of_status
from nyala.replica.tools.moves import COPY_OVER, COPY_UNDER_WAY
from nyala.replica.types import (
    Address,
    Code,
    DataState,
    Member,
    OpId,
    RaftConfig,
    Refused,
    RowCode,
    known_value,
    read_number,
)
from nyala.writing import advice
from tests.harness.stack import SCHEMA

ROOT = Path(__file__).resolve().parents[3]
UNKNOWN = 99
FOLDERS = ("replica", "infra", "pipeline", "jobs")
TABLET = "t" * 8
CONFIG = RaftConfig(OpId(1, 1), (Member("s" * 8, (Address("h", 1),)),))


def view() -> tools.ClusterView:
    """One replica in a data state that this build does not know."""
    handle = TableHandle("i", "t", SCHEMA, PartitionSpec(("k",), 1), 1, 0, 0, tablets=(TabletHandle(TABLET, 0, 0, 0),))
    status = pb.ReplicaStatus(tablet_id=TABLET, data_state=UNKNOWN, phase="RUNNING", role="LEADER", term=1)
    status.committed_config.CopyFrom(config_to_pb(CONFIG))
    servers = [pb.ServerInfo(uuid="s" * 8, alive=True)]
    return tools.ClusterView("c", servers, tables=[handle], replicas={TABLET: [tools.ReplicaView("s" * 8, status)]})


def replica() -> tools.ReplicaView:
    return view().replicas[TABLET][0]


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return str(caught.value)


def row_error() -> Any:
    return row_errors_from_pb([pb.RowErrorPb(offset=7, code=UNKNOWN, column="v")])[0]


def letter() -> str:
    origin = Origin("t", "i", "topic", SourceKey("c", "topic", 0), 1)
    record = schemas.decode("dead_letter", encode_letter(origin, DeadLetter(7, row_error().code, "v", b"", b"")))
    assert record["code"] == UNKNOWN
    return str(record["reason"])


TOLD: dict[str, Callable[[], str]] = {
    "row error": lambda: str(row_error()),
    "dead letter": letter,
    "replicas as a table": lambda: str(cluster._replica_rows(view())),
    "replicas for a program": lambda: tools.replica_json(replica(), 0)["data_state"],
    "cluster check": lambda: str(tools.judge(view())),
    "replicas without a checksum": lambda: str(tools.left_out(view())),
    "evidence for a recovery": lambda: of_status("s", "h:1", replica().status).data_state.name,
    "quarantine": lambda: quarantine._state(UNKNOWN),
}
REFUSED: dict[str, Callable[[], object]] = {
    "column type": lambda: column_from_pb(pb.Column(id=1, name="c", type=str(UNKNOWN))),
    "entry": lambda: entry_from_pb(pb.Entry(term=1, index=1, kind=UNKNOWN)),
}


@pytest.mark.parametrize("place", TOLD)
def test_unknown_number_of_a_newer_server_is_told(place: str) -> None:
    """IN-82. Goal: an older program shows an unknown number of a newer server, says that it is older, and goes on.
    Method: a row code and a data state that this build does not know, at every place that shows one."""
    text = TOLD[place]()
    assert re.search(rf"\b{UNKNOWN}\b", text) and "older" in text, text


@pytest.mark.parametrize("place", REFUSED)
def test_what_cannot_be_done_without_the_number_is_refused_with_it(place: str) -> None:
    """IN-82. Goal: a value whose meaning is needed and unknown is refused with its number. Method: values without whose
    meaning nothing can be read."""
    assert str(UNKNOWN) in refused(REFUSED[place])


def test_error_code_of_a_newer_server_keeps_its_text() -> None:
    """IN-82. Goal: an error with an unknown code keeps the server's text. Method: an error with an unknown code."""
    error = error_from_pb(pb.Error(code=UNKNOWN, message="the ring is open", outcome_unknown=True))
    assert error is not None and error.code is Code.ILLEGAL_STATE
    assert "the ring is open" in str(error) and str(UNKNOWN) in str(error)


def test_cancelled_copy_that_leaves_an_unknown_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-82. Goal: the command that cancels a copy reports the outcome, also with an unknown state. Method: a server's
    answer with an unknown one."""

    class Connected:
        def cancel_copy(self, *_: object) -> pb.CancelCopyReply:
            return pb.CancelCopyReply(data_state=UNKNOWN)

    @contextmanager
    def client(_: str) -> Iterator[Connected]:
        yield Connected()

    monkeypatch.setattr(copies, "client", client)
    monkeypatch.setattr(copies, "find_tablet", lambda *_: ("t", TABLET))
    monkeypatch.setattr(copies, "find_server", lambda *_: pb.ServerInfo(uuid="s" * 8))
    result = CliRunner().invoke(app, ["copy", "cancel", TABLET, "--server", "s"])
    assert result.exit_code == 0 and str(UNKNOWN) in result.output, result.output


def test_advice_on_an_unknown_reason_is_to_update() -> None:
    """IN-82. Goal: for an unknown row error the advice is to update the program, not to correct the rows. Method:
    unknown and known."""
    assert "newer server" in advice([row_error().code], RowOp.INSERT)
    assert "newer server" not in advice([RowCode.NULL_KEY], RowOp.INSERT)


def test_unknown_number_equals_nothing_that_is_known() -> None:
    """IN-82. Goal: no decision takes an unknown value for a known one. Method: every known number, one unknown."""
    for kind in (RowCode, DataState):
        assert all(read_number(kind, one) is one for one in kind)
        unknown = read_number(kind, UNKNOWN)
        assert unknown == UNKNOWN and isinstance(unknown, kind) and unknown not in list(kind)


@cache
def enums() -> dict[str, type[Enum]]:
    """Every enum of the project, by name."""
    found: dict[str, type[Enum]] = {}
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        if re.search(r"^class \w+\(\w*Enum\)", path.read_text(), re.MULTILINE):
            module = import_module(".".join(("nyala", *path.relative_to(ROOT).with_suffix("").parts)))
            found |= {
                n: v for n, v in vars(module).items() if isinstance(v, EnumType) and v.__module__ == module.__name__
            }
    return found


@given(number=st.integers(-(1 << 31), (1 << 31) - 1), text=st.text(max_size=200))
def test_value_of_any_enum_is_a_member_or_refused_or_neutral(number: int, text: str) -> None:
    """IN-82. Goal: the two functions that read what came over the wire leave nothing else. Method: every enum of the
    project, any number an int32 holds and any text: a member with just that value; or a Refused of one short line that
    says the value, and for numbers a neutral one that equals no member."""
    for kind in enums().values():
        value: int | str = number if issubclass(kind, int) else text
        members = [member for member in kind if member.value == value]
        if members:
            assert known_value(kind, value, "it") is members[0]
            continue
        error = refused(lambda kind=kind, value=value: known_value(kind, value, "the state of it"))
        assert "the state of it" in error and repr(value)[:80] in error and len(error) < 1200 and "\n" not in error
        if issubclass(kind, IntEnum):
            neutral = read_number(kind, int(value))
            assert neutral not in list(kind) and str(value) in neutral.name and "older" in neutral.name


WIRE: dict[str, Callable[[int], object]] = {
    "an append reply's code": lambda n: message_from_pb(pb.RaftMessage(append_reply=pb.AppendReply(code=n))),
    "a follower's data state": lambda n: message_from_pb(pb.RaftMessage(append_reply=pb.AppendReply(data_state=n))),
    "a vote reply's code": lambda n: message_from_pb(pb.RaftMessage(vote_reply=pb.VoteReply(code=n))),
    "an entry's kind": lambda n: entry_from_pb(pb.Entry(term=1, index=1, kind=n)),
    "an edit's kind": lambda n: edit_from_pb(pb.ConfigEdit(kind=str(n), member=pb.Member(uuid="b"))),
    "a column's type": lambda n: column_from_pb(pb.Column(id=1, name="c", type=str(n))),
    "an error's code": lambda n: error_from_pb(pb.Error(code=n, message="m")),
    "a row's code": lambda n: row_errors_from_pb([pb.RowErrorPb(offset=1, code=n)]),
}


@pytest.mark.a_third
@pytest.mark.parametrize("place", WIRE)
@given(number=st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 60))
def test_any_number_at_any_place_of_a_message_is_read_or_refused(place: str, number: int) -> None:
    """IN-82. Goal: any number in a message is read or refused, without a raw exception. Method: the conversions of
    messages, any int32."""
    try:
        WIRE[place](number)
    except Refused as error:
        assert error.code is Code.INVALID_ARGUMENT and str(number) in str(error)


FROM_OUR_OWN = {
    "replica/types/errors.py": "the two functions themselves",
    "replica/api/definitions.py": "a word of the caller's code, which an expression has matched",
    "replica/master/decisions/reconciler.py": "one enum of this build into another",
    "pipeline/decision_story.py": "a result that the codec has checked; each of them is a step",
    "pipeline/decode.py": "a code that this task's own columns hold",
    "pipeline/publish.py": "a word of the caller's code, one of those that there are",
    "replica/rpc/errors.py": "an unknown code becomes ILLEGAL_STATE with the text that came with it",
    "replica/rows/schema.py": "the JSON of a schema: ValueError becomes a Refused there",
    "replica/rows/types.py": "a member or its value, given by the code that calls",
    "replica/tablet/error_runs.py": "a superblock: ValueError becomes Corruption or a Refused where it is decoded",
    "replica/wal/format.py": "an entry of a log: LaterFormat for a kind that is not known",
}
"""Where an enum is made of a value that did not come in a message."""


def test_no_value_of_a_message_is_read_in_another_way() -> None:
    """IN-82. Goal: all code reads enums from messages by the two checked functions. Method: no source makes a member of
    an enum from an expression, but those that are named with a reason; and each of these still does."""
    known, found = enums(), set()
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known):
                continue
            if len(node.args) == 1 and not isinstance(node.args[0], ast.Constant):
                found.add(str(path.relative_to(ROOT)))
    assert found | {"replica/types/errors.py"} == set(FROM_OUR_OWN)


def test_waiting_for_a_copy_in_an_unknown_phase_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-82. Goal: `copy start --wait` does not wait for ever for a phase that only a newer server knows. Method: a
    server whose copy is in each phase that there is, then in an unknown one: the command ends, says the phase and what
    to do; the wait between two looks takes no time here."""
    started: list[str] = []

    class Connected:
        def list_copies(self, target: pb.ServerInfo) -> list[pb.CopyJob]:
            assert len(started) <= len(phases), "the command looks on and on"
            started.append(phases[min(len(started), len(phases) - 1)])
            return [pb.CopyJob(tablet_id=TABLET, source_uuid="a", target_uuid=target.uuid, phase=started[-1])]

    @contextmanager
    def client(_: str) -> Iterator[Connected]:
        yield Connected()

    phases = [*sorted(COPY_UNDER_WAY), "COPY.99"]
    monkeypatch.setattr(copies, "client", client)
    monkeypatch.setattr(copies, "LOOK_PERIOD_S", 0)
    monkeypatch.setattr(copies, "find_tablet", lambda *_: ("t", TABLET))
    monkeypatch.setattr(copies, "find_server", lambda *_: pb.ServerInfo(uuid="s" * 8))
    monkeypatch.setattr(tools, "start_copy", lambda *_: pb.ServerInfo(uuid="a"))
    result = CliRunner().invoke(app, ["copy", "start", TABLET, "--server", "s", "--wait"])
    assert result.exit_code == 1 and started == phases
    told = str(result.exception or result.output)
    assert "COPY.99" in told and "nyala copy list" in told


def test_every_phase_of_a_copy_is_known_to_who_waits_for_its_end() -> None:
    """IN-82. Goal: a phase that is added is added there, too. Method: every text that a source of copies takes for a
    phase."""
    folders = [ROOT / "replica/tablet_copy", ROOT / "replica/server/copies"]
    paths = [path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*.py"))]
    said = {phase for path in paths for phase in re.findall(r"\bphase ?= ?\"([A-Z.0-9]+)\"", path.read_text())}
    said |= {"CANCELLED", "FAILED"}
    assert said == COPY_OVER | COPY_UNDER_WAY
