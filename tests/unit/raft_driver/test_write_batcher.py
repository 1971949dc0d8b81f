"""Batches of small writes: for which writes a batch waits, how long, and that no waiting write is forgotten."""

from __future__ import annotations

from typing import Any

from google_crc32c import value as crc

from nyala.replica.raft import AppendEntries
from nyala.replica.raft_driver.pending import Done
from nyala.replica.raft_driver.write_batcher import BATCH_WRITES_MAX, Wait, Write, WriteBatcher
from nyala.replica.types import Applied, Code, EntryKind, Refused
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_start import Answers, level, on, put, started


def small(done: Done = lambda _: None) -> Write:
    return Write(EntryKind.WRITE, 1, b"", b"x", 0, 65, done)


def ended(batcher: WriteBatcher, writers: int, *, index: int = 1, took_us: int = 4_000, waiting: int = 0) -> None:
    """A batch of so many writes that leaves at 0, and is applied; so many more came meanwhile."""
    for n in range(writers):
        batcher.proposed(index + n, 0)
    batcher.leave()
    for _ in range(waiting):
        assert batcher.hold_back(small())
    assert batcher.applied(index + writers - 1)


def batches_of(cluster: SimCluster) -> list[int]:
    """Entries in each append to one of the followers that is sent from now on, heartbeats left out."""
    batches: list[int] = []
    follower: list[str] = []

    def tap(sender: str, receiver: str, message: Any) -> None:
        if isinstance(message, AppendEntries) and message.entries:
            follower[:] = follower or [receiver]
            if receiver == follower[0]:
                batches.append(len(message.entries))

    cluster.network.tap = tap
    return batches


class Writers:
    """So many callers of a leader, each of which writes again `think_us` after its answer, `turns` times in all."""

    def __init__(self, cluster: SimCluster, leader: Any, count: int, turns: int, think_us: int) -> None:
        self._cluster, self._leader, self._think_us = cluster, leader, think_us
        self.left = count * turns
        self.answers: list[Any] = []
        for _ in range(count):
            self._write(turns)

    def _write(self, turns: int) -> None:
        def answered(answer: Any) -> None:
            self.answers.append(answer)
            self.left -= 1
            if turns > 1:
                self._cluster.world.after(self._think_us, lambda: self._write(turns - 1))

        leader = self._leader
        on(self._cluster, leader, lambda: leader.write(EntryKind.WRITE, 1, b"", b"x", crc(b"x"), answered))


def one_of_two_comes_again(cluster: SimCluster, leader: Any) -> Answers:
    """The answers to a write that waits for more of them: it came right after the end of a batch of two."""
    first, again = put(cluster, leader, b"a"), Answers()

    def answered(_: Any) -> None:
        again_now = lambda: leader.write(EntryKind.WRITE, 1, b"", b"again", crc(b"again"), again)  # noqa: E731
        cluster.world.after(1, lambda: on(cluster, leader, again_now))

    on(cluster, leader, lambda: leader.write(EntryKind.WRITE, 1, b"", b"b", crc(b"b"), answered))
    asked = leader.status().writes_pending
    cluster.run_until(lambda: bool(first.all) and leader.status().writes_pending == 1, "one of two comes again")
    assert asked == 2
    return again


def test_batch_waits_for_those_whom_the_last_one_answered() -> None:
    """CN-14. Goal: writers that come again at once share every batch. Method: three writers begin, and three more while
    the first batch is under way; each thinks for 0.3 ms between an answer and its next write. Where no batch waits, one
    half misses the other for ever: some forty batches of three. Here nearly all take all six."""
    for seed in (7, 8, 9):
        cluster = SimCluster(seed)
        leader = started(cluster)
        cluster.run_for(300_000)
        batches = batches_of(cluster)
        early = Writers(cluster, leader, count=3, turns=20, think_us=300)
        cluster.run_for(500)
        late = Writers(cluster, leader, count=3, turns=20, think_us=300)
        written = lambda: early.left == late.left == 0 and sum(batches) >= 120  # noqa: B023, E731
        cluster.run_until(written, "all answered, and sent to both followers")
        assert not any(isinstance(answer, Refused) for answer in early.answers + late.answers)
        assert sum(batches) == 120 and len(batches) <= 24 and len([r for r in batches if r < 6]) <= 4, (seed, batches)


def test_wait_for_more_ends_with_the_last_writer_that_is_expected_or_with_its_time() -> None:
    """CN-14. Goal: a batch waits for the expected writers, up to its time limit. Method: a batch of two ends while one
    waits: the second that comes is the last but one, the third goes at once with the others; another wait ends by its
    time; a stale one ends nothing."""
    batcher = WriteBatcher()
    ended(batcher, 2, waiting=1)
    first = batcher.end(4_000)
    assert first is not None
    assert batcher.hold_back(small()) and not batcher.hold_back(small()) and len(batcher) == 2
    assert len(batcher.take()) == 2 and not batcher.waited(first.number)

    ended(batcher, 3)
    second = batcher.end(4_000)
    assert second is not None and batcher.hold_back(small())
    assert not batcher.waited(first.number), "the time of a wait that was over before"
    assert batcher.waited(second.number) and len(batcher.take()) == 1


def test_single_writer_is_never_held_back() -> None:
    """CN-14. Goal: batching costs nothing where one writes. Method: batches of one with nobody waiting: nothing is
    expected, and the next write is not taken."""
    batcher = WriteBatcher()
    for index in range(1, 6):
        assert not batcher.hold_back(small())
        ended(batcher, 1, index=index)
        assert batcher.end(4_000) is None and not batcher.take()


def test_wait_for_more_is_no_longer_than_half_the_batch_took_and_ten_milliseconds() -> None:
    """CN-14. Goal: a wait costs less than another batch would. Method: batches of 1 ms and of 80 ms."""
    for took_us, limit_us in ((1_000, 500), (80_000, 10_000)):
        batcher = WriteBatcher()
        ended(batcher, 2)
        wait = batcher.end(took_us)
        assert wait is not None and wait.limit_us == limit_us


def test_batches_stop_waiting_where_nobody_comes_again() -> None:
    """CN-14. Goal: callers that write once do not slow others down. Method: waits in which nobody comes are followed
    by 1, 2, 4 ... 64 batches that wait for nobody; after one in which somebody came each batch waits again."""
    batcher = WriteBatcher()
    without: list[int] = []
    for _ in range(9):
        ended(batcher, 2)
        wait = batcher.end(4_000)
        skipped = 0
        while wait is None:
            batcher.take()
            ended(batcher, 2)
            wait = batcher.end(4_000)
            skipped += 1
        without.append(skipped)
        assert batcher.waited(wait.number) and not batcher.take()
    assert without == [0, 1, 2, 4, 8, 16, 32, 64, 64]
    for _ in range(64):
        ended(batcher, 2)
        assert batcher.end(4_000) is None and not batcher.take()
    for _ in range(3):
        ended(batcher, 2)
        wait = batcher.end(4_000)
        assert wait is not None and batcher.hold_back(small())
        assert batcher.waited(wait.number) and len(batcher.take()) == 1


def test_wait_that_everybody_ends_counts_as_one_in_which_somebody_came() -> None:
    """CN-14. Goal: one burst that ends does not stop the waits of the next hundred batches. Method: three waits in
    which nobody comes, one that the last expected writer ends; after the next lonely one, one batch does not wait."""
    batcher = WriteBatcher()

    def waits() -> tuple[Wait, int]:
        """The next wait, and how many batches waited for nobody before it."""
        for skipped in range(100):
            ended(batcher, 2)
            if (wait := batcher.end(4_000)) is not None:
                return wait, skipped
            batcher.take()
        raise AssertionError("no batch waits any more")

    for _ in range(3):
        assert batcher.waited(waits()[0].number) and not batcher.take()
    assert waits()[1] == 4
    assert batcher.hold_back(small()) and not batcher.hold_back(small()) and len(batcher.take()) == 1
    assert batcher.waited(waits()[0].number) and not batcher.take()
    assert waits()[1] == 1


def test_batch_that_goes_on_with_others_counts_nobody_twice() -> None:
    """CN-14. Goal: a writer that is waiting already is not expected a second time. Method: a batch of two has left when
    the one that waits is taken along by a large write; by its end both of the first are back: the next batch expects
    three, not five."""
    batcher = WriteBatcher()
    batcher.proposed(1, 0)
    batcher.proposed(2, 0)
    batcher.leave()
    assert batcher.hold_back(small()) and len(batcher.take()) == 1
    batcher.proposed(3, 1_000)
    batcher.leave()
    assert batcher.hold_back(small()) and batcher.hold_back(small())
    assert batcher.applied(3) and batcher.end(4_000) is not None
    assert not batcher.hold_back(small()), "the third of three"


def test_batch_never_waits_for_more_writers_than_fit_into_it() -> None:
    """CN-14. Goal: what waits is bounded. Method: a full batch ends while another full one waits: one more write would
    be too many, and all leave."""
    batcher = WriteBatcher()
    ended(batcher, BATCH_WRITES_MAX, waiting=BATCH_WRITES_MAX)
    assert batcher.end(4_000) is not None
    assert not batcher.hold_back(small()) and len(batcher.take()) == BATCH_WRITES_MAX


def test_writes_that_wait_for_more_are_answered_whatever_happens_to_the_leader() -> None:
    """CN-26. Goal: nothing that waits is forgotten, nor proposed by one that leads no more. Method: two writers' batch
    ends; one of them comes again and waits; the leader is stopped, then, in another group, deposed: NOT_APPLIED."""
    for end in ("stop", "depose"):
        cluster = SimCluster(8)
        cluster.liars = end == "depose"  # the rival did not send what deposes
        leader = started(cluster)
        cluster.run_for(300_000)
        waits = one_of_two_comes_again(cluster, leader)
        assert leader.status().writes_pending == 1 and leader.last_logged.index == leader.applied_index
        if end == "stop":
            on(cluster, leader, leader.stop)
            assert (waits.one.code, waits.one.applied) == (Code.NOT_READY, Applied.NOT_APPLIED)
        else:
            rival = next(r for r in cluster.replicas if r is not leader)
            term = leader.status().term + 1
            append = AppendEntries(to_uuid=leader.uuid, from_uuid=rival.uuid, term=term, prev=leader.last_logged)
            on(cluster, leader, lambda leader=leader, append=append: leader.step(append))
            on(cluster, leader, lambda leader=leader: leader._executor.pump())
            assert (waits.one.code, waits.one.applied) == (Code.NOT_LEADER, Applied.NOT_APPLIED)
        cluster.run_for(100_000)
        assert len(waits.all) == 1


def test_writes_that_wait_for_more_leave_when_nobody_else_comes() -> None:
    """CN-14. Goal: a wait ends by itself. Method: two writers' batch ends, one comes again: it is answered too, after
    a wait as long as the batch was."""
    cluster = SimCluster(9)
    leader = started(cluster)
    cluster.run_for(300_000)
    again, last = one_of_two_comes_again(cluster, leader), leader.last_logged.index
    assert leader.status().writes_pending == 1
    cluster.run_until(lambda: bool(again.all) and level(cluster), "an answer", 100_000)
    assert not isinstance(again.one, Refused) and leader.last_logged.index == last + 1


def test_syncs_a_write_fall_with_the_number_of_writers_and_a_write_takes_hardly_longer() -> None:
    """CN-06. Goal: group commit: throughput grows with writers, latency stays near flat. Method: 1, 4, 16 and 32
    writers on the virtual clock, begun one after another, 20 writes each: each fourfold makes the leader's syncs a
    write at least three times fewer, and 32 writers' writes take at most twice as long as a lone one's."""
    syncs, took_us = {}, {}
    for count in (1, 4, 16, 32):
        cluster = SimCluster(11)
        leader = started(cluster)
        cluster.run_for(300_000)
        disk, begun_us = cluster.nodes[leader.uuid].disk, cluster.world.now_us
        synced = disk.count("datasync", "wals/*")
        writers = []
        for _ in range(count):
            writers.append(Writers(cluster, leader, count=1, turns=20, think_us=0))
            cluster.run_for(97)
        cluster.run_until(lambda: not any(writer.left for writer in writers), "all answered")  # noqa: B023
        syncs[count] = (disk.count("datasync", "wals/*") - synced) / (20 * count)
        took_us[count] = (cluster.world.now_us - begun_us) / 20
    assert syncs[4] * 3 <= syncs[1] and syncs[16] * 3 <= syncs[4] and syncs[32] < syncs[16], syncs
    assert took_us[32] <= 2 * took_us[1], took_us
