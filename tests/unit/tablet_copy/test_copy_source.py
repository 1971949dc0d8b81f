"""Sessions of a copy's source: bounded in number and time, and everything they name stays readable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nyala.replica.tablet_copy import WHOLE, Asker, CopyManifest, CopySourceSession, FileKind
from nyala.replica.types import Code, OpId, Refused
from tests.harness.copies import TABLET, RestingReplica, Source, new_disk


def source_with_block(sessions_max: int = 4) -> Source:
    replica = RestingReplica(new_disk())
    replica.write([1], "a")
    replica.tablet.flush()
    replica.write([2], "b")
    return Source(replica, sessions_max=sessions_max)


def begin(
    source: Source,
    tablet_id: str,
    requestor: str,
    run: str,
    attempt: int = 0,
    meanwhile: Callable[[], None] = lambda: None,
    asker: Asker = Asker(),
) -> str:
    """A session of a tablet by this name, opened while something else happens."""

    def capture(session_id: str, ttl_us: int) -> CopySourceSession:
        session = source.capture(TABLET, requestor, False, session_id, ttl_us, WHOLE)
        session.tablet_id = tablet_id  # by name only: its files are the one tablet's
        meanwhile()
        return session

    return source.sessions.open(
        tablet_id, requestor, capture, run=run, attempt=attempt, asker=asker
    ).manifest.session_id


def still_open(source: Source) -> set[str]:
    return {s.manifest.session_id for s in source.sessions.sessions()}


def read_all(source: Source, manifest: CopyManifest) -> int:
    return sum(
        len(chunk)
        for f in manifest.files
        for chunk in source.copy_source.fetch(manifest.session_id, f, 0, f.length_bytes)
    )


def test_session_keeps_blocks_and_log_while_the_tablet_moves_on() -> None:
    """Goal: rows CC-07, CC-17 and CC-18. Method: open a session, then write, flush, compact and collect the log: all
    files stay readable and so does every entry after the copy, also for a while after the session ended well."""
    source = source_with_block()
    replica = source.replica
    manifest = source.copy_source.begin(TABLET, "b" * 32, False)
    assert manifest.last_opid == OpId(1, 2) and manifest.first_retained_index == 1
    for index in range(20):
        replica.write([index], "x" * 2000)
        replica.tablet.flush()
        replica.tablet.compact()
    replica.log.roll()
    replica.log.gc(replica.index)
    assert read_all(source, manifest) == manifest.size_bytes
    source.copy_source.end(manifest.session_id, True)
    replica.log.gc(replica.index)
    entries = replica.log.read(2, replica.index + 1, 1 << 20)
    assert [e.opid.index for e in entries] == list(range(2, replica.index + 1))
    source.clock.now_us += 10 * 60 * 1_000_000
    source.sessions.expire()
    assert replica.log.gc(replica.index) > 0
    replica.close()


def test_session_unused_for_its_time_to_live_is_gone() -> None:
    """Goal: a follower that died holds nothing for ever. Method: move the clock past the time to live."""
    source = source_with_block()
    manifest = source.copy_source.begin(TABLET, "b" * 32, False)
    source.clock.now_us += 900
    assert read_all(source, manifest) > 0
    source.clock.now_us += 1001
    with pytest.raises(Refused) as refused:
        read_all(source, manifest)
    assert refused.value.code is Code.EXPIRED
    source.replica.close()


def test_session_says_how_long_nobody_asked_and_ends_just_after_its_time_to_live() -> None:
    """TC-10. Goal: an operator sees a session whose target is gone, and when it ends. Method: the clock up to the time
    to live, over a question, and one past it; what another target asks for keeps only its own session."""
    source = source_with_block()
    ttl_us = source.sessions.ttl_us
    manifest = source.copy_source.begin(TABLET, "b" * 32, False)
    began = source.clock.wall_us()
    source.clock.now_us += ttl_us
    source.sessions.expire()
    (served,) = source.sessions.served()
    assert (served.idle_us, served.started_us, served.session.requestor_uuid) == (ttl_us, began, "b" * 32)
    read_all(source, manifest)
    other = source.copy_source.begin(TABLET, "c" * 32, False)
    source.clock.now_us += ttl_us - 1
    read_all(source, other)
    assert sorted(s.idle_us for s in source.sessions.served()) == [0, ttl_us - 1]
    source.clock.now_us += 2
    source.sessions.expire()
    assert [s.session.requestor_uuid for s in source.sessions.served()] == ["c" * 32]
    source.replica.close()


def test_sessions_are_bounded_and_a_restarted_follower_replaces_its_own() -> None:
    """Goal: nothing unbounded. Method: fill the sessions, ask for one more, then again as an earlier requestor."""
    source = source_with_block(sessions_max=2)
    first = source.copy_source.begin(TABLET, "b" * 32, False)
    source.copy_source.begin(TABLET, "c" * 32, False)
    with pytest.raises(Refused) as refused:
        source.copy_source.begin(TABLET, "d" * 32, False)
    assert refused.value.code is Code.OVERLOADED
    again = source.copy_source.begin(TABLET, "b" * 32, False)
    assert again.session_id != first.session_id and len(source.sessions.sessions()) == 2
    source.replica.close()


def test_member_finds_a_place_whatever_another_host_asks_for() -> None:
    """IN-51. Goal: no host's copies keep a member of the group waiting, and others leave places to
    members. Method: a host that names members asks for five sessions at once, and for the member's own: it gets no more
    than its share, and the member begins and goes on. The same for non-members of many hosts."""
    source = source_with_block()

    def taken(askers: list[Asker]) -> int:
        """How many of those are given a place, each at the server of another uuid, all at once."""
        count = 0

        def next_one() -> None:
            nonlocal count
            if not askers:
                return
            asker = askers.pop()
            try:
                begin(source, f"t{len(askers)}", f"{len(askers):032x}", "", 0, next_one, asker)
                count += 1
            except Refused as refused:
                assert refused.code is Code.OVERLOADED
                next_one()

        next_one()
        return count

    def gone() -> None:
        for session_id in still_open(source):
            source.sessions.end(session_id, False)

    member = Asker("10.0.0.1")
    assert taken([Asker("10.9.9.9")] * 5) == 3
    own = begin(source, "t", "b" * 32, "run", 1, asker=member)
    source.sessions.end(min(still_open(source) - {own}), False)
    begin(source, "t", "b" * 32, "another", 1 << 61, asker=Asker("10.9.9.9"))
    assert own in still_open(source)
    gone()
    assert taken([Asker(f"10.9.9.{n}", is_member=False) for n in range(9)]) == 2
    again = begin(source, "t", "b" * 32, "run", 2, asker=member)
    assert again in still_open(source) and len(still_open(source)) == 3
    gone()
    assert taken([Asker()] * 5) == 4, "a process's own copies are bounded by the sum alone"
    source.replica.close()


def test_another_process_of_a_server_gives_up_what_its_earlier_one_had_begun() -> None:
    """TC-60. Goal: servers that died in their copies leave room for others. Method: sessions of two servers; one comes
    back as another process, for another tablet: its old session is gone, the other server's and its new ones stay; who
    does not say which process it is replaces nothing, and is not replaced by one who says it."""
    source = source_with_block(sessions_max=4)
    begin(source, "t1", "b" * 32, "first")  # and dies
    other = begin(source, "t1", "c" * 32, "first")
    back = begin(source, "t2", "b" * 32, "second")
    assert still_open(source) == {other, back}
    more, silent = begin(source, "t3", "b" * 32, "second"), begin(source, "t4", "b" * 32, "")
    assert still_open(source) == {other, back, more, silent}
    source.sessions.end(more, False)
    last = begin(source, "t5", "b" * 32, "second")
    assert still_open(source) == {other, back, silent, last}
    source.replica.close()


def test_request_that_was_long_on_its_way_ends_no_later_session() -> None:
    """TC-28. Goal: the request of an attempt that is over, of this process of the target or of one before, does not end
    what came after it, while that lasts and for a time to live. Method: a later attempt has a session; earlier ones of
    the same tablet, or of another process, arrive, and lower numbers of other servers and tablets, which are no
    rivals; a later one replaces it, and lasts; when it is over, an earlier number is taken again."""
    source = source_with_block()
    b, c = "b" * 32, "c" * 32
    first = begin(source, "t1", b, "one", 10)
    second = begin(source, "t1", b, "one", 12)
    for run, attempt in (("one", 11), ("zero", 3)):
        with pytest.raises(Refused, match="a later attempt") as refused:
            begin(source, "t1", b, run, attempt)
        assert (refused.value.code, refused.value.detail) == (Code.CAS_FAILED, "12")
    with pytest.raises(Refused, match="a later attempt"):
        begin(source, "t2", b, "zero", 4)
    assert still_open(source) == {second} and first != second
    others = {begin(source, "t2", b, "one", 11), begin(source, "t1", c, "one", 5)}
    assert still_open(source) == {second, *others}
    third = begin(source, "t1", b, "one", 13)
    assert still_open(source) == {third, *others}
    with pytest.raises(Refused, match="a later attempt") as refused:
        begin(source, "t2", b, "zero", 4)
    assert refused.value.detail == "13", "the latest of all"
    source.clock.now_us += source.sessions.ttl_us
    source.sessions.get(third)
    source.clock.now_us += 1
    with pytest.raises(Refused, match="a later attempt"):
        begin(source, "t1", b, "one", 12)
    assert still_open(source) == {third}
    source.sessions.end(third, False)
    begin(source, "t1", b, "one", 12)
    source.replica.close()


def test_attempt_that_has_ended_still_refuses_an_earlier_one_for_a_time_to_live() -> None:
    """TC-28. Goal: a request that was long on its way begins no copy that nobody waits for. Method: an attempt ends; an
    earlier one comes at the end of the time to live, and after it."""
    source = source_with_block()
    source.sessions.end(begin(source, "t1", "b" * 32, "one", 7), False)
    source.clock.now_us += source.sessions.ttl_us
    with pytest.raises(Refused, match="a later attempt"):
        begin(source, "t1", "b" * 32, "one", 6)
    source.clock.now_us += 1
    begin(source, "t1", "b" * 32, "one", 6)
    assert len(still_open(source)) == 1
    source.replica.close()


def test_request_without_a_number_is_never_too_late() -> None:
    """TC-28. Goal: a target that does not number its attempts can copy. Method: it asks after an attempt of its own
    with a number, and again."""
    source = source_with_block()
    begin(source, "t1", "b" * 32, "one", 7)
    again = begin(source, "t1", "b" * 32, "one")
    assert still_open(source) == {again}
    last = begin(source, "t1", "b" * 32, "one")
    assert still_open(source) == {last}
    source.replica.close()


def test_session_that_a_later_one_overtakes_while_it_is_made_is_not_opened() -> None:
    """TC-28. Goal: as above, for a request that is being carried out, slowly, as the later one comes. Method: the later
    one begins in the middle of it; the earlier is refused, has let go of what it held, and the later one goes on."""
    source = source_with_block(sessions_max=2)
    inner: list[str] = []

    def later() -> None:
        inner.append(begin(source, TABLET, "b" * 32, "one", 2))

    with pytest.raises(Refused, match="a later attempt"):
        begin(source, TABLET, "b" * 32, "one", 1, meanwhile=later)
    assert still_open(source) == set(inner)
    more = begin(source, TABLET, "c" * 32, "one", 1)
    for session_id in (*inner, more):
        source.sessions.end(session_id, False)
    replica = source.replica
    replica.write([3], "c")
    replica.tablet.flush()
    replica.log.roll()
    replica.write([4], "d")
    assert replica.log.gc(replica.index) > 0, "nothing holds the log"
    replica.close()


@pytest.mark.parametrize(
    ("kind", "name", "offset", "length", "code"),
    [
        (1, "no-such-file", 0, 1, Code.NOT_FOUND),
        (2, "../instance", 0, 1, Code.NOT_FOUND),
        (9, "", 0, 1, Code.NOT_FOUND),
        (1, "", 0, 1 << 40, Code.INVALID_ARGUMENT),
        (1, "", -1, 1, Code.INVALID_ARGUMENT),
    ],
)
def test_fetch_outside_of_the_session_is_refused(kind: int, name: str, offset: int, length: int, code: Code) -> None:
    """Goal: a session serves what it names and nothing else. Method: foreign names, kinds and ranges."""
    source = source_with_block()
    manifest = source.copy_source.begin(TABLET, "b" * 32, False)
    block = next(f for f in manifest.files if f.kind is FileKind.BLOCK)
    session = source.sessions.get(manifest.session_id)
    with pytest.raises(Refused) as refused:
        list(session.read(kind, name or block.name, offset, length))
    assert refused.value.code is code
    source.replica.close()
