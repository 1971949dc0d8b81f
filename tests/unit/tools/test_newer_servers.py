"""What an older client, Spark job or command says of a number that only a newer server knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nyala import schemas
from nyala.infra.cli import cluster, copies, quarantine
from nyala.infra.cli.app import app
from nyala.pipeline.dead_letters import DeadLetter, Origin, encode_letter
from nyala.replica import tools
from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rows import PartitionSpec, RowOp, SourceKey
from nyala.replica.rpc import column_from_pb, config_to_pb, entry_from_pb, error_from_pb, pb, row_errors_from_pb
from nyala.replica.tools.evidence import _of_status
from nyala.replica.types import Address, Code, DataState, Member, OpId, RaftConfig, Refused, RowCode, read_number
from nyala.writing import advice
from tests.harness.stack import SCHEMA

ROOT = Path(__file__).resolve().parents[3]
UNKNOWN = 99
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
    "evidence for a recovery": lambda: _of_status("s", "h:1", replica().status).data_state.name,
    "quarantine": lambda: quarantine._state(UNKNOWN),
}
REFUSED: dict[str, Callable[[], object]] = {
    "column type": lambda: column_from_pb(pb.Column(id=1, name="c", type=str(UNKNOWN))),
    "entry": lambda: entry_from_pb(pb.Entry(term=1, index=1, kind=UNKNOWN)),
}


@pytest.mark.parametrize("place", TOLD)
def test_unknown_number_of_a_newer_server_is_told(place: str) -> None:
    """IN-82. Goal: an older program goes on, and says the number and that it is older. Method: a row code and a data
    state that this build does not know, at every place that shows one."""
    text = TOLD[place]()
    assert re.search(rf"\b{UNKNOWN}\b", text) and "older" in text, text


@pytest.mark.parametrize("place", REFUSED)
def test_what_cannot_be_done_without_the_number_is_refused_with_it(place: str) -> None:
    """IN-82. Goal: no raw exception. Method: values without whose meaning nothing can be read."""
    assert str(UNKNOWN) in refused(REFUSED[place])


def test_error_code_of_a_newer_server_keeps_its_text() -> None:
    """IN-82. Goal: the newer server's own words reach the caller. Method: an error with an unknown code."""
    error = error_from_pb(pb.Error(code=UNKNOWN, message="the ring is open", outcome_unknown=True))
    assert error is not None and error.code is Code.ILLEGAL_STATE
    assert "the ring is open" in str(error) and str(UNKNOWN) in str(error)


def test_cancelled_copy_that_leaves_an_unknown_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-82. Goal: the command that cancels a copy tells what it did. Method: a server's answer with an unknown one."""

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
    """IN-82. Goal: nobody is told to correct rows whose fault this program cannot name. Method: unknown and known."""
    assert "newer server" in advice([row_error().code], RowOp.INSERT)
    assert "newer server" not in advice([RowCode.NULL_KEY], RowOp.INSERT)


def test_unknown_number_equals_nothing_that_is_known() -> None:
    """IN-82. Goal: no decision takes an unknown value for a known one. Method: every known number, one unknown."""
    for kind in (RowCode, DataState):
        assert all(read_number(kind, one) is one for one in kind)
        unknown = read_number(kind, UNKNOWN)
        assert unknown == UNKNOWN and isinstance(unknown, kind) and unknown not in list(kind)


@pytest.mark.parametrize("room", ["replica/client", "replica/api", "replica/tools", "infra", "pipeline", "jobs"])
def test_no_number_of_a_message_is_read_in_another_way(room: str) -> None:
    """IN-82. Goal: the next place is right, too. Method: no source of clients, jobs and commands makes a row code or a
    data state from a field of a message itself."""
    found = [
        f"{path}: {line.strip()}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"\b(RowCode|DataState)\([a-z_]+\.(\w+\.)*(code|data_state)\)", line)
    ]
    assert found == []
