"""A directory's identity, and a command line's options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import FOLDERS, RAFT_FOLDERS, RealDisk, format_directory, join_cluster, open_or_format
from nyala.replica.server import ServerOptions, check_durable_state, process
from nyala.replica.server.__main__ import parse
from nyala.replica.server.runtime.identity import Identity
from nyala.replica.types import Code, Corruption, InvariantViolation, Refused, SystemClock, is_uuid, limits
from tests.harness.copies import CONFIG, SOURCE_UUID, RestingReplica, TestClock, new_disk
from tests.harness.server_pair import until
from tests.harness.sim_disk import SimDisk


def test_directory_is_formatted_once_and_keeps_its_uuid() -> None:
    """TC-33, MF-24. Goal: one identity for ever. Method: open, format and open again; write into each folder."""
    disk = new_disk()
    first = open_or_format(disk, TestClock())
    assert is_uuid(first.uuid)
    assert disk.exists("instance")
    with pytest.raises(Refused, match="has an identity already") as refused:
        format_directory(disk, TestClock())
    assert refused.value.code is Code.ALREADY_EXISTS
    for folder in FOLDERS:
        disk.replace(f"{folder}/probe", b"")
    assert open_or_format(disk, TestClock()) == first


def test_damaged_foreign_or_missing_identity_is_refused() -> None:
    """Goal: an identity is never guessed. Method: flip a byte, ask for another kind, remove the file beside data."""
    disk = new_disk()
    open_or_format(disk, TestClock())
    with pytest.raises(Corruption, match="another kind"):
        open_or_format(disk, TestClock(), kind="MASTER")
    disk.corrupt("instance", 30)
    with pytest.raises(Corruption, match="damaged"):
        open_or_format(disk, TestClock())
    disk.remove("instance")
    disk.poke("consensus-meta/t1", b"a promise")
    with pytest.raises(Corruption, match="missing beside data"):
        open_or_format(disk, TestClock())


def _remove(folder: str, disk: SimDisk) -> None:
    disk.remove_tree(folder)


def _empty(folder: str, disk: SimDisk) -> None:
    disk.remove_tree(folder)
    disk.mkdir(folder)


@pytest.mark.parametrize("harm", [_remove, _empty], ids=["gone", "empty"])
@pytest.mark.parametrize("folder", RAFT_FOLDERS)
def test_server_that_lost_a_folder_of_promises_does_not_start(
    folder: str, harm: Callable[[str, SimDisk], None]
) -> None:
    """Goal: row TC-72: a lost disk with metadata or logs ends the server's identity, and is never begun anew under the
    same uuid. Method: one READY tablet with a log; each folder is removed, as by a disk that is gone, or emptied, as
    by a new one; the refusal names folder, uuid and remedy. A tablet that was cut off while it was made stops nobody.
    """
    disk = new_disk()
    instance = open_or_format(disk, TestClock(), uuid=SOURCE_UUID)
    disk.mkdir("wals/cut-off")
    ConsensusMeta.create(disk, "cut-off", SOURCE_UUID, CONFIG)
    check_durable_state(disk, open_or_format(disk, TestClock()))
    replica = RestingReplica(disk)
    replica.write([1], "a")
    replica.close()
    check_durable_state(disk, open_or_format(disk, TestClock()))
    harm(folder, disk)
    with pytest.raises(Corruption, match=rf"nyala fs wipe.*{folder}.*{instance.uuid}"):
        check_durable_state(disk, open_or_format(disk, TestClock()))
    assert disk.listdir(folder) == []


def test_server_joins_one_cluster_only() -> None:
    """Goal: a server refuses the masters of another cluster. Method: join, join again, join another."""
    disk = new_disk()
    joined = join_cluster(disk, open_or_format(disk, TestClock()), "c1")
    assert open_or_format(disk, TestClock()).cluster_id == "c1"
    assert join_cluster(disk, joined, "c1") == joined
    with pytest.raises(Refused, match="another cluster") as refused:
        join_cluster(disk, joined, "c2")
    assert refused.value.code is Code.WRONG_CLUSTER and open_or_format(disk, TestClock()).cluster_id == "c1"


def test_two_clusters_that_answer_at_once_get_a_new_server_once() -> None:
    """TC-33. Goal: the first cluster keeps it, in memory and on disk, the second is refused. Method: join both at
    once."""

    async def join_both() -> None:
        disk = new_disk()
        identity = Identity(disk, open_or_format(disk, TestClock()))
        assert identity.cluster_id == ""
        first, second = await asyncio.gather(identity.join("c1"), identity.join("c2"), return_exceptions=True)
        assert first is None
        assert isinstance(second, Refused) and second.code is Code.WRONG_CLUSTER
        assert identity.cluster_id == open_or_format(disk, TestClock()).cluster_id == "c1"

    asyncio.run(join_both())


def test_command_line_becomes_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a wrong address, rate or limit is one clear line. Method: good and bad arguments."""
    options = parse(["--root", "/r", "--listen", "h:0", "--masters", "a:1, b:2", "--location", "/z/r"])
    assert [str(m) for m in options.masters] == ["a:1", "b:2"] and options.wal_sync
    assert parse(["--root", "/r", "--listen", "[::1]:0", "--advertise", "[fd00::1]:7050"]).listen == "[::1]:0"
    bare = ("--masters", "--listen", "--advertise")
    for bad in (["--masters", "nowhere"], ["--listen", "5"], *([option, "::1:7050"] for option in bare)):
        with pytest.raises(SystemExit):
            parse(["--root", "/r", *bad])
        assert "is not an address of the form host:port" in capsys.readouterr().err
    for bad in (["--masters", "h:65536"], ["--listen", "h:123456"], ["--advertise", "h:0"]):
        with pytest.raises(SystemExit):
            parse(["--root", "/r", *bad])
        assert "is no address: " in capsys.readouterr().err
    for option, value, why in (
        ("--copy-rate-bytes-per-s", "65536", "a slower copy never ends"),
        ("--copy-busy-rate-bytes-per-s", "-1", "a rate is 0 or more"),
        ("--copy-jobs-max", "0", "at least one copy"),
        ("--memory-soft-bytes", "-1", "memory must be bounded"),
        ("--tablets-max", "0", "a server holds a tablet"),
        ("--wal-segment-size-bytes-max", "4096", "a log's first segment is its shortest"),
        ("--scrub-mb-per-s", "-1", "a rate is 0 or more"),
        ("--scrub-interval-s", "0", "a check of all blocks takes time"),
    ):
        with pytest.raises(SystemExit):
            parse(["--root", "/r", option, value])
        assert why in capsys.readouterr().err.splitlines()[-1]


def test_location_that_cannot_be_is_refused_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    """OP-05. Goal: a misspelt location is no place of its own, and the line says how one is spelt. Method: good ones,
    the longest included, and bad ones."""
    longest = "/" + "x" * (limits.NAME_LENGTH_MAX - 1)
    for good in ("", "/dc1", "/dc1/rack3", "/eu-1/b.2/row_4", longest):
        assert parse(["--root", "/r", "--location", good]).location == good
    for bad in (
        "dc1",
        "dc1/rack3",
        "/",
        "/dc1/",
        "//rack3",
        "/dc1 /rack3",
        "/dc1\n",
        "/d\u00e9",
        "/a:b",
        longest + "x",
    ):
        with pytest.raises(SystemExit):
            parse(["--root", "/r", "--location", bad])
        told = capsys.readouterr().err
        assert "a location is /zone, /zone/rack or longer" in told and "give another one, or none" in told


def test_options_validate_relations() -> None:
    """Goal: impossible options are refused at construction. Method: a heartbeat faster than the tick, an empty pool."""
    with pytest.raises(InvariantViolation):
        ServerOptions(root="/r", tick_ms=50, heartbeat_ms=20)
    with pytest.raises(InvariantViolation):
        ServerOptions(root="/r", scan_threads=-1)


def test_running_server_writes_its_instance_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-21. Goal: a running server writes its damaged instance file again, so the next start accepts it. Method: a
    server as its process runs it, but that looks every hundredth of a second, and not once a minute. Its instance file
    is flipped, emptied and removed: it is whole again each time."""
    monkeypatch.setattr(process, "LOOK_AT_FOLDERS_S", 0.01)
    monkeypatch.setattr(process, "CHECK_EVERY_S", 0.01)
    disk, path, ready = RealDisk(tmp_path), tmp_path / "instance", tmp_path / "ready"
    instance = open_or_format(disk, SystemClock())
    check_durable_state(disk, instance)
    held = path.read_bytes()

    async def life() -> int:
        options = ServerOptions(root=str(tmp_path), listen="127.0.0.1:0", ready_file=str(ready))
        server = process.TabletServer(options, disk, instance)
        running = asyncio.create_task(server.run())
        await until(ready.exists, "it listens")
        flip = lambda: path.write_bytes(held[:30] + bytes([held[30] ^ 1]) + held[31:])  # noqa: E731
        for hurt in (flip, lambda: path.write_bytes(b""), path.unlink):
            hurt()
            await until(lambda: path.exists() and path.read_bytes() == held, "it is written again")
        server._stop.set()
        return await running

    assert asyncio.run(life()) == 0
