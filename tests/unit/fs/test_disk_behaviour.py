"""One suite over the real disk and the simulated one: our fake must behave like the real disk."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.types import Disk, DiskFailure, InvariantViolation
from tests.harness.sim_disk import SimDisk


@pytest.fixture(params=["real", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "real":
        yield RealDisk(tmp_path)
    else:
        sim = SimDisk()
        yield sim
        sim.close()


def test_file_written_at_offsets_reads_back_with_zeros_between(disk: Disk) -> None:
    """Goal: positional writes. Method: write behind the end, read whole, past the end and in the middle."""
    disk.mkdir("a/b")
    file = disk.open("a/b/f", create=True)
    file.pwrite(b"xyz", 5)
    file.pwritev([b"1", b"", b"23"], 0)
    assert file.pread(100, 0) == b"123\0\0xyz"
    assert file.pread(2, 1) == b"23"
    assert file.pread(10, 100) == b""
    assert (file.size(), disk.size("a/b/f")) == (8, 8)
    file.datasync()
    file.sync()
    file.uncache()
    assert file.pread(2, 1) == b"23"
    file.close()
    file.close()
    assert disk.read("a/b/f") == b"123\0\0xyz"


def test_bytes_sent_to_a_socket_are_the_files_and_a_broken_socket_is_not_a_broken_disk(disk: Disk) -> None:
    """Goal: a file's bytes go out without a copy here, and only a disk's own trouble is a DiskFailure. Method: send
    from the middle, to the end and past it; then to a socket whose other end is gone."""
    file = disk.open("f", create=True)
    file.pwrite(b"0123456789", 0)
    left, right = socket.socketpair()
    with left, right:
        assert file.send_to(left.fileno(), 3, 4) == 4
        assert file.send_to(left.fileno(), 7, 100) == 3
        assert file.send_to(left.fileno(), 10, 1) == 0
        assert right.recv(100, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == b"3456789"
        right.close()
        with pytest.raises(BrokenPipeError):
            file.send_to(left.fileno(), 0, 10)
    file.close()


def test_write_of_more_parts_than_one_call_takes_is_whole(disk: Disk) -> None:
    """Goal: the kernel's limit on parts is hidden. Method: 3000 parts."""
    file = disk.open("f", create=True)
    parts = [bytes([n % 256]) * (n % 5) for n in range(3000)]
    file.pwritev(parts, 7)
    assert file.pread(100_000, 7) == b"".join(parts)
    file.close()


def test_preallocate_grows_with_zeros_and_never_shrinks(disk: Disk) -> None:
    """Goal: preallocation extends a file with zeros and never shortens it. Method: preallocate above and below the
    size, truncate."""
    file = disk.open("f", create=True)
    file.pwrite(b"abc", 0)
    file.preallocate(4096)
    assert (file.size(), file.pread(5, 0)) == (4096, b"abc\0\0")
    file.preallocate(10)
    assert file.size() == 4096
    file.truncate(2)
    assert file.pread(10, 0) == b"ab"
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.close()


def test_replace_leaves_the_whole_new_content_and_no_stray_name(disk: Disk) -> None:
    """Goal: a replaced file has the whole new content, and no temporary name is left. Method: twice, list the
    folder."""
    disk.mkdir("meta")
    disk.replace("meta/t", b"one")
    disk.replace("meta/t", b"two, longer")
    assert disk.read("meta/t") == b"two, longer"
    assert disk.listdir("meta") == ["t"]


def test_replace_that_keeps_room_leaves_the_whole_new_content_and_no_stray_name(disk: Disk) -> None:
    """Goal: a file that is written over a kept one has the new content and nothing of an older one. Method: contents of
    many lengths, read each time; a removed file begins anew."""
    disk.mkdir("meta")
    for length in (40, 3, 700, 0, 5000, 41, 41):
        disk.replace("meta/t", bytes([length % 251]) * length, keep_room=True)
        assert disk.read("meta/t") == bytes([length % 251]) * length
        assert disk.listdir("meta") == ["t"]
    disk.remove("meta/t")
    assert not disk.exists("meta/t")
    disk.replace("meta/t", b"new", keep_room=True)
    assert disk.read("meta/t") == b"new"


def test_rename_moves_files_and_folders_over_what_was_there(disk: Disk) -> None:
    """Goal: a rename replaces the target in one step. Method: a file over a file, then a folder with files below."""
    disk.mkdir("wals/t")
    disk.mkdir("quarantine")
    disk.replace("wals/t/1", b"old")
    disk.replace("wals/t/2", b"new")
    disk.rename("wals/t/2", "wals/t/1")
    disk.rename("wals/t", "quarantine/t")
    assert disk.read("quarantine/t/1") == b"new"
    assert disk.listdir("wals") == []
    assert disk.listdir("quarantine") == ["t"]
    assert not disk.exists("wals/t")


def test_remove_and_remove_tree_take_names_away(disk: Disk) -> None:
    """Goal: removed names are gone, and a second remove_tree is harmless. Method: both, then look."""
    disk.mkdir("d/e")
    disk.replace("d/e/f", b"")
    disk.replace("d/g", b"")
    disk.remove("d/g")
    disk.sync_dir("d")
    assert (disk.exists("d/g"), disk.exists("d/e/f")) == (False, True)
    disk.remove_tree("d")
    disk.remove_tree("d")
    assert not disk.exists("d")
    assert disk.listdir("d") == []


def test_missing_files_are_said_to_be_missing(disk: Disk) -> None:
    """Goal: a missing file raises FileNotFoundError; a file that cannot be created because its folder is gone is a disk
    failure. Method: each call on nothing."""
    for call in (disk.read, disk.size, disk.remove, disk.open):
        with pytest.raises(FileNotFoundError):
            call("nothing")
    with pytest.raises(DiskFailure, match="folder is gone"):
        disk.open("no-folder/f", create=True)
    with pytest.raises(DiskFailure, match="folder is gone"):
        disk.replace("no-folder/f", b"")
    with pytest.raises(FileNotFoundError):
        disk.rename("nothing", "else")
    assert disk.listdir("nothing") == []


def test_names_with_a_dot_in_front_are_not_listed(disk: Disk) -> None:
    """Goal: temporary files are not listed. Method: make one, list."""
    disk.mkdir("d")
    disk.open("d/.tmp", create=True).close()
    assert disk.listdir("d") == []
    assert disk.exists("d/.tmp")


def test_real_path_names_a_file_with_that_content(disk: Disk) -> None:
    """Goal: other libraries can open a file by its real path. Method: read it with plain Python."""
    disk.mkdir("data")
    disk.replace("data/x", b"block")
    assert Path(disk.real_path("data/x")).read_bytes() == b"block"


def test_real_disk_refuses_paths_that_leave_its_root(tmp_path: Path) -> None:
    """Goal: a path cannot leave the disk's root. Method: parent and absolute paths."""
    disk = RealDisk(tmp_path / "root")
    for path in ("../x", "a/../../x", "/etc/passwd"):
        with pytest.raises(InvariantViolation):
            disk.read(path)
