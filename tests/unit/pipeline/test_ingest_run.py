"""One run of the ingest query: its checks before it reads, when `done` moves, and the state that it leaves."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nyala.pipeline import QueryInterrupted, QueryRefused, lease
from nyala.pipeline.lease import SourceLease, release_run
from nyala.pipeline.owner import ProcessPlace, new_owner_run, this_process
from nyala.pipeline.task import TaskPlan
from nyala.pipeline.topics import TopicIdentity
from nyala.replica.rpc import pb, source_to_pb
from nyala.replica.types import Code, Refused
from tests.harness.cluster import wait_until
from tests.harness.spark_alone import TOPIC, World, totals

LIFE = TopicIdentity("c", TOPIC, "first", 1)
ELSEWHERE = "host/1/1-0-abc"
"""A run of which nobody here can know whether its process lives."""
CHANGED = r"has 2 partitions and had 1|deleted and created again|another Kafka cluster's now \(c, now other\)"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def never(_: TaskPlan) -> list[Any]:
    raise AssertionError("nothing may be read")


def test_done_moves_when_all_tasks_have_ended_and_before_spark_commits(world: World) -> None:
    """Goal: `done` moves after all rows are in the tables and before Spark commits. Method: what the catalog says while
    tasks run, and at each commit; then tasks that fail: nothing moves, and nothing is committed. The offsets that
    tablets have acknowledged to one micro-batch are known to the next."""
    trail: list[Any] = []

    def tasks(plan: TaskPlan) -> list[Any]:
        trail.append(("tasks", world.masters.done()[0], dict(plan.known)))
        if len(trail) > 4:
            raise RuntimeError("a worker died")
        at = world.masters.done()[0]
        return totals(0, 10, {"a": at + 8, "b": at + 9} if at == 0 else {"b": at + 9})

    world.spark.ends, world.spark.tasks = [{0: 10}, {0: 20}, {0: 30}], tasks
    world.spark.commits = lambda number: trail.append((f"commit {number}", world.masters.done()[0]))
    with pytest.raises(QueryInterrupted, match="a worker died"):
        world.run()
    assert trail == [
        ("tasks", 0, {}),
        ("commit 0", 10),
        ("tasks", 10, {0: {"a": 8, "b": 9}}),
        ("commit 1", 20),
        ("tasks", 20, {0: {"a": 8, "b": 19}}),
    ]
    assert world.masters.done() == {0: 20}


def test_reading_begins_where_the_catalog_is_done_and_skips_no_partition(world: World) -> None:
    """Goal: after a lost checkpoint, reading begins at `done` of each partition. Method: two partitions, one of which
    gets further. The checkpoint is lost; what Spark is told to begin at, and that it may not pass over what Kafka has
    removed."""
    world.broker.partitions = 2
    world.spark.ends = [{0: 10, 1: 0}]
    world.run()
    assert json.loads(world.spark.options["startingOffsets"]) == {TOPIC: {"0": 0, "1": 0}}
    world.lose_checkpoint()
    world.spark.ends = []
    world.run()
    assert json.loads(world.spark.options["startingOffsets"]) == {TOPIC: {"0": 10, "1": 0}}
    assert world.spark.options["failOnDataLoss"] == "true"
    assert world.spark.options["kafka.isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    ("own", "refusal"),
    [
        ({"table_id": "dropped"}, "checkpoint belongs to a table that was dropped"),
        ({"topic_id": "earlier"}, "is of another topic writes.flights .id earlier, now first"),
    ],
)
def test_checkpoint_of_another_table_or_topic_is_refused_before_anything_is_read(
    own: dict[str, str], refusal: str, world: World
) -> None:
    """Goal: offsets of one table or topic are never taken for another's, though the names are the same. Method: a
    checkpoint whose own file names another; no stream begins, nobody owns the source, and the file stays."""
    world.run()
    said = json.loads(world.own().read_text())
    assert said == {"table_id": world.masters.table_id, "topic_id": "first"}
    world.own().write_text(json.dumps(said | own))
    world.spark.tasks = never
    with pytest.raises(QueryRefused, match=refusal):
        world.run()
    assert world.spark.streams == 1 and world.masters.owners() == {""}
    assert json.loads(world.own().read_text()) == said | own


@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("owner", ["", ELSEWHERE])
def test_topic_of_another_kafka_cluster_is_refused_without_a_checkpoint(
    owner: str, starting: str, world: World
) -> None:
    """Goal: a topic of the same name in another Kafka cluster is refused, so a table lacks no rows and gets none twice.
    Method: one run; checkpoint lost; the same name elsewhere, whether another query still reads the old topic or not.
    No stream begins, and the old position stays."""
    world.run()
    world.lose_checkpoint()
    if owner:
        open_as(world, owner)
    world.broker.cluster_id, world.broker.topic_id, world.spark.tasks = "other", "second", never
    refusal = "belongs to another Kafka cluster.*known_cluster_id=c, now_cluster_id=other.*nothing was applied"
    with pytest.raises(QueryRefused, match=refusal):
        world.run(starting=starting)
    assert world.spark.streams == 1 and world.masters.done() == {0: 10} and world.masters.owners() == {owner}


def test_topic_that_grew_between_runs_is_refused_until_just_that_is_accepted(world: World) -> None:
    """Goal: keys that changed partitions are never read out of order unasked. Method: grow from one to two; the number
    accepted is none, the old one, too many; then the right one. With the checkpoint and without."""
    world.run()
    world.broker.partitions = 2
    world.spark.tasks = never
    for lost in (False, True):
        if lost:
            world.lose_checkpoint()
        for accepted in (0, 1, 3):
            with pytest.raises(QueryRefused, match=r"has 2 partitions and had 1.*--accept-partitions 2"):
                world.run(accept_partitions=accepted)
    assert world.spark.streams == 1 and world.masters.done() == {0: 10}
    world.spark.tasks, world.spark.ends = (lambda _: []), [{0: 10, 1: 5}]
    world.run(accept_partitions=2)
    assert world.masters.done() == {0: 10, 1: 5}


@pytest.mark.parametrize("change", [{"partitions": 2}, {"topic_id": "second"}, {"cluster_id": "other"}])
@pytest.mark.parametrize("when", ["tasks", "commit"])
def test_topic_that_changes_under_a_query_ends_it_before_done_moves(
    when: str, change: dict[str, Any], world: World
) -> None:
    """Goal: if the topic was recreated or grew, the query ends before `done` moves. Method: it changes while tasks run,
    or between two micro-batches, and the thread that looks at it is asleep."""
    ran: list[int] = []

    def changed() -> None:
        vars(world.broker).update(change)

    def tasks(_: TaskPlan) -> list[Any]:
        ran.append(len(ran))
        if when == "tasks" and len(ran) == 2:
            changed()
        return []

    world.spark.ends, world.spark.tasks = [{0: 10}, {0: 20}, {0: 30}], tasks
    world.spark.commits = lambda number: changed() if (when, number) == ("commit", 0) else None
    with pytest.raises(QueryRefused, match=CHANGED):
        world.run()
    assert len(ran) == (2 if when == "tasks" else 1)
    assert world.masters.done() == {0: 10} and world.masters.owners() == {""}


@pytest.mark.parametrize("end", [None, RuntimeError("Spark has a bad day"), SystemExit(0)])
def test_lease_is_given_back_however_a_run_ends(end: BaseException | None, world: World) -> None:
    """Goal: a run gives its lease back however it ends, so the next one does not wait. Method: a run that catches up,
    one that fails, one that SIGTERM ends; the source is owned while tasks run, and by nobody afterwards. `done` stays
    where it was."""
    seen: list[set[str]] = []

    def tasks(_: TaskPlan) -> list[Any]:
        seen.append(world.masters.owners())
        return []

    def commits(_: int) -> None:
        if end is not None:
            raise end

    world.spark.tasks, world.spark.commits = tasks, commits
    query = world.query(owner_run="mine")
    if end is None:
        query.run()
    else:
        with pytest.raises(SystemExit if isinstance(end, SystemExit) else QueryInterrupted):
            query.run()
    assert seen == [{"mine"}] and world.masters.owners() == {""} and world.masters.done() == {0: 10}


class Idle:
    """A query that has read all there is, and what it ends with. It looks after lease and topic all the time."""

    def __init__(self, world: World) -> None:
        world.spark.idle, world.spark.ends = True, [{0: 10}]
        self.ended: list[BaseException] = []
        self._query = world.query(owner_run="mine", lease_s=0.03)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until(lambda: self.ended or world.masters.done() == {0: 10}, "all is read")
        assert self.ended == []

    def _run(self) -> None:
        try:
            self._query.run()
        except BaseException as error:  # noqa: BLE001 - what it ends with is what a test asks for
            self.ended.append(error)

    def wait_refusal(self) -> str:
        """Return the operator's text, once the query has ended by itself."""
        wait_until(lambda: bool(self.ended), "the query ends")
        assert isinstance(self.ended[0], QueryRefused)
        return str(self.ended[0])


def test_lease_taken_from_a_query_that_waits_for_records_ends_it(world: World) -> None:
    """Goal: a query whose lease was taken ends without another micro-batch, and does not release the new owner's lease.
    Method: while it is idle and renews, the source is released by hand and opened by another run: whichever of the two
    it sees."""
    idle = Idle(world)
    (before,) = world.masters.sources()
    world.masters.now_us += 1_000_000
    renewed = lambda: world.masters.sources()[0].owner_deadline_us > before.owner_deadline_us  # noqa: E731
    wait_until(renewed, "an idle query renews")
    release_run(world.masters, world.masters.sources())  # type: ignore[arg-type]
    open_as(world, ELSEWHERE)
    refusal = idle.wait_refusal()
    assert any(text in refusal for text in ("was given back", "another query owns this source now")), refusal
    assert world.masters.owners() == {ELSEWHERE}


@pytest.mark.parametrize("change", [{"partitions": 2}, {"topic_id": "second"}, {"cluster_id": "other"}])
def test_topic_that_changes_while_a_query_waits_for_records_ends_it(change: dict[str, Any], world: World) -> None:
    """Goal: an idle query ends when its topic was recreated, and goes on while Kafka is away. Method: the broker
    answers nothing when it is asked again and again, then says that the topic is another one."""
    idle = Idle(world)
    world.broker.away = True
    wait_until(lambda: world.broker.asked_in_vain > 2 or idle.ended, "the topic is asked for in vain")
    assert idle.ended == [] and world.masters.owners() == {"mine"}
    vars(world.broker).update(change)
    world.broker.away = False
    assert re.search(CHANGED, idle.wait_refusal())
    wait_until(lambda: world.masters.owners() == {""}, "the lease is given back")


def open_as(
    world: World,
    owner_run: str,
    wait_s: float = 0.0,
    stopping: threading.Event | None = None,
    partitions: tuple[int, ...] = (0,),
) -> SourceLease:
    """A lease of 30 s of these sources, taken as a query takes it."""
    taken = SourceLease(world.masters, world.masters.table, LIFE, owner_run, 30.0)  # type: ignore[arg-type]
    wanted = [
        pb.SourceOpen(source=source_to_pb(taken.source(each)), topic=TOPIC, initial_start=0) for each in partitions
    ]
    taken.open(wanted, "", wait_s, stopping or threading.Event())
    return taken


def test_lease_is_as_long_as_asked_for_and_renewed_three_times_in_that_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a lease is renewed three times in its length, so two failed renewals do not lose it. Method: the deadline
    that the catalog keeps; how long a query waits between renewals, of which the first two find no master, and how long
    each call may take."""
    taken, advance, timeouts = open_as(world, "mine"), world.masters.advance_sources, list[float | None]()

    def advance_sources(*given: Any, timeout_s: float | None, **named: Any) -> Any:
        timeouts.append(timeout_s)
        if len(timeouts) <= 2:
            raise Refused(Code.UNAVAILABLE, "no master answers")
        return advance(*given, **named)

    monkeypatch.setattr(world.masters, "advance_sources", advance_sources)
    (source,) = world.masters.sources()
    assert source.owner_deadline_us - world.masters.now_us == 30_000_000
    waits: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return len(waits) > 3

    world.masters.now_us += 29_000_000
    taken.renew_until(Stopping(), lambda refusal: pytest.fail(str(refusal)))
    (source,) = world.masters.sources()
    assert source.owner_deadline_us - world.masters.now_us == 30_000_000
    taken.release()
    assert waits == [10.0] * 4 and timeouts == [None, None, None, lease.RELEASE_TIMEOUT_S]


def test_micro_batch_that_comes_again_moves_nothing_back(world: World) -> None:
    """Goal: an older checkpoint repeats micro-batches and moves no position back. Method: a micro-batch below what is
    done; the catalog and what the next tasks are told stay where they were."""
    taken = open_as(world, "mine")
    for end in (10, 7):
        taken.advance({0: end})
        assert {each: at.done for each, at in taken.positions.items()} == world.masters.done() == {0: 10}


def test_partitions_of_an_earlier_life_of_the_topic_are_not_this_ones(world: World) -> None:
    """Goal: a recreated topic is not reported as one that grew or shrank. Method: a table that was fed from three
    partitions of the first one, looked at by a query of the second."""
    earlier = open_as(world, "earlier", partitions=(0, 1, 2))
    again = replace(LIFE, topic_id="second")
    now = SourceLease(world.masters, world.masters.table, again, "mine", 30.0)  # type: ignore[arg-type]
    assert (earlier.known_partitions(), now.known_partitions()) == (3, 0)


def test_run_that_holds_no_source_gives_none_back_and_one_that_cannot_does_not_fail(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a query that cannot release its lease still ends with its own reason. Method: masters that refuse
    everything, as a query ends that never took a source, and one that holds one; they are asked for the latter only."""
    taken, asked = open_as(world, "mine"), list[Any]()
    never_opened = SourceLease(world.masters, world.masters.table, LIFE, "mine", 30.0)  # type: ignore[arg-type]

    def away(*given: Any, **_: Any) -> None:
        asked.append(given)
        raise Refused(Code.UNAVAILABLE, "no master answers")

    monkeypatch.setattr(world.masters, "advance_sources", away)
    never_opened.release()
    assert asked == []
    taken.release()
    assert len(asked) == 1 and world.masters.owners() == {"mine"}


def test_refusal_that_is_no_owners_is_told_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a run waits only for another owner's lease; any other refusal ends it at once. Method: masters that are too
    busy to open a source, asked with patience."""

    def busy(*_: Any, **__: Any) -> None:
        raise Refused(Code.OVERLOADED, "too busy")

    def looks() -> None:
        raise AssertionError("nobody's lease is waited for")

    monkeypatch.setattr(world.masters, "open_sources", busy)
    world.masters.looks = looks
    with pytest.raises(Refused, match="too busy"):
        open_as(world, "patient", wait_s=600.0)


def test_lease_of_a_dead_run_is_taken_at_once_and_a_living_ones_is_not(world: World) -> None:
    """Goal: after kill -9, the next run on that machine takes the lease at once; a lease of a run that may be alive is
    not taken. Method: a source that is owned by an earlier process with this pid, by this very process, by one
    elsewhere; open it without patience."""
    me = this_process()
    open_as(world, new_owner_run(ProcessPlace(me.machine, me.pid, me.start - 1)))
    living = new_owner_run()
    open_as(world, living).release()
    for owner in (living, ELSEWHERE):
        owned = open_as(world, owner)
        with pytest.raises(Refused, match=f"another query owns this source.*owner={owner}") as refusal:
            open_as(world, "late")
        assert refusal.value.code is Code.SOURCE_OWNED and world.masters.owners() == {owner}
        owned.release()
        assert world.masters.owners() == {""}


def test_lease_of_a_dead_run_is_released_beside_one_that_lives(world: World) -> None:
    """Goal: what a living run owns is not touched, and what a dead one owned is free. Method: of two partitions one is
    a dead run's, the other a living one's; a third run asks for both."""
    me = this_process()
    open_as(world, ELSEWHERE, partitions=(0,))
    open_as(world, new_owner_run(ProcessPlace(me.machine, me.pid, me.start - 1)), partitions=(1,))
    with pytest.raises(Refused, match=f"another query owns this source.*owner={ELSEWHERE}"):
        open_as(world, "late", partitions=(0, 1))
    assert {p.source.kafka_partition: p.owner_run for p in world.masters.sources()} == {0: ELSEWHERE, 1: ""}


def test_lease_is_waited_for_until_it_runs_out_or_is_seen_to_be_renewed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a run waits for a lease of another machine until it expires, ends when the owner renews it, and ends when
    it is stopped. Method: an owner that renews under the third look; one whose lease ends under it; a query that was
    told to stop. The topic's other partition is nobody's."""
    monkeypatch.setattr(lease, "POLL_S", 0.001)
    looks: list[int] = []
    open_as(world, "earlier", partitions=(1,)).release()
    owner = open_as(world, ELSEWHERE)

    def renews() -> None:
        looks.append(len(looks))
        world.masters.now_us += 1_000_000
        if len(looks) == 3:
            owner.advance({})
        if len(looks) > 3:
            owner.release()

    world.masters.looks = renews
    with pytest.raises(Refused, match="another query owns this source"):
        open_as(world, "patient", wait_s=600.0)
    assert len(looks) == 3 and world.masters.owners() == {ELSEWHERE, ""}

    world.masters.looks = lambda: None
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Refused, match="another query owns this source"):
        open_as(world, "stopped", 600.0, stopping)

    looks.clear()

    def runs_out() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            world.masters.now_us += 3600_000_000

    world.masters.looks = runs_out
    open_as(world, "patient", wait_s=600.0)
    assert len(looks) == 3 and world.masters.owners() == {"patient", ""}


def test_lease_of_a_dead_run_that_another_query_released_first_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: two queries that find one dead owner do not end each other. Method: the lease is given back between this
    one's look and its own try; and masters that refuse for another reason are heard."""
    monkeypatch.setattr(lease, "POLL_S", 0.001)
    me = this_process()
    dead = new_owner_run(ProcessPlace(me.machine, me.pid, me.start - 1))
    owner = open_as(world, dead)

    def another_was_faster(_: str) -> bool:
        owner.release()
        return True

    with monkeypatch.context() as patch:
        patch.setattr(lease, "is_dead", another_was_faster)
        open_as(world, "mine", wait_s=600.0).release()
    open_as(world, dead)

    def busy(*_: Any, **__: Any) -> None:
        raise Refused(Code.OVERLOADED, "too busy")

    monkeypatch.setattr(world.masters, "advance_sources", busy)
    with pytest.raises(Refused, match="too busy"):
        open_as(world, "mine")


def test_lease_of_a_table_that_was_dropped_ends_the_query_with_what_to_do(world: World) -> None:
    """Goal: a query ends if its table was dropped, even if another one has its name. Method: a table that the catalog
    does not know any more, at a micro-batch and at a renewal."""
    world.masters.table = replace(world.masters.table, table_id="f" * 32)
    taken = open_as(world, "mine")
    with pytest.raises(
        QueryRefused, match=r"table flights .id ffff.*was dropped while the query ran.*delete the checkpoint"
    ):
        taken.advance({0: 5})
    refused: list[QueryRefused] = []
    impatient = SourceLease(world.masters, world.masters.table, LIFE, "mine", 0.003)  # type: ignore[arg-type]
    impatient.positions = taken.positions
    impatient.renew_until(threading.Event(), refused.append)
    assert [str(refusal) for refusal in refused] and "was dropped" in str(refused[0])
