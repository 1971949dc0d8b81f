"""Commands that Ctrl-C ends, and commands that look a name up first: one line each, which says what was done."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import nyala
from nyala.infra.cli.app import app
from nyala.infra.cli.context import ask, ask_for_name
from nyala.infra.cli.interrupted import LOOK, NothingSent, changes, words
from nyala.infra.cli.letters import _need_table
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import Code
from tests.harness.played_grpc import listening
from tests.unit.infra.test_command_imports import commands

READS = {
    "status", "env", "table list", "table describe", "table scan", "sql", "schema show", "schema list", "tablet list",
    "server list", "server quiesce status",
    "master list", "cluster check", "upgrade status", "copy list", "source list", "dead-letter list",
    "decisions list", "decisions tail", "decisions explain", "decisions replay",
    "quarantine list", "fs uuid", "local-replica list", "local-replica dump", "wal dump", "cmeta dump", "cmeta print",
    "superblock dump", "security list",
    "server run", "master run",  # the process that runs then is not this command's
}  # fmt: skip
NOTHING_SENT = "nyala: interrupted: nothing was sent\n"
INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from nyala_command import main
sys.exit(main())
"""
"""The command, with SIGINT at the moment at which it imports a module."""


class Knows(pb_grpc.MasterServiceServicer):
    """A master with no table, which interrupts the client at a CreateTable and never answers it."""

    def __init__(self) -> None:
        self.clients: queue.Queue[int] = queue.Queue()
        self.over = threading.Event()

    def ListTables(self, request: Any, context: Any) -> Any:
        return pb.ListTablesReply()

    def GetTable(self, request: Any, context: Any) -> Any:
        return pb.TableReply(error=pb.Error(code=Code.NOT_FOUND, message="no such table"))

    def CreateTable(self, request: Any, context: Any) -> Any:
        os.kill(self.clients.get(timeout=60), signal.SIGINT)
        self.over.wait(60)
        return pb.TableReply()


@pytest.fixture
def master() -> Iterator[tuple[Knows, str]]:
    """A master and its address."""
    servicer = Knows()
    with listening(servicer) as address:
        yield servicer, str(address)
        servicer.over.set()


def started(module: str, *line: str) -> subprocess.Popen[str]:
    """Return a process of a command that is interrupted when it imports this module."""
    code = INTERRUPTED.format(module=module)
    return subprocess.Popen(
        [sys.executable, "-c", code, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.a_third
@pytest.mark.parametrize("module", ["nyala", "typer", "nyala.infra.cli.app", "nyala.infra.cli.tables", "grpc"])
def test_interrupt_during_imports_is_one_line(module: str) -> None:
    """Goal: no traceback of a library, whenever it comes. Method: a process that gets SIGINT as it imports the module:
    the package, its libraries, the command, and the client of the masters."""
    process = started(module, "table", "create", "t", "-c", "id:int64", "-k", "id", "--masters", "127.0.0.1:1")
    assert process.communicate(timeout=120) == ("", NOTHING_SENT)
    assert process.returncode == 130


def test_interrupt_after_a_request_names_what_shows_it(master: tuple[Knows, str]) -> None:
    """Goal: nobody takes an interrupted change for one that was not made. Method: a master that interrupts the process
    while it waits for its table."""
    line = ["table", "create", "t", "-c", "id:int64", "-k", "id", "--no-topic", "--masters", master[1]]
    process = started("none", *line)
    master[0].clients.put(process.pid)
    told = process.communicate(timeout=120)
    assert told == ("", "nyala: interrupted: what was asked for may have been applied; `nyala table list` shows it\n")
    assert process.returncode == 130


def test_each_command_changes_something_or_reads() -> None:
    """Goal: a new command says the right thing too. Method: the table of those that change, against all commands; each
    command that it names is one."""
    names = {name for name, _ in commands()}
    assert {name for name in names if not changes(name)} == READS
    assert all(any(name == known or name.startswith(f"{known} ") for name in names) for known in LOOK)
    shown = {look.removeprefix("nyala ").split(" --")[0] for look in LOOK.values()}
    assert all(any(look.startswith(name) for name in READS | {"fs check"}) for look in shown)
    assert words("table list", KeyboardInterrupt()) == "nyala: interrupted: nothing was changed"
    assert words("table drop", NothingSent()) + "\n" == NOTHING_SENT


def test_interrupted_question_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Ctrl-C at a question is an interruption, not a no. Method: standard input that is interrupted."""

    class Interrupted:
        def readline(self, *_: Any) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    with pytest.raises(NothingSent):
        ask("remove it?", False)
    with pytest.raises(NothingSent):
        ask_for_name("t", "its name?")


@pytest.mark.a_third
@pytest.mark.parametrize("given", ["--table nope", "--table=nope"])
@pytest.mark.parametrize("job", ["ingest", "verify"])
def test_job_with_an_unknown_table_is_refused_before_spark(
    job: str, given: str, master: tuple[Knows, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a misspelt table costs a second. Method: a master without tables; nothing replaces the process."""
    monkeypatch.setattr(os, "execvpe", lambda *_: pytest.fail("the job was started"))
    line = ["job", job, "--", *given.split(), "--masters", master[1], "--kafka", "127.0.0.1:1", "--checkpoint", "c"]
    result = CliRunner().invoke(app, line)
    assert isinstance(result.exception, nyala.Refused), result.output
    assert result.exception.code is Code.NOT_FOUND and "'nope'" in str(result.exception)


def test_job_without_an_answer_says_so_and_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: masters that are away stop no job, which waits for them. Method: nobody listens; the start is recorded."""
    begun: list[Any] = []
    monkeypatch.setattr(os, "execvpe", lambda *what: begun.append(what))
    line = ["job", "ingest", "--", "--table", "t", "--masters", "127.0.0.1:1", "--kafka", "k:1", "--checkpoint", "c"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0 and len(begun) == 1, result.output
    assert "whether there is a table t is not known, the job starts all the same" in result.output


def test_error_of_a_read_does_not_speak_of_changes(master: tuple[Knows, str]) -> None:
    """Goal: "nothing was applied" stands only where something could have been. Method: an unknown table, read and
    dropped."""
    said = {
        line: str(CliRunner().invoke(app, ["table", line, "nope", "--masters", master[1]]).exception)
        for line in ("describe", "scan", "drop")
    }
    assert {line for line, text in said.items() if text.endswith("; nothing was applied")} == {"drop"}, said
    assert all(text.startswith("NOT_FOUND: there is no table 'nope'") for text in said.values())


def test_dead_letters_of_an_unknown_table_are_refused(
    master: tuple[Knows, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a misspelt table is not an empty list. Method: what `dead-letter list` asks if there is no topic: a
    master without tables, one that is away, and none."""
    monkeypatch.setenv("NYALA_DIR", "/nowhere")
    with pytest.raises(nyala.NotApplied, match="there is no table 'nope'") as told:
        _need_table("nope", master[1])
    assert told.value.code is Code.NOT_FOUND
    for masters in ("127.0.0.1:1", ""):
        _need_table("nope", masters)
        assert "whether there is a table nope is not known: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "no master answers; is this Kafka's address? The masters' is NYALA_MASTERS of `nyala env`"),
        (b"HTTP/1.0 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "the process that listens there is no Nyala master"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and more\r\n", "the process that listens there is no Nyala master"),
        (None, "no master answers; check the address, and whether the cluster is up"),
    ],
    ids=["kafka", "web", "ssh", "nobody"],
)
def test_address_of_no_master_is_told_before_the_cause(answer: bytes | None, says: str) -> None:
    """Goal: the likeliest mistakes of `connect` are named first, with what to do; gRPC's text stands in parentheses at
    the end, without its constant beginning. Method: a listener that closes what is no request of its, as Kafka's
    brokers do, those that answer in another protocol, and a port that is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if answer is None:
            listener.close()

        def close_each() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                accepted.recv(1 << 16)
                accepted.sendall(answer or b"")
                accepted.close()

        threading.Thread(target=close_each, daemon=True).start()
        try:
            with pytest.raises(nyala.NotApplied) as told:
                nyala.connect(address)
        finally:
            if answer is not None:
                listener.shutdown(socket.SHUT_RDWR)
    assert str(told.value).startswith(f"UNAVAILABLE: {says}"), told.value
    assert f"(asked={address}, cause=" in str(told.value)
    assert "failed to connect to all addresses" not in str(told.value)


@pytest.mark.parametrize("address", ["http://localhost:7051", "localhost:7051/", "grpc://a:1,b:2"])
def test_address_with_a_scheme_or_a_path_is_refused(address: str) -> None:
    """Goal: a URL is told as one. Method: each form that people try."""
    with pytest.raises(nyala.NotApplied, match=r"has a scheme or a path; .*master-1:7051"):
        nyala.connect(address)


def test_small_mistakes_get_their_advice_once(tmp_path: Any) -> None:
    """Goal: each of these says what to type. Method: columns of a key in one option; a folder without promises; a
    topic of the system."""
    result = CliRunner().invoke(
        app, ["table", "create", "t", "-c", "id:int64", "-c", "d:date", "-k", "id,d", "--masters", "127.0.0.1:1"]
    )
    assert "repeat --key for each column, as in --key id --key d" in " ".join(result.output.replace("│", "").split())
    result = CliRunner().invoke(app, ["cmeta", "print", str(tmp_path)], env={"COLUMNS": "400"})
    assert f"{tmp_path} holds no consensus metadata" in result.output and "give a server's directory" in result.output
    from nyala.argument_errors import valid_text
    from nyala.replica.types import check_source_topic

    with pytest.raises(nyala.NotApplied) as told:
        valid_text(check_source_topic, "dead-letters.t")
    assert str(told.value).count("another one") == 1
