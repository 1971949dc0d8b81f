"""The time that the tasks of a Spark query agree on, in a file that they share."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nyala.pipeline.source import query_time
from nyala.pipeline.source.query_time import QueryTimes
from nyala.replica.types import Code, Refused
from tests.harness.spark_tasks import in_query


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> QueryTimes:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/nowhere,{tmp_path}")
    made: QueryTimes = pickle.loads(pickle.dumps(QueryTimes.new()))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/of/an/executor")
    return made


def test_first_task_sets_the_time_of_the_query_for_all(times: QueryTimes) -> None:
    """Goal: the tasks of a query agree, also if all ask at once. Method: 16 threads, each with another time; a task
    that is overtaken while it chooses; the file of the driver's folder, whatever the task's own folder is; another
    load() and another query beside it."""

    def slowly() -> int:
        assert times.agreed(lambda: 5) == 5, "a faster task"
        return 6

    with in_query(6):
        assert times.agreed(slowly) == 5
    with in_query(7), ThreadPoolExecutor(16) as pool:
        (agreed,) = set(pool.map(lambda n: times.agreed(lambda: n), range(1, 65)))
    assert 1 <= agreed <= 64
    with in_query(7):
        assert times.agreed(lambda: 100) == agreed
        assert QueryTimes(times.folder, "another").agreed(lambda: 200) == 200
    with in_query(8):
        assert times.agreed(lambda: 300) == 300


def test_failed_choice_leaves_the_time_to_the_next_task(times: QueryTimes) -> None:
    """Goal: a task that finds no server blocks no other one. Method: one whose choice fails, then another."""

    def fails() -> int:
        raise Refused(Code.UNAVAILABLE, "nobody answers")

    with in_query(1):
        with pytest.raises(Refused, match="nobody answers"):
            times.agreed(fails)
        assert times.agreed(lambda: 5) == 5


def test_times_are_bounded_and_a_forgotten_query_is_refused(times: QueryTimes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the file of a long application stays small, and a late task of an old query never reads at a second time.
    Method: more queries than are kept; the oldest kept and the newest forgotten."""
    monkeypatch.setattr(query_time, "QUERIES_KEPT", 10)
    for query in range(30):
        with in_query(query):
            assert times.agreed(lambda at=query: at + 1) == query + 1  # type: ignore[misc]
    with in_query(20):
        assert times.agreed(lambda: 99) == 21
    with in_query(19), pytest.raises(Refused, match=r"query 19 began .* run it again") as told:
        times.agreed(lambda: 99)
    assert told.value.code is Code.EXPIRED


def test_file_that_is_damaged_is_refused_by_its_name(times: QueryTimes) -> None:
    """Goal: tasks without a file that can be read get an error that names it. Method: a file of something else."""
    file = Path(times.folder) / "nyala-query-times"
    file.write_bytes(b"nonsense" * 1000)
    with in_query(1), pytest.raises(Refused, match=f"{file}, where the tasks"):
        times.agreed(lambda: 1)


def test_process_without_a_folder_cannot_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no time is kept where nobody shares it. Method: Spark names no folder."""
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with in_query(1), pytest.raises(Refused, match="not on this host"):
        QueryTimes.new().agreed(lambda: 1)
