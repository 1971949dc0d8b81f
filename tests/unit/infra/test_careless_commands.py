"""Mistyped commands: one line that describes the mistake, no traceback, nothing done."""

from __future__ import annotations

import errno
import io
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import metadata
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from kafka.errors import KafkaTimeoutError

import nyala
from nyala.infra.cli.app import main
from nyala.infra.cli.context import ask, ask_for_name, find_server, find_tablet
from nyala.jobs import decisions, ingest, placement, rebalance, verify
from nyala.pipeline import plan_rounds

NOBODY = "127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a damaged stack, a foreign one and a plain file in it; no cluster in the environment."""
    for name, text in (("damaged", '{"pid": 1'), ("foreign", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text(text)
    (tmp_path / "file").write_text("junk")
    (tmp_path / "odd" / "logs" / "supervisor.log").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("NYALA_DIR", "NYALA_MASTERS", "NYALA_KAFKA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "400")
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


LINES = [
    ("up --servers 0", "0 servers asked for: a stack has 1 to 32"),
    ("up --servers -1", "-1 servers asked for: a stack has 1 to 32"),
    ("up --servers 33", "33 servers asked for: a stack has 1 to 32"),
    ("up --servers three", "--servers"),
    ("up --detach --dir damaged", "damaged/state.json is damaged"),
    ("up --detach --dir file", "no stack can live in file"),
    ("up --detach --dir odd", "odd/logs/supervisor.log: Is a directory"),
    ("up --dir file", "no stack can live in"),
    ("up --detach --kafka-bootstrap nowhere", "'nowhere' is no address of a Kafka broker"),
    ("status --dir damaged", "damaged/state.json is damaged"),
    ("status --dir foreign", "foreign/state.json is damaged"),
    ("status --dir file", "no stack runs in file"),
    ("down --dir damaged", "damaged/state.json is damaged"),
    ("demo --chaos --keep", "--keep and --events are of the flights"),
    ("demo --chaos --minutes 0", "--minutes"),
    ("demo --chaos --dir file", "no stack can live in"),
    ("demo --json", "--json is of --chaos"),
    ("table list", "no cluster named"),
    ("table list --masters foo", "'foo' is not an address"),
    ("table list --masters ,", "name at least one master"),
    ("table scan t --at yesterday --masters " + NOBODY, "'yesterday' is no ISO 8601 time"),
    ("table scan t --at 2026-01-31 --masters " + NOBODY, "names no time zone"),
    ("table scan t --at 1999-01-31T00:00Z --masters " + NOBODY, "before the year 2000"),
    ("table scan t --columns a,b,a --masters " + NOBODY, "--columns names a twice"),
    ("table scan t --columns , --masters " + NOBODY, "names no column"),
    ("table scan t --limit -1 --masters " + NOBODY, "--limit"),
    ("table create t --column a --key a --masters " + NOBODY, "--column 'a'"),
    ("decisions list", "no broker named and none runs here"),
    ("decisions list --kafka " + NOBODY, "does not answer"),
    ("decisions list --limit 0 --kafka " + NOBODY, "--limit"),
    ("decisions list --limit 20001 --kafka " + NOBODY, "--limit"),
    ("decisions list --since yesterday --kafka " + NOBODY, "--since yesterday is no span, such as 90s"),
    ("decisions list --since 2026-01-31 --kafka " + NOBODY, "names no time zone"),
    ("decisions list --table t --kafka " + NOBODY, "no cluster named"),
    ("decisions tail --kafka " + NOBODY, "does not answer"),
    ("decisions tail --masters " + NOBODY, "UNAVAILABLE"),
    ("decisions explain --kafka " + NOBODY, "Missing argument"),
    ("decisions explain t --kafka localhost", "Kafka is at host:port"),
    ("dead-letter list t --kafka " + NOBODY, "does not answer"),
    ("dead-letter list t --kafka localhost", "Kafka is at host:port"),
    ("dead-letter list t --kafka-properties nowhere --kafka " + NOBODY, "nowhere cannot be read"),
    ("dead-letter list t --kafka-properties file --kafka " + NOBODY, "a line of file is NAME=VALUE"),
    ("dead-letter replay t --yes --kafka " + NOBODY, "does not answer"),
    ("dead-letter replay t --yes --kafka localhost:x", "Kafka is at host:port"),
    ("source reset t --to -5 --masters " + NOBODY, "--to is an offset"),
    ("job nosuch", "no job 'nosuch'"),
    ("job ingest --kafka x --masters y -- --table t", "--checkpoint"),
    ("job ingest --restarts -1 --kafka x --masters y -- --table t --checkpoint c", "--restarts"),
    ("job rebalance --restarts 3 --kafka x", "rebalance does not go on where it was"),
    ("wal dump nowhere", "nowhere"),
    ("wal dump .", "holds no segment"),
    ("cmeta dump file", "shorter than"),
    ("superblock dump file", "shorter than"),
    ("cmeta print .", "holds no consensus metadata"),
    ("fs uuid nowhere", "there is no directory nowhere"),
    ("fs uuid .", "has no identity"),
    ("fs uuid file", "there is no directory file"),
    ("fs check nowhere", "there is no such directory"),
    ("fs check .", "no server's directory"),
    ("fs wipe . --yes", "no server's directory"),
    ("fs wipe file --yes", "no such directory"),
    ("fs format .", "the directory is not empty"),
    ("fs format file", "file is no directory"),
    ("fs format new --kind client", "--kind is one of"),
    ("fs format new --uuid 12", "a uuid is 32"),
    ("local-replica list nowhere", "there is no such directory"),
    ("local-replica dump . t", "no server's directory"),
    ("local-replica delete . t --yes", "no server's directory"),
    ("local-replica delete . t --clean-unsafe --yes", "no server's directory"),
    ("local-replica copy-from . t nowhere", "is not an address"),
    ("local-replica copy-from . t " + NOBODY, "no server's directory"),
    ("cmeta rewrite nowhere t --peer x", "a peer is UUID=HOST:PORT"),
    ("cmeta rewrite nowhere t --peer " + "a" * 32 + "=h:1", "there is no such directory"),
    ("cmeta set-term . t 5", "no server's directory"),
    ("cmeta set-term . t -- -5", "Invalid value"),
    ("unsafe recover --root . --no-masters", "--tablet ID, --table NAME or --all"),
    ("unsafe recover --root . --all --table t --no-masters", "leave out --tablet and --table"),
    ("unsafe recover --root nowhere --all --no-masters", "there is no such directory"),
    ("unsafe recover --root . --all --no-masters", "no server's directory"),
    ("unsafe replace", "--tablet ID or --table NAME"),
    ("unsafe replace --table t", "no cluster named"),
    ("tablet unsafe-replace --table t --masters " + NOBODY, "no master answers"),
    ("table create t -c id:int99 -k id --masters " + NOBODY, "no type 'int99'"),
    ("table create t -c a:decimal(99,2) -c id:int8 -k id --masters " + NOBODY, "precision"),
    ("table create t -c id:int8 -k id --buckets 0 --masters " + NOBODY, "buckets"),
    ("table create t -c id:int8 -k id --replicas 9 --masters " + NOBODY, "replication_factor"),
    ("table create t -c id:int8 -k id --topic dead-letters.x --masters " + NOBODY, "dead-letters"),
    ("table create ../t -c id:int8 -k id --masters " + NOBODY, "../t"),
    ("table scan t --where a~3 --masters " + NOBODY, "the condition cannot be read"),
    ("table scan t --where a= --masters " + NOBODY, "a value is missing at the end"),
    ("tablet unsafe-recover --root . --no-masters", "--tablet ID, --table NAME or --all"),
    ("quarantine purge --server s --yes --masters " + NOBODY, "Missing argument"),
    ("fs wipe foreign --yes", "nothing in it is ours"),
    ("bench nosuch", "nosuch"),
    ("bench load --local --rows -1", "--rows"),
    ("demo --dir file --events 10", "no stack can live in"),
    ("nosuch", "nosuch"),
]


@pytest.mark.a_third
@pytest.mark.parametrize(("line", "says"), LINES, ids=[line for line, _ in LINES])
def test_careless_command_line_gets_one_line_and_no_traceback(
    line: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MF-24. Goal: each mistake ends with a status that is not 0 and a text that names it, and leaves nothing behind, a
    refused `fs format` included. A table or a condition that cannot be is told before a master is asked. Method: the
    command, in process."""
    monkeypatch.setattr(sys, "argv", ["nyala", *line.split()])
    try:
        status = main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    said = capsys.readouterr()
    assert status != 0
    assert says in " ".join((said.out + said.err).replace("│", " ").split())
    assert not (folder / ".nyala").exists() or "up" in line
    assert not (folder / ".lock").exists() and not (folder / "new").exists()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "data"), "data: No space left on device"),
        (KafkaTimeoutError("no [broker] answers"), "KafkaTimeoutError: no [broker] answers"),
    ],
)
def test_demo_ends_with_one_line_whoever_refused(
    error: Exception, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: the demo ends with one line for any error. Method: each error, where data is read."""

    def refuse() -> None:
        raise error

    monkeypatch.setattr("nyala.infra.demo.flights.raw_flights", refuse)
    monkeypatch.setattr(sys, "argv", ["nyala", "demo", "--dir", "new"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines() == [f"the demo failed: {says}", "state and logs are in new"]


JOB_LINES = [
    (ingest, "--kafka-option x", "a Kafka option is NAME=VALUE"),
    (ingest, "--kafka-option kafka.security.protocol=TLS", "security.protocol is one of"),
    (ingest, "--kafka-option minPartitions=4", "minPartitions cannot be set"),
    (ingest, "--kafka-properties nowhere", "nowhere cannot be read"),
    (ingest, "--owner-wait-s 5", "owner_wait_s"),
    (decisions, "--kafka-option x", "a Kafka option is NAME=VALUE"),
    (rebalance, "--kafka-option kafka.sasl.mechanism=GSSAPI", "sasl.mechanism means nothing"),
    (rebalance, "--rounds-max 2", "more than 1 only with --wait"),
    (placement, "", "say what is to be placed, by one or more of --table, --under-replicated, --spread, --drain"),
    (placement, "--spread --rounds-max 2", "more than 1 only with --wait"),
    (placement, "--spread=yes", "ignored explicit argument"),
]


@pytest.mark.parametrize(("job", "line", "says"), JOB_LINES, ids=[f"{j.__name__} {line}" for j, line, _ in JOB_LINES])
def test_careless_job_line_gets_one_line_before_spark_starts(
    job: ModuleType,
    line: str,
    says: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: as above, for the jobs. Method: their main function; starting Spark would fail here."""
    monkeypatch.setattr(sys, "argv", ["job", *NEEDED[job].split(), *line.split()])
    for module in (job, plan_rounds):
        monkeypatch.setattr(module, "spark_session", lambda _: pytest.fail("Spark was started"), raising=False)
    try:
        status = job.main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    said = capsys.readouterr()
    assert status != 0
    assert re.search(says, said.out + said.err)


NEEDED = {
    ingest: "--table t --masters h:1 --kafka h:1 --checkpoint c",
    decisions: "--masters h:1 --kafka h:1 --checkpoint c",
    placement: "--kafka h:1",
    rebalance: "--kafka h:1",
    verify: "--masters h:1",
}
"""Job -> options that it cannot do without."""


@pytest.mark.parametrize("job", NEEDED, ids=lambda job: job.__name__.rpartition(".")[2])
def test_number_that_an_option_of_a_job_cannot_take_is_refused_in_one_line(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """IN-70. Goal: a mistyped time or count does not start Spark, nor does it become another one. Method: every option
    of the job that takes a number, with text, a unit, nothing, infinities, no number, one below and one above what it
    takes: status 1, one line that names option, value and what is accepted. The default and a sound number are taken.
    No option reads numbers in any other way."""
    for module, started in product((job, plan_rounds), ("spark_session", "Client")):
        monkeypatch.setattr(module, started, lambda *_: pytest.fail("the job was started"), raising=False)
    parser = job.options_parser()
    numbers = [action for action in parser._actions if action.type is not None]
    assert numbers and not [action for action in numbers if action.type in (int, float)]
    for action in numbers:
        (option,) = action.option_strings
        for bad in ("5 parsecs", "5s", "", "nan", "inf", "-inf", "-1", "1e300", "9" * 400, "0x10", "1;2", "-0.5"):
            monkeypatch.setattr(sys, "argv", ["job", *NEEDED[job].split(), f"{option}={bad}"])
            with pytest.raises(SystemExit) as ended:
                job.main()
            said = capsys.readouterr()
            (line,) = said.err.splitlines()
            assert (ended.value.code, said.out) == (1, "")
            shown = bad if len(bad) < 80 else bad[:80]
            assert line.startswith(f"{parser.prog}: INVALID_ARGUMENT: option {option} takes a ") and shown in line
            assert " number " in line and " from " in line and line.endswith("; nothing was applied")
        given = parser.parse_args([*NEEDED[job].split(), f"{option}=600"])
        assert getattr(given, action.dest) == 600


@pytest.mark.parametrize("what", ["tablet", "server"])
def test_empty_name_as_of_an_unset_variable_fits_nothing(what: str) -> None:
    """Goal: an empty name, as of an unset shell variable, matches no tablet. Method: the look-up of an empty beginning,
    which never asks anybody."""
    nobody: Any = None
    with pytest.raises(typer.BadParameter, match=f"the {what} is empty"):
        (find_tablet if what == "tablet" else find_server)(nobody, "")


def test_question_that_nobody_answers_changes_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: without an answer to its question, a command changes nothing and says so. Method: no input at all; a no;
    --yes."""
    for answer in ("", "n\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        with pytest.raises(typer.Exit) as ended:
            ask("remove it?", False)
        assert ended.value.exit_code == 1 and "nothing was changed; --yes" in capsys.readouterr().err
    ask("remove it?", True)
    assert capsys.readouterr().out == ""


def test_version_is_the_packages_in_the_command_the_module_and_the_servers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: the version is the same everywhere. Method: the package's metadata, `nyala --version`,
    `nyala.__version__`."""
    monkeypatch.setattr(sys, "argv", ["nyala", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"nyala {metadata.version('nyala')}\n")
    assert nyala.__version__ == metadata.version("nyala")


@pytest.mark.parametrize("typed", ["", "flight\n", "flights\n"])
def test_table_is_not_dropped_without_its_name(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a table is dropped only after its name was typed. Method: standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    with nullcontext() if typed == "flights\n" else pytest.raises(typer.Exit):
        ask_for_name("flights", "drop?")
    assert ("nothing was changed" in capsys.readouterr().err) == (typed != "flights\n")
