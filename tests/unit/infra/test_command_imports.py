"""The large libraries that a command imports: none to show its help, and only those it uses to run."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from nyala.infra.cli.app import COMMANDS, app

pytestmark = pytest.mark.process

LARGE = (
    "confluent_kafka", "fastavro", "google.protobuf", "grpc", "kafka", "numpy", "pandas", "polars", "prometheus_client",
    "pyarrow", "pyspark",
)  # fmt: skip
NOTHING = ""
FILES = "fastavro"
"""Libraries for reading a directory's small files."""
LOOK = "fastavro google.protobuf grpc numpy pyarrow"
"""Libraries of a client of the masters and servers."""
KAFKA = f"{LOOK} kafka"
BLOCKS = "fastavro numpy polars pyarrow"
"""Libraries for reading a replica's blocks."""
REBUILD = f"{BLOCKS} google.protobuf grpc prometheus_client"
"""Libraries of a copy from a server, which brings those of links between servers."""

NOWHERE = "--masters=127.0.0.1:1"
NO_BROKER = "--kafka=127.0.0.1:1"
CALLS: dict[str, tuple[str, str]] = {
    "up": ("--servers 99", NOTHING),
    "status": ("", NOTHING),
    "down": ("", NOTHING),
    "env": ("", NOTHING),
    "demo": ("--chaos --keep", NOTHING),
    "job": ("ingest --show", NOTHING),
    "bench load": ("", NOTHING),
    "bench write": ("", NOTHING),
    "bench scan": ("", NOTHING),
    "bench get": ("", NOTHING),
    "bench pipeline": ("", NOTHING),
    "bench copy": ("", NOTHING),
    "bench failover": ("", NOTHING),
    "bench idle": ("", NOTHING),
    "bench witness": ("", NOTHING),
    "bench masters": ("", NOTHING),
    "bench masters-at-scale": ("--servers 0", NOTHING),
    "bench decisions": ("", NOTHING),
    "bench checksum": ("--rounds 0", NOTHING),
    "bench logs": ("--rounds 0", NOTHING),
    "bench plan": ("--rounds 0", NOTHING),
    "bench all": ("", NOTHING),
    "table create": (f"t -c id:int64 -k id {NOWHERE}", LOOK),
    "table list": (NOWHERE, LOOK),
    "table describe": (f"t {NOWHERE}", LOOK),
    "table scan": (f"t {NOWHERE}", LOOK),
    "sql": (f"select-1 {NOWHERE}", LOOK),
    "table drop": (f"t {NOWHERE}", LOOK),
    "table set-replication": (f"t 3 {NOWHERE}", LOOK),
    "topic create": (f"t {NOWHERE}", LOOK),
    "schema show": (f"t {NOWHERE}", LOOK),
    "schema register": (f"t {__file__} {NOWHERE}", LOOK),
    "schema forget": (f"t f {NOWHERE}", LOOK),
    "schema list": (f"t {NOWHERE}", LOOK),
    "server run": ("--root absent", LOOK),
    "master run": ("--root absent", LOOK),
    "tablet list": (NOWHERE, LOOK),
    "tablet leader-step-down": (f"t {NOWHERE}", LOOK),
    "tablet move": (f"t a b {NOWHERE}", LOOK),
    "tablet change-config add": (f"t s {NOWHERE}", LOOK),
    "tablet change-config remove": (f"t s {NOWHERE}", LOOK),
    "tablet change-config promote": (f"t s {NOWHERE}", LOOK),
    "tablet change-config demote": (f"t s {NOWHERE}", LOOK),
    "tablet change-config move": (f"t a b {NOWHERE}", LOOK),
    "tablet change-config cancel": (f"t {NOWHERE}", LOOK),
    "tablet unsafe-recover": ("--root absent --all", BLOCKS),
    "tablet unsafe-replace": (f"--tablet t {NOWHERE}", LOOK),
    "server list": (NOWHERE, LOOK),
    "server retire": (f"s {NOWHERE}", LOOK),
    "server unretire": (f"s {NOWHERE}", LOOK),
    "server enter-maintenance": (f"s {NOWHERE}", LOOK),
    "server exit-maintenance": (f"s {NOWHERE}", LOOK),
    "server forget": (f"s {NOWHERE}", LOOK),
    "server prepare-restart": (f"s {NOWHERE}", LOOK),
    "server quiesce start": (f"s {NOWHERE}", LOOK),
    "server quiesce stop": (f"s {NOWHERE}", LOOK),
    "server quiesce status": (f"s {NOWHERE}", LOOK),
    "master list": (NOWHERE, LOOK),
    "master add": (f"127.0.0.1:1 {NOWHERE}", LOOK),
    "master remove": (f"127.0.0.1:1 {NOWHERE}", LOOK),
    "master replace": (f"127.0.0.1:1 127.0.0.1:2 {NOWHERE}", LOOK),
    "master copy-from": ("absent 127.0.0.1:1", BLOCKS),
    "master unsafe-rebuild": (f"absent --servers 127.0.0.1:1 --address 127.0.0.1:2 {NOWHERE}", REBUILD),
    "cluster check": (NOWHERE, LOOK),
    "security init": (__file__, LOOK),
    "security issue": ("absent server out", LOOK),
    "security list": ("absent", LOOK),
    "upgrade status": (NOWHERE, LOOK),
    "upgrade finalize": (NOWHERE, LOOK),
    "copy start": (f"t --server s {NOWHERE}", LOOK),
    "copy cancel": (f"t --server s {NOWHERE}", LOOK),
    "copy list": (NOWHERE, LOOK),
    "source list": (NOWHERE, LOOK),
    "source release": (f"t {NOWHERE}", LOOK),
    "source reset": (f"t --to 0 {NOWHERE}", LOOK),
    "decisions list": (NO_BROKER, KAFKA),
    "decisions tail": (NO_BROKER, KAFKA),
    "decisions explain": (f"t {NO_BROKER}", KAFKA),
    "decisions replay": (NO_BROKER, KAFKA),
    "dead-letter list": (f"t {NO_BROKER}", KAFKA),
    "dead-letter replay": (f"t {NO_BROKER}", KAFKA),
    "quarantine list": (NOWHERE, LOOK),
    "quarantine purge": (f"t --server s {NOWHERE}", LOOK),
    "fs format": (f"{__file__}", BLOCKS),
    "fs uuid": ("absent", FILES),
    "fs check": ("absent", BLOCKS),
    "fs wipe": ("absent", BLOCKS),
    "local-replica list": ("absent", BLOCKS),
    "local-replica dump": ("absent t", BLOCKS),
    "local-replica delete": ("absent t", BLOCKS),
    "local-replica copy-from": ("absent t 127.0.0.1:1", BLOCKS),
    "wal dump": ("empty", FILES),
    "cmeta dump": ("none", FILES),
    "cmeta print": ("empty", FILES),
    "cmeta rewrite": (f"absent t --peer {32 * '0'}=127.0.0.1:1", BLOCKS),
    "cmeta set-term": ("absent t 2", BLOCKS),
    "superblock dump": ("none", BLOCKS),
    "unsafe recover": ("--root absent --all", BLOCKS),
    "unsafe replace": (f"--tablet t {NOWHERE}", LOOK),
    "unsafe confirm-config": (f"--tablet t --server a --yes {NOWHERE}", LOOK),
}
"""Command -> a call of it that ends soon, for want of a cluster or a directory, and what it may have imported then."""

RUN = f"""
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from nyala.infra.cli.app import main
os.execv = lambda *given: sys.exit(1)  # it would end this process
for line in json.loads(sys.stdin.read()):
    sys.argv = ["nyala", *line]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            status = main()
        except SystemExit as ended:
            status = ended.code
    print(json.dumps([status, [name for name in {LARGE!r} if name in sys.modules]]), flush=True)
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by what is typed for it."""

    def below(path: tuple[str, ...], command: Any) -> Iterator[tuple[str, Any]]:
        for name, found in getattr(command, "commands", {}).items():
            yield from below((*path, name), found)
        if not hasattr(command, "commands"):
            yield " ".join(path), command

    yield from below((), get_command(app))


def run(lines: list[list[str]], folder: Path) -> list[tuple[int, set[str]]]:
    """Exit status and large libraries after each line, all in one new process: what it has, it keeps."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NYALA_")}
    ended = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(lines), env=environment, cwd=folder, capture_output=True,
        text=True, check=True, timeout=300,
    )  # fmt: skip
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(told) == len(lines), ended.stderr
    return [(status, set(found)) for status, found in told]


def test_every_command_has_a_row() -> None:
    """IN-72. Goal: a new command is measured too. Method: the table holds each command of the app, and no other."""
    assert sorted(name for name, _ in commands()) == sorted(CALLS)


def test_help_imports_no_large_library(tmp_path: Path) -> None:
    """IN-72. Goal: the help is there at once. Method: `--help` of the app, of every group and of every command, one
    after the other in one process, which has none of the large libraries in the end."""
    groups = {tuple(name.split()[:length]) for name in CALLS for length in range(len(name.split()) + 1)}
    lines = [[*group, "--help"] for group in sorted(groups)] + [[], ["--version"], ["tabel"]]
    for line, (status, found) in zip(lines, run(lines, tmp_path), strict=True):
        assert not found, f"nyala {' '.join(line)} imports {found}"
        assert status == (2 if line in ([], ["tabel"]) else 0), line


@pytest.mark.parametrize("allowed", sorted({allowed for _, allowed in CALLS.values()}))
def test_command_imports_what_it_uses(allowed: str, tmp_path: Path) -> None:
    """IN-72. Goal: a command pays for what it does, not for what others do. Method: run each command of the table
    until it finds no cluster or directory, those with the same libraries in one process."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "none").touch()
    lines = [[*name.split(), *given.split()] for name, (given, names) in CALLS.items() if names == allowed]
    for line, (status, found) in zip(lines, run(lines, tmp_path), strict=True):
        assert status or line == ["down"], f"nyala {' '.join(line)} found what it needs: nothing was shown"
        assert found <= set(allowed.split()), f"nyala {' '.join(line)} imports {found - set(allowed.split())}"


def test_master_imports_no_library_that_only_tablets_need(tmp_path: Path) -> None:
    """IN-72. Goal: a master starts without what it never uses, which would take it a third longer and 25 MB. Method:
    import all of a master in a new process, and look which of the large libraries are there."""
    look = f"import sys, nyala.replica.master.__main__; print(*[name for name in {LARGE!r} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {*ended.stdout.split()} == {*KAFKA.split(), "prometheus_client"}


def test_words_of_the_help_are_those_of_the_commands() -> None:
    """IN-72. Goal: the help, which imports no command, says what the commands say. Method: compare each line with the
    first paragraph of the command's own help; the help lists them in their order."""
    listed = get_command(app)
    for name, place in COMMANDS.items():
        own = inspect.cleandoc(listed.commands[name].help).split("\n\n")[0]  # type: ignore[attr-defined]
        assert place.help == " ".join(own.split()), name
    assert listed.list_commands(None) == list(COMMANDS)  # type: ignore[attr-defined,arg-type]


@pytest.mark.parametrize("package", ["nyala", "nyala.pipeline", "nyala.replica.tools"])
def test_package_on_demand_gives_all_its_names(package: str, tmp_path: Path) -> None:
    """IN-72. Goal: importing a package is cheap, and each of its names is there. Method: import it in a new process;
    then look every public name up, and one that is not there; no name is a module's, which would come first."""
    look = f"import sys, {package}; print(*[name for name in {LARGE!r} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []
    module = import_module(package)
    folder = Path(str(module.__file__)).parent
    assert not [name for name in module.__all__ if (folder / f"{name}.py").exists()]
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"{package}' has no attribute 'scann'"):
        module.scann  # noqa: B018
