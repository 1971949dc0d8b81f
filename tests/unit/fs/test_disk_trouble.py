"""Crash points, the root's lock, the families of errors, and what the simulated disk forgets."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from nyala.replica.fs import CRASH_EXIT_CODE, CrashPoints, FolderWatch, RealDisk, lock_root, real
from nyala.replica.fs.real import _translated
from nyala.replica.types import Code, DiskFailure, Refused
from nyala.replica.wal import Log
from tests.harness.sim_disk import SECTOR_BYTES, SimCrash, SimDisk
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, entry

ROOT = Path(__file__).resolve().parents[3]


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    env = {"PATH": "/usr/bin:/bin", **path, **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("armed", "passes"), [("here", 1), ("here:3", 3)])
def test_armed_crash_point_ends_the_process_at_its_pass(armed: str, passes: int) -> None:
    """Goal: an armed crash point ends the process without clean-up, at the given pass. Method: a child that counts
    aloud, its exit code."""
    code = (
        "from nyala.replica.fs import RealDisk; import tempfile; d = RealDisk(tempfile.mkdtemp())\n"
        "for n in range(1, 9):\n  print(n, flush=True); d.crash_point('elsewhere'); d.crash_point('here')"
    )
    done = run(code, NYALA_CRASH_POINT=armed)
    assert done.returncode == CRASH_EXIT_CODE, done.stderr
    assert done.stdout.split()[-1] == str(passes)


def test_crash_points_are_off_unless_armed() -> None:
    """Goal: off by default, and a misspelt countdown is refused. Method: an empty environment, a bad one."""
    CrashPoints({}).reach("anything")
    CrashPoints({}).reach("")
    with pytest.raises(ValueError, match="countdown"):
        CrashPoints({"NYALA_CRASH_POINT": "a:b"})


def test_second_server_on_one_directory_is_refused_until_the_first_dies(tmp_path: Path) -> None:
    """Goal: one directory has one server. Method: hold the lock, try from a child, let go, try again."""
    code = f"from nyala.replica.fs import lock_root; lock_root({str(tmp_path)!r}); print('in')"
    lock = lock_root(tmp_path)
    refused = run(code)
    assert refused.returncode != 0
    assert "another server runs on this directory" in refused.stderr
    with pytest.raises(Refused, match="another server") as error:
        lock_root(tmp_path)
    assert error.value.code is Code.ILLEGAL_STATE
    lock.close()
    lock.close()
    assert run(code).stdout.strip() == "in"
    with lock_root(tmp_path):
        pass
    assert RealDisk(tmp_path).listdir("") == []


def test_real_disk_tells_a_full_disk_from_a_broken_one(tmp_path: Path) -> None:
    """Goal: ENOSPC is retryable, EIO is fatal. Method: /dev/full, and a file system without fsync."""
    disk = RealDisk(tmp_path)
    (tmp_path / "full").symlink_to("/dev/full")
    file = disk.open("full")
    with pytest.raises(Refused) as full:
        file.pwrite(b"x", 0)
    assert full.value.code is Code.NO_SPACE
    with pytest.raises(DiskFailure, match="sync"):
        file.datasync()
    file.close()
    with pytest.raises(DiskFailure):
        disk.read("")


def test_real_disk_without_descriptors_is_refused_with_the_remedy_and_works_again(tmp_path: Path) -> None:
    """Goal: too many open files is no failing disk. Method: a child with a limit of 32 opens one file until it may not:
    reads, replaces and renames are refused, nothing is changed; after closing, they work."""
    code = f"""
import resource
from nyala.replica.types import Refused
from nyala.replica.fs import RealDisk
disk = RealDisk({str(tmp_path)!r})
disk.replace("f", b"old")
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
held = []
try:
    while True:
        held.append(disk.open("f"))
except Refused as error:
    print(error.code.name, "ulimit -n" in str(error))
for change, *given in ((disk.replace, "f", b"new"), (disk.rename, "f", "g"), (disk.read, "f"), (disk.mkdir, "d/e")):
    try:
        change(*given)
    except Refused as error:
        print(error.code.name)
held.pop().close()
try:
    disk.rename("f", "g")  # both folders are one here, and one descriptor is not enough
except Refused as error:
    print(error.code.name, disk.exists("f"), disk.exists("g"))
while held:
    held.pop().close()
print(disk.read("f"), disk.exists("g"), disk.exists("d/e"), list(p.name for p in disk.root.iterdir()))
disk.replace("f", b"new")
print(disk.read("f"))
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "OVERLOADED True",
        *["OVERLOADED"] * 4,
        "OVERLOADED True False",
        "b'old' False False ['f']",
        "b'new'",
    ]


def test_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    """Goal: a thousand tablets fit in a shell's default. Method: a child with limits of 64 and 512."""
    code = (
        "import resource as r; from nyala.replica.types.process import raise_open_files_limit as up\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, 512)); print(up(), r.getrlimit(r.RLIMIT_NOFILE), up())"
    )
    assert run(code).stdout.strip() == "512 (512, 512) 512"


def test_log_is_whole_though_each_call_writes_and_reads_a_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a call may write or read less than it was asked to, on a nearly full disk, say, and nothing is lost by it.
    Method: every pwritev, pwrite and pread moves one to seven bytes. Entries fill several segments of a log; opened
    again, so and by whole calls, it has them all, and a file replaced meanwhile is what was given."""
    rng, write, read = random.Random(16), os.pwrite, os.pread
    calls: list[str] = []

    def short_write(fd: int, data: bytes, offset: int) -> int:
        calls.append("pwrite")
        return write(fd, data[: rng.randint(1, 7)], offset)

    def short_gather(fd: int, parts: list[bytes], offset: int) -> int:
        calls.append("pwritev")
        return write(fd, b"".join(parts)[: rng.randint(1, 7)], offset)

    def short_read(fd: int, length: int, offset: int) -> bytes:
        calls.append("pread")
        return read(fd, min(length, rng.randint(1, 7)), offset)

    appended = [entry(index, rng.randbytes(700)) for index in range(1, 31)]
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", short_write)
        patched.setattr(os, "pwritev", short_gather)
        patched.setattr(os, "pread", short_read)
        disk = RealDisk(tmp_path)
        log, _ = Log.open(disk, FOLDER, TABLET, SMALL)
        for first in range(0, 30, 5):
            append_now(log, appended[first : first + 5])
        disk.replace("f", b"content" * 9)
        log.close()
        log, replay = Log.open(RealDisk(tmp_path), FOLDER, TABLET, SMALL)
        assert list(replay.entries) == appended
        assert log.read(1, 31, 1 << 20) == appended
        log.close()
    assert {*calls} == {"pwrite", "pwritev", "pread"}
    log, replay = Log.open(RealDisk(tmp_path), FOLDER, TABLET, SMALL)
    assert list(replay.entries) == appended
    assert RealDisk(tmp_path).read("f") == b"content" * 9
    assert len(RealDisk(tmp_path).listdir(FOLDER)) > 2, "several segments"
    log.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_real_disk_that_may_not_be_used_says_what_to_look_at(number: int) -> None:
    """Goal: a wrong owner is not reported as a broken disk. Method: the error as the kernel would raise it."""
    with pytest.raises(DiskFailure, match=r"owner.*permissions.*mounted"), _translated("open", "wals/t"):
        raise OSError(number, "no")


@pytest.mark.parametrize("call", ["mkdir", "open"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_directory_that_cannot_be_locked_says_what_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """Goal: a start on a read-only or full disk ends in one line that names the remedy, not in a traceback. Method: the
    error as the kernel would raise it as the directory, or its lock, is made; then nothing is locked."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(Path if call == "mkdir" else os, call, refuse)
        with pytest.raises((DiskFailure, Refused), match=r"mounted writable|disk is full") as error:
            lock_root(tmp_path / "new")
    assert str(tmp_path / "new") in str(error.value)
    lock_root(tmp_path / "new").close()


def test_sim_disk_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    """Goal: after a power loss the simulated disk has all synced bytes and any part of the others. Method: many seeds;
    synced bytes always, unsynced by sector."""
    seen: set[bytes] = set()
    for seed in range(200):
        disk = SimDisk()
        file = disk.open("f", create=True)
        file.pwrite(b"a" * SECTOR_BYTES * 2, 0)
        file.sync()
        disk.sync_dir("")
        file.pwrite(b"b" * SECTOR_BYTES * 2, 0)
        disk.open("unsynced", create=True).close()
        disk.power_loss(random.Random(seed))
        data = disk.read("f")
        seen.add(data[::SECTOR_BYTES] + (b"+" if disk.exists("unsynced") else b"-"))
        with pytest.raises(ValueError, match="closed handle"):
            file.size()
    assert seen == {first + second + name for first in (b"a", b"b") for second in (b"a", b"b") for name in (b"+", b"-")}


def test_sim_disk_forgets_what_a_failed_sync_did_not_write() -> None:
    """Goal: a sync that succeeds after a failed one does not make the earlier bytes durable. Method: EIO in the first,
    sync again, cut the power."""
    disk = SimDisk()
    file = disk.open("f", create=True)
    file.pwrite(b"old", 0)
    file.sync()
    disk.sync_dir("")
    file.pwrite(b"new", 0)
    disk.fail_on("datasync", "f")
    with pytest.raises(DiskFailure):
        file.datasync()
    file.datasync()
    assert disk.read("f") == b"new"
    disk.power_loss(random.Random(0))
    assert disk.read("f") == b"old"


def test_sim_disk_rename_is_atomic_under_power_loss() -> None:
    """Goal: after a power loss a renamed file has the old content or the new one. Method: crash between the rename and
    its sync, many seeds."""
    seen = set()
    for seed in range(50):
        disk = SimDisk()
        disk.replace("f", b"old")
        disk.arm("disk.before_rename_sync")
        with pytest.raises(SimCrash):
            disk.replace("f", b"new")
        disk.power_loss(random.Random(seed))
        seen.add(disk.read("f"))
    assert seen == {b"old", b"new"}


def test_preallocation_without_room_gives_back_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-17. Goal: a preallocation that fails for want of room frees what it took. Method: the call does as it does on
    ext4: it takes half of what was asked for, and fails."""

    def half(fd: int, offset: int, length: int) -> None:
        os.truncate(fd, offset + length // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    disk = RealDisk(tmp_path)
    file = disk.open("segment", create=True)
    file.pwrite(b"content", 0)
    monkeypatch.setattr(os, "posix_fallocate", half)
    with pytest.raises(Refused, match="full"):
        file.preallocate(1 << 20)
    assert file.size() == len(b"content") and disk.read("segment") == b"content"
    file.close()


def test_sim_disk_without_room_refuses_writes_and_keeps_removing() -> None:
    """Goal: a full disk as design says. Method: a capacity, a write too many, a removal, the write again."""
    disk = SimDisk(capacity_bytes=100)
    disk.replace("a", bytes(80))
    with pytest.raises(Refused, match="full"):
        disk.replace("b", bytes(30))
    disk.remove("a")
    disk.replace("b", bytes(30))
    assert disk.read("b") == bytes(30)


def test_file_that_was_replaced_twice_is_replaced_without_another_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a small file that keeps room is replaced on a disk without one free block. Method: from the second
    replacement on, the content moves between two inodes, each with the blocks it had, and no call empties a file or
    makes it shorter than the content; a removal leaves neither."""
    disk, target, spare = RealDisk(tmp_path), tmp_path / "f", tmp_path / ".f.tmp"
    for content in (b"1" * 300, b"2" * 340):
        disk.replace("f", content, keep_room=True)
    pair = [(path.stat().st_ino, path.stat().st_blocks) for path in (target, spare)]
    assert min(blocks for _, blocks in pair) > 0
    opened, lengths, opens, truncate = [], [], os.open, os.ftruncate
    monkeypatch.setattr(os, "open", lambda path, flags, *rest: opened.append(flags) or opens(path, flags, *rest))
    monkeypatch.setattr(os, "ftruncate", lambda fd, length: lengths.append(length) or truncate(fd, length))
    for round_ in range(3, 9):
        disk.replace("f", b"%d" % round_ * 340, keep_room=True)
        pair.reverse()
        assert [(path.stat().st_ino, path.stat().st_blocks) for path in (target, spare)] == pair
        assert disk.read("f") == b"%d" % round_ * 340
    assert opened and not any(flags & os.O_TRUNC for flags in opened) and {*lengths} == {340}
    disk.remove("f")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("linked", [["f"], [".f.tmp"], ["f", ".f.tmp"]], ids="+".join)
@pytest.mark.parametrize("keep_room", [True, False])
def test_backup_of_hard_links_keeps_what_it_had(linked: list[str], keep_room: bool, tmp_path: Path) -> None:
    """Goal: a backup that shares the files (`cp -al`, `rsync --link-dest`) does not change after it was made. Method:
    link the file, its former version, or both; after some replacements each link has its content, and the replacements
    exchange two files of their own again."""
    disk, backup = RealDisk(tmp_path / "disk"), tmp_path / "backup"
    backup.mkdir()
    for content in (b"1", b"22"):
        disk.replace("f", content, keep_room=True)
    for name in linked:
        os.link(tmp_path / "disk" / name, backup / name)
    had = {name: (backup / name).read_bytes() for name in linked}
    for content in (b"333", b"4444", b"55555"):
        disk.replace("f", content, keep_room=keep_room)
        assert disk.read("f") == content and {name: (backup / name).read_bytes() for name in linked} == had
    kept = sorted((tmp_path / "disk").iterdir())
    assert [path.name for path in kept] == ([".f.tmp", "f"] if keep_room else ["f"])
    assert [path.stat().st_nlink for path in kept] == [1] * len(kept)


def test_simulated_disk_without_room_takes_another_vote_and_no_other_file() -> None:
    """Goal: the simulated disk keeps room as the real one does. Method: it is full after two replacements."""
    disk = SimDisk()
    for content in (b"1" * 300, b"2" * 340):
        disk.replace("f", content, keep_room=True)
    disk.capacity_bytes = disk.used_bytes
    disk.replace("f", b"3" * 340, keep_room=True)
    with pytest.raises(Refused, match="full"):
        disk.replace("f", b"4" * 340)
    with pytest.raises(Refused, match="full"):
        disk.replace("g", b"4" * 340, keep_room=True)
    assert disk.read("f") == b"3" * 340


@pytest.mark.parametrize("trouble", [None, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES])
def test_file_system_that_cannot_exchange_names_renames(
    trouble: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: where two names cannot be exchanged, a replacement that keeps room is an ordinary one. Method: a C library
    without the call, and each errno by which a file system, a kernel or a container says so."""

    def refuse(*_: object) -> int:
        ctypes.set_errno(trouble or 0)
        return -1

    monkeypatch.setattr(real, "_renameat2", lambda: refuse if trouble else None)
    disk = RealDisk(tmp_path)
    for content in (b"one", b"two, longer", b"3"):
        disk.replace("f", content, keep_room=True)
        assert disk.read("f") == content
        assert os.listdir(tmp_path) == ["f"]


def test_error_of_an_exchange_is_the_disks_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an exchange that fails is no success. Method: EIO from the call; then it works again."""

    def fail(*_: object) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    disk = RealDisk(tmp_path)
    disk.replace("f", b"old", keep_room=True)
    with monkeypatch.context() as patched:
        patched.setattr(real, "_renameat2", lambda: fail)
        with pytest.raises(DiskFailure, match="rename"):
            disk.replace("f", b"new", keep_room=True)
    assert disk.read("f") == b"old"
    disk.replace("f", b"new", keep_room=True)
    assert disk.read("f") == b"new"


@pytest.mark.parametrize("exchanged", [False, True])
def test_former_file_is_not_overwritten_if_its_replacement_may_not_be_durable(
    exchanged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-14. Goal: as long as a power cut may bring the former content back, no write touches it. Method: the sync of
    the folder fails after the exchange, or that of the file before it. The next replacement writes to a file that has
    none of the two inodes' content, and both inodes, held open, have what they had."""
    disk = RealDisk(tmp_path)
    for content in (b"1", b"2"):
        disk.replace("f", content, keep_room=True)
    sync, done = os.fsync, []

    def fail(fd: int) -> None:
        done.append(fd)
        if len(done) == 1 + exchanged:
            raise OSError(errno.EIO, "no")
        sync(fd)

    with (tmp_path / "f").open("rb") as former:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(DiskFailure):
                disk.replace("f", b"3", keep_room=True)
        assert disk.read("f") == (b"3" if exchanged else b"2")
        disk.replace("f", b"4", keep_room=True)
        assert former.read() == b"2" and disk.read("f") == b"4"


@pytest.mark.parametrize("loss", ["removed", "renamed", "replaced"])
def test_folder_that_was_taken_away_is_noticed(loss: str, tmp_path: Path) -> None:
    """TC-72. Goal: a server notices that one of its folders was replaced, although its open files still take writes.
    Method: a folder with an open file is removed, moved aside, or has another in its place; an untouched one is no
    trouble."""
    disk = RealDisk(tmp_path)
    for folder in ("wals", "data"):
        disk.mkdir(folder)
    watch = FolderWatch(disk, ("wals", "data"))
    file = disk.open("wals/segment", create=True)
    file.pwrite(b"entry", 0)
    watch.check()
    if loss == "removed":
        disk.remove_tree("wals")
    else:
        (tmp_path / "wals").rename(tmp_path / "elsewhere")
    if loss == "replaced":
        disk.mkdir("wals")
    file.pwrite(b"entry", 5)
    file.sync()
    with pytest.raises(DiskFailure, match=r"taken away.*wals"):
        watch.check()
    file.close()


def test_sim_disk_counts_the_faults_that_somebody_ran_into() -> None:
    """Goal: what a simulated history claims to have come across, it has. Method: faults that nobody meets, that are
    skipped, and that are met count as they should."""
    disk = SimDisk()
    disk.fail_on("pwrite", "b", "ENOSPC")
    disk.fail_on("pwrite", "a", "ENOSPC", skip=1, times=2)
    file = disk.open("a", create=True)
    file.pwrite(b"1", 0)
    assert disk.fired.total() == 0
    for seen in (1, 2, 2):
        with suppress(Refused):
            file.pwrite(b"1", 0)
        assert disk.fired["pwrite", "ENOSPC"] == disk.fired.total() == seen
