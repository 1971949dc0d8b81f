"""`nyala unsafe recover` and `nyala cmeta rewrite | set-term` on directories of stopped servers, as typed by hand."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.main import get_command

from nyala.infra.cli import offline
from nyala.infra.cli.app import app, main
from nyala.infra.cli.context import console, size_text
from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import FENCE, RealDisk, format_directory, lock_root
from nyala.replica.types import SystemClock, generation_of
from tests.harness.copies import TABLET, close_disks
from tests.harness.lost_majority import UUIDS, stopped_server

FOLDERS = ("tablet-meta", "consensus-meta", "data", f"wals/{TABLET}")
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """One command in this process: its status, and what it said, line by line."""
    monkeypatch.setattr(console, "width", 400)
    monkeypatch.delenv("NYALA_MASTERS", raising=False)
    before = signal.getsignal(signal.SIGTERM)

    def one(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["nyala", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.StringIO())  # whoever is asked says nothing
        try:
            status = main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        said = capsys.readouterr()
        return status, said.out + said.err

    yield one
    signal.signal(signal.SIGTERM, before)
    close_disks()


@pytest.fixture
def run(typed: Run) -> Run:
    """The same as running text, for words that a table or a narrow terminal breaks."""

    def one(*words: object) -> tuple[int, str]:
        status, said = typed(*words)
        return status, " ".join(said.replace("│", " ").split())

    return one


def directory(
    root: Path, name: str, terms: tuple[int, ...] = (1, 1, 2), voters: str = "abc", *, flush_at: int = 0
) -> Path:
    """A stopped server's directory with a replica of these voters."""
    made, disk = RealDisk(root / name), stopped_server(name, terms, voters, flush_at=flush_at)
    format_directory(made, SystemClock(), uuid=UUIDS[name])
    for folder in FOLDERS:
        made.mkdir(folder)
        for file in disk.listdir(folder):
            made.replace(f"{folder}/{file}", disk.read(f"{folder}/{file}"))
    return root / name


def test_recovery_by_hand_is_printed_first_and_carried_out_by_its_fingerprint_only(tmp_path: Path, run: Run) -> None:
    """CC-38. Goal: it cannot be run by accident. Method: no tablets named; the plan alone; a wrong fingerprint; the
    right one; the same again, when there is nothing left to recover. The warning says that there is no way back."""
    root = directory(tmp_path, "a")
    recover = ("unsafe", "recover", "--root", root, "--no-masters")
    assert run(*recover)[0] == 2
    before = ConsensusMeta.load(RealDisk(root), TABLET).encode()
    status, text = run(*recover, "--table", "things")
    assert status == 0 and "there is no way back" in text and "Nothing was changed" in text, text
    assert f"not seen: {UUIDS['b']}" in text and f"not seen: {UUIDS['c']}" in text and "may live" in text
    assert "after index 3" in text and "--yes-i-lose-data=" in text
    plan: dict[str, Any] = json.loads(run(*recover, "--all", "--json")[1])
    assert plan["fingerprint"] in text and not plan["carried_out"]
    status, text = run(*recover, "--all", "--yes-i-lose-data=yes")
    assert status == 1 and "not this plan's fingerprint" in text
    assert ConsensusMeta.load(RealDisk(root), TABLET).encode() == before and not (root / FENCE).exists()
    status, text = run(*recover, "--all", f"--yes-i-lose-data={plan['fingerprint']}")
    assert status == 0 and "1 tablets recovered, their files read back" in text, text
    assert "nyala cluster check --checksum" in text and "write a row to each table" in text, text
    assert ConsensusMeta.load(RealDisk(root), TABLET).committed_config.voters == (UUIDS["a"],)
    status, text = run(*recover, "--all")
    assert status == 0 and "nothing to recover" in text, text


def test_recovery_by_hand_shows_what_it_reads_on_a_terminal_only(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a recovery shows its progress on a terminal, and prints only JSON for a program. Method: the plan of a
    replica with a block on a terminal, as JSON, and into a pipe."""
    root = directory(tmp_path, "a", flush_at=2)
    recover = ("unsafe", "recover", "--root", root, "--no-masters", "--all")
    size = size_text(sum(file.stat().st_size for file in (root / "data").iterdir()))
    assert f"of {size}" not in run(*recover)[1]
    drawn = io.StringIO()
    monkeypatch.setattr(offline, "console", Console(file=drawn, width=200, force_terminal=True))
    run(*recover, "--json")
    assert not drawn.getvalue()
    status, text = run(*recover)
    assert status == 0 and "after index 3" in text
    assert f"wals/{TABLET}" in drawn.getvalue() and f"{size} of {size}" in drawn.getvalue()


def test_recovery_by_hand_with_wrong_directories_or_tablets_says_what_is_wrong(tmp_path: Path, run: Run) -> None:
    """CC-39, CC-43. Goal: every mistake is named and changes nothing. Method: an unknown tablet and table, a directory
    with a server on it, one directory twice under two names, damaged identity, a majority, no replica left."""
    root, other = directory(tmp_path, "a"), directory(tmp_path, "b")
    recover = ("unsafe", "recover", "--root", root, "--no-masters")
    status, text = run(*recover, "--tablet", "nosuch")
    assert status == 1 and "left alone tablet nosuch" in text
    status, text = run(*recover, "--table", "nosuch")
    assert status == 1 and "no directory holds a tablet of that table" in text
    with lock_root(root):
        status, text = run(*recover, "--all")
    assert status == 1 and "works on this directory; stop it first" in text
    shutil.copytree(root, tmp_path / "again")
    status, text = run(*recover, "--root", tmp_path / "again", "--all")
    assert status == 1 and "two directories of one server" in text
    status, text = run(*recover, "--root", other, "--tablet", TABLET)
    assert status == 1 and UUIDS["a"] in text and UUIDS["b"] in text and "a majority" in text
    (tmp_path / "again" / "instance").write_bytes(b"junk")
    status, text = run(*recover, "--root", tmp_path / "again", "--all")
    assert status == 1 and "instance" in text and "Traceback" not in text
    status, text = run("local-replica", "delete", root, TABLET, "--yes")
    assert status == 0, text
    status, text = run(*recover, "--tablet", TABLET)
    assert status == 1 and "no replica is left to go on from" in text and "once had 2.3" in text
    assert "`nyala unsafe replace` puts an empty tablet in its place" in text


def test_recovery_by_hand_is_abandoned_by_its_fingerprint(tmp_path: Path, run: Run) -> None:
    """CC-38. Goal: a fence that cannot be worked off can be taken down. Method: a copy that fails leaves the fences;
    nothing unfinished, a wrong fingerprint and both options at once are refused; then the right one."""
    root, other = directory(tmp_path, "a", voters="abcde"), directory(tmp_path, "b", (1, 1, 1, 1), "abcde")
    recover = ("unsafe", "recover", "--root", root, "--copy-to", other, "--no-masters")
    status, text = run(*recover, "--abandon=x")
    assert status == 1 and "no recovery is unfinished" in text, text
    plan = json.loads(run(*recover, "--all", "--json")[1])["fingerprint"]
    quarantine = other / "quarantine"
    quarantine.rmdir()
    quarantine.write_text("in the way")
    status, text = run(*recover, "--all", f"--yes-i-lose-data={plan}")
    assert status != 0 and (root / FENCE).exists() and (other / FENCE).exists(), text
    assert f"--abandon={plan}" in text and "Traceback" not in text, text
    assert run(*recover, f"--abandon={plan}", f"--yes-i-lose-data={plan}")[0] == 2
    status, text = run(*recover, "--abandon=x")
    assert status == 1 and plan in text, text
    status, text = run(*recover, f"--abandon={plan}")
    assert status == 0 and str(root) in text and str(other) in text, text
    assert not (root / FENCE).exists() and not (other / FENCE).exists()
    assert not ConsensusMeta.load(RealDisk(root), TABLET).committed_config.unsafe


def test_directory_in_the_midst_of_a_recovery_is_changed_by_no_other_command(tmp_path: Path, run: Run) -> None:
    """CC-43. Goal: what a recovery found is what it goes on from. Method: a fenced directory with a block that nobody
    names yet; every command that changes a replica or removes files is refused and leaves superblock, metadata and
    block; looking is not refused, a wipe ends it all."""
    root = directory(tmp_path, "a")
    (root / FENCE).write_bytes(b"of a recovery")
    kept = [root / folder / TABLET for folder in ("tablet-meta", "consensus-meta")] + [root / "data" / "copied"]
    kept[-1].write_bytes(b"of a copy that was cut off")
    before = [path.read_bytes() for path in kept]
    for words in (
        ("local-replica", "delete", root, TABLET, "--yes"),
        ("local-replica", "delete", root, TABLET, "--clean-unsafe", "--yes"),
        ("local-replica", "copy-from", root, TABLET, "127.0.0.1:1", "--yes"),
        ("cmeta", "rewrite", root, TABLET, "--peer", f"{UUIDS['a']}=h:1", "--yes"),
        ("cmeta", "set-term", root, TABLET, 7),
        ("fs", "check", root, "--repair"),
    ):
        status, text = run(*words)
        assert status == 1 and "unsafe recovery of this directory is not finished" in text, (words, text)
    assert [path.read_bytes() for path in kept] == before
    assert run("local-replica", "list", root)[0] == 0
    status, text = run("fs", "check", root)
    assert status == 1 and FENCE in text and "data/copied" in text and kept[-1].exists(), text
    assert run("fs", "wipe", root, "--yes")[0] == 0 and not (root / FENCE).exists()


def test_occupied_directory_is_refused_in_one_line_by_every_command_that_needs_rest(tmp_path: Path, typed: Run) -> None:
    """CC-43. Goal: no offline tool works beside a server. Method: every command of the whole tree that takes a
    server's directory, each with all that would make it go ahead, while the lock is held: one line, status 1, no file
    changed; those that only read one file at a time, and say so, go on."""
    root, other = directory(tmp_path, "a", voters="abcde"), directory(tmp_path, "b", (1, 1, 1, 1), "abcde")
    recover = ("--root", root, "--copy-to", other, "--no-masters", "--all")
    plan = json.loads(typed("unsafe", "recover", *recover, "--json")[1])["fingerprint"]
    (root / "data" / "nobodys").write_bytes(b"what --repair would remove")
    refused: dict[str, list[tuple[object, ...]]] = {
        "fs format": [(root, "--uuid", UUIDS["f"])],
        "fs check": [(root,), (root, "--no-blocks"), (root, "--repair")],
        "fs wipe": [(root, "--yes")],
        "local-replica list": [(root,)],
        "local-replica dump": [(root, TABLET)],
        "local-replica delete": [(root, TABLET, "--yes"), (root, TABLET, "--clean-unsafe", "--yes")],
        "local-replica copy-from": [(root, TABLET, "127.0.0.1:1", "--allow-leaderless", "--yes")],
        "master copy-from": [(root, "127.0.0.1:1", "--allow-leaderless", "--yes")],
        "master unsafe-rebuild": [(root, "--servers", "h:1", "--address", "h:2", "--masters", "h:2", "--yes")],
        "cmeta rewrite": [(root, TABLET, "--peer", f"{UUIDS['a']}=h:1", "--yes")],
        "cmeta set-term": [(root, TABLET, 7, "--yes")],
        "unsafe recover": [recover, (*recover, f"--yes-i-lose-data={plan}"), (*recover, f"--abandon={plan}")],
    }
    refused["tablet unsafe-recover"] = refused["unsafe recover"]
    at_any_time: dict[str, tuple[object, ...]] = {"fs uuid": (root,), "cmeta print": (root,)}
    assert sorted(commands_on_a_directory()) == sorted({*refused, *at_any_time})
    at_any_time |= {
        "cmeta dump": (root / "consensus-meta" / TABLET,),
        "superblock dump": (root / "tablet-meta" / TABLET,),
        "wal dump": (root / "wals" / TABLET,),
    }

    def files() -> dict[Path, bytes]:
        return {p: p.read_bytes() for d in (root, other) for p in sorted(d.rglob("*")) if p.is_file()}

    with lock_root(root):
        before = files()
        for name, lines in refused.items():
            for words in lines:
                for as_json in ((), ("--json",)):
                    status, said = typed(*name.split(), *words, *as_json)
                    assert (status, said.count("\n")) == (1, 1) and said.startswith("nyala: "), (name, words, said)
                    assert "on this directory" in said and str(root) in said, (name, words, said)
                    assert files() == before, (name, words)
        for name, words in at_any_time.items():
            status, said = typed(*name.split(), *words)
            assert status == 0 and files() == before, (name, said)
    assert typed("unsafe", "recover", *recover, f"--yes-i-lose-data={plan}")[0] == 0


def commands_on_a_directory() -> Iterator[str]:
    """`fs check`, and so on: every command with a parameter `root`, through the groups of groups."""

    def below(names: tuple[str, ...], command: Any) -> Iterator[str]:
        if hasattr(command, "commands"):
            for name in command.commands:
                yield from below((*names, name), command.commands[name])
        elif any(p.name == "root" for p in command.params):
            yield " ".join(names)

    yield from below((), get_command(app))


def test_rewrite_and_set_term_by_hand_show_before_and_after_and_keep_an_undo(tmp_path: Path, run: Run) -> None:
    """CC-43, CC-44. Goal: what is changed is seen, and the earlier file kept. Method: each with --dry-run, for real,
    again, unconfirmed, and on a directory with a server on it; a config without the server itself; a last term."""
    root = directory(tmp_path, "a")
    peers = ("--peer", f"{UUIDS['a']}=h:1", "--peer", f"{UUIDS['d']}=h:2:non-voter")
    meta = lambda: ConsensusMeta.load(RealDisk(root), TABLET)  # noqa: E731
    status, text = run("cmeta", "set-term", root, TABLET, 1)
    assert status == 1 and "only raised" in text
    document = json.loads(run("cmeta", "set-term", root, TABLET, 7, "--json", "--dry-run")[1])
    assert not document["changed"] and meta().term == 2
    status, text = run("cmeta", "set-term", root, TABLET, (1 << 32) - 1, "--yes")
    assert status == 1 and "nobody is ever elected again" in text and meta().term == 2
    status, text = run("cmeta", "set-term", root, TABLET, 7)
    assert status == 1 and "no way back" in text and meta().term == 2, text
    document = json.loads(run("cmeta", "set-term", root, TABLET, 7, "--yes", "--json")[1])
    assert (document["before"]["term"], document["after"]["term"], meta().term) == (2, 7, 7)
    assert (root / document["undo"]).exists()
    with lock_root(root):
        status, text = run("cmeta", "rewrite", root, TABLET, *peers, "--yes")
    assert status == 1 and "stop it first" in text
    assert run("cmeta", "rewrite", root, TABLET, *peers[2:], "--yes")[0] == 2
    status, text = run("cmeta", "rewrite", root, TABLET, *peers, "--dry-run")
    assert status == 0 and "dddddddd (no vote)" in text and generation_of(meta().term) == 0
    for again in (False, True):
        status, text = run("cmeta", "rewrite", root, TABLET, *peers, "--yes")
        assert status == 0 and ("nothing was changed" in text) is again, text
    assert meta().committed_config.voters == (UUIDS["a"],) and generation_of(meta().term) == 1


def test_recovery_by_hand_copies_to_named_directories_and_needs_their_address(tmp_path: Path, run: Run) -> None:
    """CC-42. Goal: more than one member from the start, where it can be. Method: two of five left; the lagging one is
    copied to, its address known from the config; a new server that no config and no master knows is refused."""
    root, lagging = directory(tmp_path, "a", voters="abcde"), directory(tmp_path, "b", (1, 1, 1, 1), "abcde")
    blank = RealDisk(tmp_path / "f")
    format_directory(blank, SystemClock(), uuid=UUIDS["f"])
    recover = ("unsafe", "recover", "--root", root, "--no-masters", "--all")
    status, text = run(*recover, "--copy-to", tmp_path / "f")
    assert status == 1 and "nobody knows this server's address" in text, text
    plan = json.loads(run(*recover, "--copy-to", lagging, "--json")[1])
    assert [m["addresses"] for m in plan["tablets"][0]["members"]] == [["host-a:7050"], ["host-b:7050"]]
    status, text = run(*recover, "--copy-to", lagging, f"--yes-i-lose-data={plan['fingerprint']}")
    assert status == 0 and f"copying from {UUIDS['a']} to {UUIDS['b']}" in text, text
    ends = [ConsensusMeta.load(RealDisk(d), TABLET) for d in (root, lagging)]
    assert ends[0].committed_config == ends[1].committed_config and ends[0].term == ends[1].term
    assert ends[0].committed_config.voters == (UUIDS["a"], UUIDS["b"])
    assert [p.name for p in (lagging / "quarantine").iterdir()] == [f"{TABLET}-000001"]
