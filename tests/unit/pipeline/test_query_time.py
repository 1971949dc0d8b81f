"""The time that the tasks of a Spark query agree on, through the masters."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nyala.pipeline.source.query_time import QueryTimes
from nyala.replica.client import Client
from nyala.replica.client.retry import NOT_OFFERED, NotApplied
from nyala.replica.types import Code, Refused, limits
from tests.harness.agreed_times import AgreedTimes
from tests.harness.spark_tasks import in_query


@pytest.fixture
def masters() -> Any:
    return AgreedTimes()


@pytest.fixture
def times(masters: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> QueryTimes:
    """Times of a load() on the driver, as Spark sends them to an executor on another host."""
    (tmp_path / "driver").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/nowhere,{tmp_path / 'driver'}")
    made: QueryTimes = pickle.loads(pickle.dumps(QueryTimes.new(masters)))
    assert made.beside_driver
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/of/an/executor")
    (tmp_path / "driver").rename(tmp_path / "elsewhere")
    assert not made.beside_driver
    return made


def test_first_task_sets_the_time_of_the_query_for_all(times: QueryTimes, masters: Any) -> None:
    """Goal: the tasks of a query agree, also if all ask at once, on any host. Method: 16 threads, each with another
    time; a task that is overtaken while it chooses; another load() and another query beside it. No task has the
    driver's folder."""

    def slowly() -> int:
        assert times.agreed(masters, lambda: 5) == 5, "a faster task"
        return 6

    with in_query(6):
        assert times.agreed(masters, slowly) == 5
    with in_query(7), ThreadPoolExecutor(16) as pool:
        (agreed,) = set(pool.map(lambda n: times.agreed(masters, lambda: n), range(101, 165)))
    assert 101 <= agreed <= 164
    with in_query(7):
        assert times.agreed(masters, lambda: 200) == agreed
        another = replace(times, load=replace(times.load, load_id="e" * 32))
        assert another.agreed(masters, lambda: 200) == 200
    with in_query(8):
        assert times.agreed(masters, lambda: 300) == 300


def test_task_of_a_query_that_has_a_time_asks_once_and_chooses_none(times: QueryTimes, masters: Any) -> None:
    """Goal: of a query's tasks only the first ones ask the cluster for a time, and each later one costs the masters one
    request. Method: the requests of the first task and of the next."""
    with in_query(1):
        times.agreed(masters, lambda: 5)
        assert masters.asked == [0, 5]
        times.agreed(masters, lambda: pytest.fail("it chose"))
    assert masters.asked == [0, 5, 0]


def test_failed_choice_leaves_the_time_to_the_next_task(times: QueryTimes, masters: Any) -> None:
    """Goal: a task that finds no server blocks no other one. Method: one whose choice fails, then another."""

    def fails() -> int:
        raise Refused(Code.UNAVAILABLE, "nobody answers")

    with in_query(1):
        with pytest.raises(Refused, match="nobody answers"):
            times.agreed(masters, fails)
        assert times.agreed(masters, lambda: 5) == 5


def test_late_task_of_a_forgotten_query_is_refused(
    times: QueryTimes, masters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a late task of an old query never reads at a second time. Method: more queries than the masters keep for
    this host; the oldest kept and the newest forgotten."""
    monkeypatch.setattr(limits, "READ_TIMES_PER_HOST_MAX", 10)
    for query in range(30):
        with in_query(query):
            assert times.agreed(masters, lambda at=query: at + 1) == query + 1  # type: ignore[misc]
    with in_query(20):
        assert times.agreed(masters, lambda: 99) == 21
    with in_query(19), pytest.raises(Refused, match=r"time of query 19, .* run it again") as told:
        times.agreed(masters, lambda: 99)
    assert told.value.code is Code.EXPIRED and told.value.only_read


def test_loads_of_one_driver_are_of_one_application(masters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the masters know which queries are of one application, so that its reads never go back. Method: two load()s
    with one folder, one with another, and two of processes for which Spark names none."""
    found = []
    for folder in ("/tmp", "/tmp", "/", "", ""):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", folder)
        found.append(QueryTimes.new(masters))
    assert [times.beside_driver for times in found] == [True] * 5
    assert len({times.load.application for times in found}) == 4
    assert found[0].load.application == found[1].load.application
    assert len({times.load.load_id for times in found}) == 5


def test_masters_of_an_earlier_version_are_refused_and_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a read of a cluster whose masters keep no times ends where it is planned, with a remedy. Method: a client
    whose masters do not offer the call; masters that fail otherwise."""
    client = Client(["127.0.0.1:1"])

    def answers(error: Refused) -> None:
        def call(method: str, request: Any) -> Any:
            assert method == "AgreeReadTime"
            raise error

        monkeypatch.setattr(client._all_masters, "call", call)

    answers(NotApplied(Code.INVALID_ARGUMENT, f"{NOT_OFFERED}: upgrade it"))
    with pytest.raises(Refused, match=r"before 0\.3\.0, .*upgrade the masters.*upgrade status.* at = \"now\"") as told:
        QueryTimes.new(client)
    assert told.value.code is Code.ILLEGAL_STATE and told.value.only_read
    answers(NotApplied(Code.UNAVAILABLE, "no master answers"))
    with pytest.raises(NotApplied, match="no master answers"):
        QueryTimes.new(client)
    client.close()
