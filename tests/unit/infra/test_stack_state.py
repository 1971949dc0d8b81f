"""The state that a stack keeps between two runs: its addresses, through damage too; and what it does if one is
taken."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nyala.infra.cli.stack import _kafka_lines
from nyala.infra.local import StackError, StackOptions, Supervisor, prepare, start_detached, supervisor
from nyala.infra.local.ports import Ports
from nyala.infra.local.state import earlier_addresses
from nyala.replica.rpc import pb, pb_grpc
from tests.harness.played_grpc import listening
from tests.unit.infra.test_preflight import fake_java


def test_addresses_come_from_the_children_when_the_state_is_lost(tmp_path: Path) -> None:
    """Goal: restarted servers keep their addresses. Method: ready files alone, then with a state."""
    (tmp_path / "server-1.ready").write_text(json.dumps({"address": "127.0.0.1:7001", "uuid": "u"}))
    (tmp_path / "server-2.ready").write_text("")
    (tmp_path / "server-3.ready").write_text(json.dumps({"address": "127.0.0.1:70000"}))
    assert earlier_addresses(tmp_path) == {"server-1": "127.0.0.1:7001"}
    (tmp_path / "state.json").write_text(json.dumps({"addresses": {"server-1": "127.0.0.1:7009", "server-2": "junk"}}))
    assert earlier_addresses(tmp_path) == {"server-1": "127.0.0.1:7009"}


def test_stack_whose_port_is_taken_says_whose_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one line names child, port and remedy; the addresses are kept. Method: hold the port of an earlier run."""
    monkeypatch.setattr(supervisor, "PORT_WAIT_S", 0.0)
    with Ports() as ports:
        address = ports.free_address()
        host, _, port = address.rpartition(":")
        state = json.dumps({"addresses": {"server-2": address, "master-1": ports.free_address()}})
        (tmp_path / "state.json").write_text(state)
        with socket.create_server((host, int(port))):
            with pytest.raises(StackError, match=rf"{address}, where server-2 was, is taken.*ss -ltnp.*--dir"):
                Supervisor(tmp_path, StackOptions(kafka=False)).start()
            assert not Ports().reserve(address)
        with Ports() as later:
            assert later.reserve(address)
    assert (tmp_path / "state.json").read_text() == state


def test_state_is_written_whole_whoever_notes_something_meanwhile(tmp_path: Path) -> None:
    """Goal: the thread that owns the children does not end over its state. Method: several threads note things; each
    gets through, and the file has the last word of each."""
    stack = Supervisor(tmp_path, StackOptions(kafka=False))
    notes = 200

    def note(name: str) -> None:
        for number in range(notes):
            stack.note(**{name: number})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note, "abcd"))
    written = json.loads((tmp_path / "state.json").read_text())
    assert [written[name] for name in "abcd"] == [notes - 1] * 4
    stack.stop()


def test_stack_that_finds_no_room_at_its_start_says_so_in_one_line(tmp_path: Path) -> None:
    """Goal: a full disk at the start is an error of one line. Method: the master's log is /dev/full."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "master-1.log").symlink_to("/dev/full")
    with pytest.raises(StackError, match=rf"^the stack in {tmp_path} cannot be started: No space left on device$"):
        Supervisor(tmp_path, StackOptions(kafka=False)).start()


@pytest.mark.parametrize("version", [11, None])
def test_stack_with_kafka_asks_for_java_before_anything_is_started(
    version: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a Java that went away or is too old is one line, at once. Method: JAVA_HOME of an old one, of nothing."""
    home = fake_java(tmp_path / "java", version).parents[1] if version else tmp_path
    monkeypatch.setenv("JAVA_HOME", str(home))
    stack = Supervisor(tmp_path / "stack", StackOptions())
    with pytest.raises(StackError, match=r"^no Kafka broker can be started: .*Java 17") as raised:
        stack.start()
    assert len(str(raised.value).splitlines()) == 1
    assert stack.children == {} and not (tmp_path / "stack" / "state.json").exists()


def test_stack_with_kafka_asks_for_its_jars_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-70. Goal: jars that cannot be had are one line that names the remedy, and leave nothing behind. Method: a
    cache that cannot be written, in this process and for a detached stack; a stack without a broker needs no jars."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("NYALA_CACHE", str(tmp_path / "file"))
    told: list[str] = []
    for start in (
        lambda: Supervisor(tmp_path / "stack", StackOptions()).start(told.append),
        lambda: start_detached(tmp_path / "stack", StackOptions(), told.append),
    ):
        with pytest.raises(StackError, match=r"^no Kafka broker .* let NYALA_CACHE .*`nyala up --no-kafka`") as raised:
            start()
        assert len(str(raised.value).splitlines()) == 1
    assert told == 2 * [f"fetching the jars of Kafka and Spark, 55 MB, into {tmp_path}/file/jars"]
    assert not (tmp_path / "stack").exists()
    prepare(StackOptions(kafka=False))
    prepare(StackOptions(kafka_bootstrap="127.0.0.1:9092"))


class FaringMaster(pb_grpc.MasterServiceServicer):
    """A master whose Kafka is away."""

    def Status(self, request: Any, context: Any) -> Any:
        away = pb.KafkaChannel(topic="reports", doing="publishes", link="reconnecting", failures=2)
        return pb.MasterStatusReply(uuid="m", kafka_named=True, kafka=[away])


def test_status_of_a_stack_says_how_its_masters_fare_with_kafka() -> None:
    """IN-91. Goal: `nyala status` does not show a green stack whose masters do not reach Kafka. Method: one master that
    says so, one that does not answer, one that is not ready, and a stack without Kafka."""
    with listening(FaringMaster()) as address:
        children = [
            {"name": "master-1", "state": "READY", "address": str(address)},
            {"name": "master-2", "state": "READY", "address": "127.0.0.1:1"},
            {"name": "master-3", "state": "STARTING", "address": ""},
            {"name": "server-1", "state": "READY", "address": "127.0.0.1:1"},
        ]
        first, second = _kafka_lines({"kafka": "127.0.0.1:9092", "children": children})
        assert first == "master-1: Kafka: publishes reports: reconnecting, no success yet, 2 failures"
        assert second.startswith("master-2: Kafka: not known, the master does not answer")
        assert list(_kafka_lines({"kafka": "", "children": children})) == []
