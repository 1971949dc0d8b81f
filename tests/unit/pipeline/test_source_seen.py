"""The times that a Spark application has read and written so far, over the worker processes that plan and commit for
it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nyala.pipeline.source import reader as source_reader
from nyala.pipeline.source.application_time import observe_time
from nyala.pipeline.source.reader import Reader, ReadOptions
from nyala.pipeline.source.writer import WriteOptions, Writer, Written
from nyala.replica.client import ReadLoad
from nyala.replica.types import hybrid_from_us, limits
from tests.harness.played_tablets import PlayedClient, PlayedTablets, table_of
from tests.harness.spark_tasks import in_query

MASTERS = "m:1,m:2"
SECOND_US = 1_000_000
TABLE = table_of("t", 3)


class Application:
    """One Spark application over played tablets: each plan is made by a process that remembers nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.played = PlayedTablets(Random(5), [TABLE])
        self.another = PlayedClient(self.played)
        self._patch = monkeypatch
        self._queries = 0
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))

    def plan(self, **options: str) -> list[Any]:
        """The parts of a read."""
        self.worker = PlayedClient(self.played)
        self._patch.setattr(source_reader, "shared_client", lambda *_: self.worker)
        given = ReadOptions.of({"masters": MASTERS, "table": "t", **options})
        return list(Reader(given, TABLE, ("k", "v")).partitions())

    def read(self, **options: str) -> set[int]:
        """The values that a read shows, in every tablet."""
        return self.query(self.plan(**options), **options)

    def query(self, parts: list[Any], **options: str) -> set[int]:
        """The values that another query of that plan shows, in every tablet."""
        self._queries += 1
        self._patch.setattr(source_reader, "shared_client", lambda *_: PlayedClient(self.played))
        reader = Reader(ReadOptions.of({"masters": MASTERS, "table": "t", **options}), TABLE, ("k", "v"))
        with in_query(self._queries):
            return {v for part in parts for batch in reader.read(part) for v in batch["v"].to_pylist()}

    def write_elsewhere(self, value: int) -> int:
        """Another client's write to every tablet, and two seconds; the time of the last."""
        at = max(self.another.write(tablet.tablet_id, value) for tablet in TABLE.tablets)
        self.played.now_us += 2 * SECOND_US
        return at


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Application:
    made = Application(monkeypatch, tmp_path)
    made.write_elsewhere(1)
    made.played.now_us += 60 * SECOND_US
    return made


@pytest.mark.parametrize("before", [{}, {"staleness": "0.6"}, {"staleness": "0.6", "slices": "2"}])
def test_stale_read_of_a_spark_application_is_not_older_than_its_last(
    application: Application, before: dict[str, str]
) -> None:
    """IN-10. Goal: the reads of one Spark application never go back, though each is planned by a process that knows
    nothing of the one before. Method: a fresh read or a strong one, then one that may be much older."""
    application.write_elsewhere(2)
    assert application.read(**before) == {2}
    assert application.read(staleness="30") == {2}


def test_each_query_of_one_plan_is_fresh_and_none_goes_back(application: Application) -> None:
    """IN-10. Goal: though Spark plans a DataFrame once, a strong query of it holds every write before, a stale one is
    as old as allowed and not older than what the application has read or written. Method: two plans, strong and stale,
    and writes of another client and of the application between their queries."""
    strong, stale = application.plan(), application.plan(staleness="30")
    assert application.query(strong) == {1} == application.query(stale, staleness="30")
    for value in (2, 3):
        application.write_elsewhere(value)
        assert application.query(stale, staleness="30") == {value - 1}, "as old as allowed"
        assert application.query(strong) == {value}
        assert application.query(stale, staleness="30") == {value}, "not older than what was read"
    times = [application.another.write(tablet.tablet_id, 4) for tablet in TABLE.tablets]
    Writer(WriteOptions(MASTERS, "t"), TABLE).commit([Written(1, max(times))])
    assert application.query(stale, staleness="30") == {4}, "what was written"
    application.write_elsewhere(5)
    application.played.now_us += 60 * SECOND_US
    assert application.query(stale, staleness="30") == {5}


def test_reads_of_tasks_on_other_hosts_never_go_back(application: Application, tmp_path: Path) -> None:
    """IN-10. Goal: the reads of an application never go back, whichever hosts its tasks run on, and hold what it wrote.
    Method: strong and stale queries in turn, on the driver's host and elsewhere, with writes of another client between
    them, which stale reads need not show, and one of the application."""
    strong, stale = application.plan(), application.plan(staleness="30")
    away = tmp_path.with_name(f"{tmp_path.name}-elsewhere")

    def elsewhere(parts: list[Any], **options: str) -> set[int]:
        tmp_path.rename(away)
        try:
            return application.query(parts, **options)
        finally:
            away.rename(tmp_path)

    for value in (2, 3):
        application.write_elsewhere(value)
        assert application.query(stale, staleness="30") == {value - 1}, "as old as allowed"
        assert elsewhere(strong) == {value}
        assert application.query(stale, staleness="30") == {value}, "not older than what was read elsewhere"
    application.write_elsewhere(4)
    assert elsewhere(stale, staleness="30") == {4}, "a strong read is not too old"
    assert application.query(stale, staleness="30") == {4}
    times = [application.another.write(tablet.tablet_id, 5) for tablet in TABLE.tablets]
    Writer(WriteOptions(MASTERS, "t"), TABLE).commit([Written(1, max(times))])
    assert elsewhere(stale, staleness="30") == {5}, "what was written"


def test_stale_read_is_not_older_than_what_the_masters_have_forgotten(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-10. Goal: on one host the reads of an application do not go back, even if the masters keep none of its times.
    Method: a strong read, then a query of another application, beside which no other time is kept, and a stale read."""
    monkeypatch.setattr(limits, "READ_TIMES_PER_HOST_MAX", 1)
    application.write_elsewhere(2)
    assert application.read() == {2}
    agreed = application.played.agreed
    agreed.agree_read_time(ReadLoad("e" * 32, "e" * 32, agreed.catalog_position()), 1, 5)
    assert application.read(staleness="30") == {2}


def test_stale_read_of_another_spark_application_may_be_older(
    application: Application, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: applications do not slow each other down. Method: as above, with a folder of its own for the second."""
    application.write_elsewhere(2)
    assert application.read() == {2}
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "other"))
    assert application.read(staleness="30") == {1}


def test_stale_read_of_a_spark_application_holds_what_it_wrote(application: Application) -> None:
    """IN-10. Goal: a DataFrame that was written is in the stale reads after it, also if a task failed beside it.
    Method: the tasks' messages reach commit, or abort, on the driver; the read may be half a minute old."""
    writer = Writer(WriteOptions(MASTERS, "t"), TABLE)
    for value, ended in ((2, writer.commit), (3, writer.abort)):
        times = [application.another.write(tablet.tablet_id, value) for tablet in TABLE.tablets]
        ended([Written(1, time) for time in times[:-1]] + [None, Written(1, times[-1])])
        assert application.read(staleness="30") == {value}


def test_stale_read_after_a_spark_read_of_a_chosen_time(application: Application) -> None:
    """IN-10. Goal: option `at` is a read as well. Method: before a second write and after it; then a time that lies so
    far ahead that servers refuse it, and that nobody has seen: it changes nothing."""
    early_us = application.played.now_us
    application.played.now_us += SECOND_US
    application.write_elsewhere(2)
    assert application.read(at=str(early_us)) == {1}
    assert application.read(staleness="30") == {1}
    assert application.read(at=str(application.played.now_us)) == {2}
    assert application.read(staleness="30") == {2}
    before = observe_time(TABLE, MASTERS)
    application.plan(at=str(application.played.now_us + 60 * SECOND_US))
    assert observe_time(TABLE, MASTERS) == before >= hybrid_from_us(early_us)


def test_time_of_an_application_is_of_one_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """IN-10. Goal: clusters have nothing to do with each other, and however its masters are spelled it is the same
    cluster. Method: tables of two clusters and of masters that do not say theirs; names, addresses, all masters and
    one; a file that was cut off in the middle of its first write."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/nowhere,{tmp_path}")
    one, other = replace(TABLE, cluster_id="one"), replace(TABLE, cluster_id="other")
    assert observe_time(one, "a:1,b:2", 9 << 40) == 9 << 40
    assert observe_time(replace(one, name="u"), "10.0.0.1:1") == observe_time(one, "b:2") == 9 << 40
    assert observe_time(other, "a:1,b:2") == 0 == observe_time(TABLE, "a:1,b:2")
    assert observe_time(TABLE, "a:1,b:2", 7 << 40) == 7 << 40
    assert observe_time(TABLE, "b:2, a:1") == 7 << 40 and observe_time(TABLE, "a:1") == 0
    assert observe_time(TABLE, "a:1,b:2", 5) == 7 << 40
    for file in tmp_path.iterdir():
        file.write_text("000")
    assert observe_time(TABLE, "a:1,b:2", 9) == 9 and observe_time(TABLE, "a:1,b:2") == 9


def test_time_without_a_folder_is_the_process_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: outside Spark the last seen time is kept in memory only. Method: no folder is named."""
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert observe_time(TABLE, MASTERS, 5) == 5 and observe_time(TABLE, MASTERS) == 0


def test_time_is_the_highest_of_all_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """IN-10. Goal: workers at the same moment do not undo each other. Method: four threads, each with its own open
    file, raise the time a few hundred times in different orders; the highest is left."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))

    def work(number: int) -> None:
        times = list(range(1, 401))
        Random(number).shuffle(times)
        for time in times:
            assert observe_time(TABLE, "m:1", time * 4 + number) >= time * 4

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert observe_time(TABLE, "m:1") == 400 * 4 + 3
