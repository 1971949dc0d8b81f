"""One session of a copy's source: what it names and holds, and how its files are served until it ends."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator

import google_crc32c
import pytest

from nyala.replica.tablet_copy import WHOLE, CopyManifest, CopyWanted, FileKind
from nyala.replica.tablet_copy.source import LINGER_US, LogSums, _retained, file_path
from nyala.replica.types import Code, Corruption, DiskFailure, OpId, Refused, limits
from nyala.replica.wal import SegmentInfo
from tests.harness.copies import TABLET, RestingReplica, Source, new_disk

CHUNK = limits.COPY_CHUNK_BYTES


def _source() -> Source:
    """Entries 1 and 2 in one segment and a block, 3 and 4 in an open segment."""
    replica = RestingReplica(new_disk())
    replica.write([1], "a")
    replica.write([2], "b")
    replica.tablet.flush()
    replica.log.roll()
    replica.write([3], "c")
    replica.write([4], "d")
    return Source(replica)


def _begin(source: Source, wanted: CopyWanted = WHOLE) -> CopyManifest:
    return source.copy_source.begin(TABLET, "b" * 32, False, wanted)


def _segments(manifest: CopyManifest) -> list[str]:
    return [each.name for each in manifest.files if each.kind is FileKind.WAL_SEGMENT]


def _collects(source: Source) -> bool:
    """Whether nothing holds the log: its oldest segment goes."""
    source.replica.log.roll()
    source.replica.write([9], "z")
    return source.replica.log.gc(source.replica.index) > 0


def test_checksum_of_a_file_is_of_its_content_and_read_in_chunks() -> None:
    """Goal: what is recorded is what is sent, and little of it is in memory. Method: a file of two chunks and a
    half with bytes behind them; the lengths of the reads; the same file as if it were longer."""
    disk, content = new_disk(), os.urandom(5 * CHUNK // 2)
    disk.poke("f", content + b"behind")
    file = disk.open("f")
    assert LogSums().crc_of("f", file, len(content)) == google_crc32c.value(content)
    assert [call.length_bytes for call in disk.calls if call.operation == "pread"] == [CHUNK, CHUNK, CHUNK // 2]
    with pytest.raises(Refused, match="shorter than recorded") as refused:
        LogSums().crc_of("f", file, len(content) + 7)
    assert refused.value.code is Code.CORRUPTION


def test_checksum_that_was_left_is_continued_and_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-11. Goal: a source whose disk is slow gets on with each attempt of a target, and the sum is that of the file.
    Method: a caller that leaves after each chunk: each is read once. Another length of the file is another sum; a
    folder is forgotten, and no other; more files than are kept."""
    disk, content = new_disk(), os.urandom(4 * CHUNK + 5)
    disk.poke("wals/t/s", content)
    file, sums = disk.open("wals/t/s"), LogSums()
    for attempt in range(4):
        looks = iter(range(1))

        def stop(looks: Iterator[int] = looks) -> None:
            if next(looks, None) is None:
                raise Refused(Code.EXPIRED, "the caller left")

        with pytest.raises(Refused, match="the caller left"):
            sums.crc_of("wals/t/s", file, len(content), stop)
        assert len([call for call in disk.calls if call.operation == "pread"]) == attempt + 1
    assert sums.crc_of("wals/t/s", file, len(content)) == google_crc32c.value(content)
    assert [call.length_bytes for call in disk.calls if call.operation == "pread"] == [*[CHUNK] * 4, 5]
    assert sums.crc_of("wals/t/s", file, CHUNK) == google_crc32c.value(content[:CHUNK])
    assert len([call for call in disk.calls if call.operation == "pread"]) == 6
    sums.forget("wals/other")
    assert sums.crc_of("wals/t/s", file, len(content)) == google_crc32c.value(content)
    assert len([call for call in disk.calls if call.operation == "pread"]) == 6
    sums.forget("wals/t")
    assert sums.crc_of("wals/t/s", file, 9) == google_crc32c.value(content[:9]) and len(sums._kept) == 1
    monkeypatch.setattr(limits, "COPY_LOG_SUMS_MAX", 3)
    for number in range(5):
        sums.crc_of(f"wals/t/{number}", file, 9)
    assert [path for path, _ in sums._kept] == ["wals/t/2", "wals/t/3", "wals/t/4"]


def test_segments_of_a_session_are_those_with_what_is_wanted_and_all_between() -> None:
    """CC-07. Goal: the copied log has no gap, and nothing that the superblock has. Method: every order of four segments
    of which each has two entries, has none, or has entries again that were replaced; every index."""
    for kinds in itertools.product(["full", "empty", "again"], repeat=4):
        segments, last = list[SegmentInfo](), 0
        for number, kind in enumerate(kinds, 1):
            first = last + 1 if kind != "again" else max(1, last - 1)
            end = first - 1 if kind == "empty" else first + 1
            segments.append(SegmentInfo(number, f"s{number}", first, end, 100, True))
            last = max(last, end)
        for below in range(last + 2):
            wanted = [s.number for s in segments if s.last_index > below and s.last_index >= s.first_index]
            expected = list(range(wanted[0], wanted[-1] + 1)) if wanted else []
            assert [s.number for s in _retained(segments, below)] == expected


def test_manifest_names_the_segments_behind_the_flushed_entries() -> None:
    """CC-07. Goal: no byte is copied twice. Method: a session names one of two segments, all that it names is closed,
    so that what is appended later is elsewhere; with a config that the metadata does not have yet it names both; no
    file stays open for the checksums."""
    source = _source()
    log = source.replica.log
    old, new = (info.name for info in log.segments())
    source.config_index = source.replica.cmeta.committed_config.opid.index
    manifest = _begin(source)
    assert (_segments(manifest), manifest.first_retained_index, manifest.last_opid) == ([new], 3, OpId(1, 4))
    assert all(info.closed for info in log.segments()) and not any(
        count for path, count in source.replica.disk.handles.items() if "wals/" in path
    )
    source.config_index += 1
    manifest = _begin(source)
    assert (_segments(manifest), manifest.first_retained_index) == ([old, new], 1)
    source.replica.close()


def test_log_is_left_out_only_if_the_leader_knows_what_is_committed() -> None:
    """Goal: a witness never misses what it acknowledged. Method: a leader whose committed entry is of its term,
    and as high as what the requestor acknowledged; each of these and the config's being stale takes the log along."""
    source, wanted = _source(), CopyWanted(log_only=True, acknowledged=OpId(1, 4))
    source.committed = OpId(1, 4)
    source.config_index = source.replica.cmeta.committed_config.opid.index
    manifest = _begin(source, wanted)
    assert (manifest.files, manifest.last_opid, manifest.first_retained_index) == ((), OpId(1, 4), 5)
    for name, value in (
        ("is_leader", False),
        ("committed", OpId(1, 3)),
        ("committed", OpId(0, 9)),
        ("config_index", 9),
    ):
        good = getattr(source, name)
        setattr(source, name, value)
        assert _segments(_begin(source, wanted)), name
        setattr(source, name, good)
    source.replica.close()


@pytest.mark.parametrize("fails", ["flush", "commit", "hold", "open", "pread"])
def test_session_that_cannot_be_opened_holds_nothing(fails: str) -> None:
    """Goal: log GC goes on, and no file stays open. Method: a source that has not flushed or not logged enough;
    a disk that fails as a segment is opened, or read."""
    source, wanted = _source(), WHOLE
    disk = source.replica.disk
    handles = disk.handles.copy()
    if fails == "flush":
        wanted = CopyWanted(flushed=OpId(1, 3))
    elif fails == "commit":
        source.commit_index = 9
    elif fails == "hold":
        source.replica.tablet.hold = None  # type: ignore[assignment]
    else:
        disk.fail_on(fails, "wals/*")
    with pytest.raises((Refused, DiskFailure, TypeError)):
        _begin(source, wanted)
    assert not source.sessions.sessions() and not disk.handles - handles
    assert _collects(source)


def test_files_are_served_until_the_session_ends() -> None:
    """Goal: who reads on after the end is told so, and operators see what was sent. Method: a block by chunks
    and through a socket; its length; then the session ends while it is open."""
    source = _source()
    manifest = _begin(source)
    session = source.sessions.get(manifest.session_id)
    block = next(each for each in manifest.files if each.kind is FileKind.BLOCK)
    content = source.replica.disk.read(file_path(TABLET, block.kind, block.name))
    given = (int(block.kind), block.name, 0, block.length_bytes)
    with session.opened(*given) as file:
        assert file.read(0, 10) + file.read(10, 5) == content[:15] and session.bytes_served == 15
        ours, theirs = socket.socketpair()
        with ours, theirs:
            file.send(ours.fileno(), 3, 20)
            ours.shutdown(socket.SHUT_WR)
            assert theirs.makefile("rb").read() == content[3:23] and session.bytes_served == 35
        file.check_length(block.length_bytes)
        for call in (lambda: file.check_length(block.length_bytes + 1), lambda: file.read(block.length_bytes, 1)):
            with pytest.raises(Refused, match="became shorter") as refused:
                call()
            assert refused.value.code is Code.CORRUPTION
        session.verify_block(block.name)
        source.sessions.end(manifest.session_id, False)
        late = (lambda: file.read(0, 1), lambda: file.check_length(1), lambda: session.verify_block(block.name))
        for call in late:
            with pytest.raises(Refused) as refused:
                call()
            assert refused.value.code is Code.EXPIRED
    with pytest.raises(Refused, match="has ended"), session.opened(*given):
        pass
    source.replica.close()


def test_range_of_a_file_is_served_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-11. Goal: a reader needs the memory of a chunk. Method: a range of 25 bytes in chunks of 10, an empty one, and
    one of less than nothing; no file stays open."""
    source = _source()
    manifest = _begin(source)
    session, disk = source.sessions.get(manifest.session_id), source.replica.disk
    block = next(each for each in manifest.files if each.kind is FileKind.BLOCK)
    path = file_path(TABLET, block.kind, block.name)
    content, handles = disk.read(path), disk.handles.copy()
    monkeypatch.setattr(limits, "COPY_CHUNK_BYTES", 10)
    chunks = [*session.read(int(block.kind), block.name, 7, 25)]
    assert chunks == [(7, content[7:17]), (17, content[17:27]), (27, content[27:32])]
    assert [*session.read(int(block.kind), block.name, 7, 0)] == []
    with pytest.raises(Refused) as refused:
        next(session.read(int(block.kind), block.name, 7, -1))
    assert refused.value.code is Code.INVALID_ARGUMENT and disk.handles == handles
    source.replica.close()


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_block_that_cannot_be_read_is_lost_and_a_segment_is_not(operation: str) -> None:
    """Goal: a replica that lost a block is replaced, and a failing disk of logs is told as that. Method: EIO as a file
    is opened and read."""
    source = _source()
    manifest = _begin(source)
    for named in (manifest.files[0], manifest.files[-1]):
        source.replica.disk.fail_on(operation, "*")
        with pytest.raises(Corruption if named.kind is FileKind.BLOCK else DiskFailure):
            [*source.copy_source.fetch(manifest.session_id, named, 0, named.length_bytes)]
    assert {manifest.files[0].kind, manifest.files[-1].kind} == {FileKind.BLOCK, FileKind.WAL_SEGMENT}
    source.replica.close()


def test_block_of_a_session_is_verified_by_its_name() -> None:
    """Goal: a target's doubt finds the damage, and nothing else is taken for a block. Method: whole, of another
    name, a segment's name, with a changed byte, gone."""
    source = _source()
    manifest = _begin(source)
    session, disk = source.sessions.get(manifest.session_id), source.replica.disk
    blocks = [each for each in manifest.files if each.kind is FileKind.BLOCK]
    assert len(blocks) > 1
    for block in blocks:
        path = file_path(TABLET, block.kind, block.name)
        session.verify_block(block.name)
        disk.corrupt(path, 5)
        with pytest.raises(Corruption):
            session.verify_block(block.name)
        disk.corrupt(path, 5)
    for name in (*_segments(manifest), "other"):
        with pytest.raises(Refused, match="no such block"):
            session.verify_block(name)
    disk.remove(path)
    with (
        pytest.raises(Corruption, match="is gone"),
        session.opened(int(block.kind), block.name, 0, block.length_bytes),
    ):
        pass
    source.replica.close()


def test_tablet_that_is_stopped_ends_its_sessions_and_no_others() -> None:
    """Goal: a tablet can be deleted while it is copied, and other copies go on. Method: two sessions and one
    that ended well and whose anchor is kept, of this tablet and, by name, of another one."""
    source = _source()
    ended, mine = _begin(source), source.copy_source.begin(TABLET, "c" * 32, False)
    source.copy_source.end(ended.session_id, True)
    other = source.copy_source.begin(TABLET, "d" * 32, False)
    source.sessions.get(other.session_id).tablet_id = "other"
    source.sessions.end_tablet("none")
    assert len(source.sessions.sessions()) == 2 and not _collects(source)
    source.sessions.end_tablet(TABLET)
    (left,) = source.sessions.sessions()
    assert left.manifest.session_id == other.session_id and not _collects(source)
    with pytest.raises(Refused, match="no such copy session"):
        source.sessions.get(mine.session_id)
    source.copy_source.end(other.session_id, True)
    assert not _collects(source), "its anchor lingers"
    source.sessions.end_tablet(TABLET)
    assert not _collects(source)
    source.sessions.end_tablet("other")
    assert _collects(source)
    source.replica.close()


def test_log_of_a_finished_copy_stays_for_its_time_and_that_of_a_failed_one_goes_at_once() -> None:
    """CC-18. Goal: a new follower finds the entries behind its copy until it follows, and no longer. Method: a copy
    that fails, one that is replaced by the next of its target, and one that succeeds, looked at on both sides of the
    time; an end that comes twice, or for a session that is none, is nothing."""
    source = _source()
    failed = _begin(source)
    source.copy_source.end(failed.session_id, False)
    assert _collects(source)
    source.replica.tablet.flush()
    _begin(source)
    _begin(source)
    (session,) = source.sessions.sessions()
    manifest = session.manifest
    for session_id in (manifest.session_id, manifest.session_id, failed.session_id, "none"):
        source.copy_source.end(session_id, True)
    source.replica.tablet.flush()
    source.sessions.expire()
    assert not _collects(source)
    source.clock.now_us += LINGER_US
    source.sessions.expire()
    assert not _collects(source)
    source.clock.now_us += 1
    source.sessions.expire()
    assert _collects(source) and not source.sessions._lingering, "nothing of it is kept"
    source.replica.close()


def test_session_whose_target_is_silent_holds_nothing_any_more() -> None:
    """TC-10. Goal: a follower that died in its copy does not keep the log for ever. Method: log GC at the end of the
    time to live, and after it."""
    source = _source()
    _begin(source)
    source.replica.tablet.flush()
    for later, collects in ((source.sessions.ttl_us, False), (1, True)):
        source.clock.now_us += later
        source.sessions.expire()
        assert _collects(source) == collects
    source.replica.close()
