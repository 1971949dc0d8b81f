"""`nyala wal dump`, `cmeta dump | print`, `superblock dump`: what is broken, where, and the exit status."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nyala.infra.cli.app import main
from nyala.replica.fs import RealDisk
from nyala.replica.wal import Log
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, entries, entry

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "server_v1"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server's directory with a log of three segments beside the golden tablets."""
    shutil.copytree(GOLDEN, tmp_path / "server")
    for group in (entries(1, 2), entries(3, 4), [entry(5)]):
        log, _ = Log.open(RealDisk(tmp_path / "server"), FOLDER, TABLET, SMALL)
        append_now(log, group)
        log.close()
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path / "server"
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """(exit status, what was said) of a command."""

    def command(*words: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["nyala", *map(str, words)])
        try:
            status = main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        said = capsys.readouterr()
        return status, said.out + said.err

    return command


def _flip(path: Path, what: bytes) -> None:
    data = path.read_bytes()
    at = data.index(what)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_dump_of_a_log_says_what_is_broken_and_where(root: Path, run: Any) -> None:
    """Goal: an operator finds the place, and a script the status. Method: a whole log; one with a byte flipped in a
    closed segment; without its middle segment; with an emptied one; with a torn end, which a start would cut: status 0;
    with a damaged last entry, which it may not; the same as JSON."""
    folder = root / FOLDER
    whole = {p: p.read_bytes() for p in sorted(folder.glob("wal-*"))}
    first, middle, last = whole
    status, said = run("wal", "dump", folder)
    assert status == 0 and "opid=1.5" in said and "last=1.5" in said and "segments=3" in said
    status, said = run("wal", "dump", folder, "--json")
    rows = json.loads(said)
    assert status == 0 and rows[-1]["kind"] == "log" and sum(r["kind"] == "entry" for r in rows) == 5

    _flip(first, b"payload 1.1")
    status, said = run("wal", "dump", folder)
    assert status == 1 and f"segment={first.name}, byte_offset=" in said and "later ones hold data" in said
    assert run("wal", "dump", first)[0] == 1 and run("wal", "dump", last)[0] == 0
    first.write_bytes(whole[first])

    middle.unlink()
    status, said = run("wal", "dump", folder)
    assert status == 1 and "segments are missing" in said
    middle.write_bytes(bytes(len(whole[middle])))
    status, said = run("wal", "dump", folder)
    assert status == 1 and "a segment was emptied" in said
    middle.write_bytes(whole[middle])

    last.write_bytes(whole[last][:-3])
    status, said = run("wal", "dump", folder)
    assert status == 0 and "torn=True" in said and "last=1.4" in said
    last.write_bytes(whole[last])
    _flip(last, b"payload 1.5")
    status, said = run("wal", "dump", folder, "--json")
    assert status == 1 and json.loads(said)[-1]["withheld"] == [1, 5]


def test_dumps_of_metadata_and_superblock_print_or_name_the_damage(root: Path, run: Any) -> None:
    """Goal: as above, for the framed files. Method: tables and JSON of whole ones; a byte flipped in each: status 1, a
    line with file and bytes; `cmeta print` shows the others and fails for the one."""
    cmeta, superblock = root / "consensus-meta" / "tablet-1", root / "tablet-meta" / "tablet-1"
    status, said = run("cmeta", "dump", cmeta)
    assert status == 0 and "term 5, vote cccc" in said and "members" in said
    assert json.loads(run("cmeta", "dump", cmeta, "--json")[1])["term"] == 5
    assert [v["tablet_id"] for v in json.loads(run("cmeta", "print", root, "--json")[1])] == ["tablet-1", "tablet-2"]
    status, said = run("superblock", "dump", superblock)
    assert status == 0 and "READY" in said and "tablet-1-000000.arrow" in said
    assert json.loads(run("superblock", "dump", superblock, "--json")[1])["data_state"] == "READY"
    for path in (cmeta, superblock):
        data = bytearray(path.read_bytes())
        data[40] ^= 1
        path.write_bytes(data)
    for words in (("cmeta", "dump", cmeta), ("superblock", "dump", superblock)):
        status, said = run(*words)
        assert status == 1 and str(words[2]) in said and "of bytes 20 to" in said and said.count("\n") == 1
    status, said = run("cmeta", "print", root)
    assert status == 1 and "tablet-2" in said and "of bytes 20 to" in said


def test_dump_of_a_file_that_is_none_of_a_server_says_so_and_what_to_give(tmp_path: Path, run: Any) -> None:
    """Goal: a file that a user took for another is told with the cause and the next step. Method: each command on a
    file of text, on an empty one, and on zeros."""
    for name, data in (("passwd", b"root:x:0:0:root:/root:/bin/bash\n" * 40), ("empty", b""), ("zeros", bytes(4096))):
        path = tmp_path / name
        path.write_bytes(data)
        for words, folder in (("superblock", "tablet-meta"), ("cmeta", "consensus-meta"), ("wal", "wals")):
            status, said = run(words, "dump", path)
            assert (status != 0) == (words != "wal" or name == "passwd"), (words, name, said)
            assert (f"give a server's file, <server>/{folder}/<tablet id>" in said) == (status != 0)
            assert (f"nyala: {path} is no segment" in said) == (words == "wal" and status != 0)
        assert "Expected -24 bytes" not in said
    assert "it begins with b'root'" in run("wal", "dump", tmp_path / "passwd")[1]
