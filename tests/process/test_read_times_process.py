"""The tasks of Spark queries agree on the times of their queries while masters are killed, upgraded and taken back."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from nyala.pipeline.source.query_time import QueryTimes
from nyala.replica.client import Client, ClientOptions
from nyala.replica.types import Code, Refused
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.former_build import former_build
from tests.harness.spark_tasks import in_query
from tests.harness.three_masters import Masters

pytestmark = pytest.mark.process
TASKS = 8


def asked(masters: Masters, times: QueryTimes, query: int, time: int) -> int:
    """The time that a task with a client of its own reads at, which would choose that time."""
    with Client(masters.addresses, ClientOptions(connect_timeout_s=30)) as client, in_query(query):
        return times.agreed(client, lambda: time)


@pytest.mark.deep
def test_query_has_one_time_whichever_masters_are_killed_between_its_tasks() -> None:
    """IN-10. Goal: a failover of masters gives no two tasks of a query two times. Method: three masters; a task agrees
    on a time and the leader is killed; the next task, with another client, gets the time of the first. Then eight tasks
    agree on query after query while each leader in turn is killed and started again: as soon as the tasks can see a new
    query, so that it dies while they propose times. All masters are killed and started; each query still has the one
    time that its tasks had."""
    with local_cluster() as cluster:
        masters = Masters(cluster)
        with masters.client() as driver:
            times = QueryTimes.new(driver)
        assert asked(masters, times, 0, 100) == 100
        killed = masters.leader()
        killed.kill()
        assert asked(masters, times, 0, 200) == 100
        killed.start()

        found: defaultdict[int, set[int]] = defaultdict(set)
        queries, over = [1], threading.Event()

        def task(number: int) -> None:
            with Client(masters.addresses, ClientOptions(connect_timeout_s=30)) as client:
                while not over.is_set():
                    mine = queries[-1]
                    known = client.agree_read_time(times.load, mine)
                    found[mine].add(known or client.agree_read_time(times.load, mine, 1000 * mine + number))

        def next_query(what: str) -> None:
            queries.append(queries[-1] + 1)
            wait_until(lambda: queries[-1] in found, what)

        with ThreadPoolExecutor(TASKS) as pool:
            tasks = [pool.submit(task, number) for number in range(TASKS)]
            try:
                for _ in range(5):
                    for _ in range(3):
                        next_query("a query has a time")
                    leader = masters.leader()
                    queries.append(queries[-1] + 1)
                    leader.kill()
                    wait_until(lambda: queries[-1] in found, "the query has a time without the former leader")
                    leader.start()
            finally:
                over.set()
            for each in tasks:
                each.result()
        assert len(found) >= 20 and all(len(agreed) == 1 for agreed in found.values()), found
        for master in masters.members:
            master.kill()
        for master in masters.members:
            master.start(wait=False)
        for query, (agreed,) in found.items():
            assert asked(masters, times, query, 1) == agreed


@pytest.mark.deep
def test_masters_of_the_former_version_refuse_and_keep_the_times_of_this_one() -> None:
    """IN-92. Goal: with masters of 0.2.0 a default read of Spark is refused with the remedy, and a master that goes
    back to 0.2.0 loses no time. Method: a master of 0.2.0, then of this build, of 0.2.0 and of this build again."""
    with local_cluster() as cluster:
        masters = Masters(cluster, 1, former_build())
        (master,) = masters.members

        def restarted(env: dict[str, str]) -> None:
            assert master.stop() == 0
            master.env = env
            master.start()

        def refusal() -> Refused:
            with masters.client() as driver, pytest.raises(Refused) as told:
                QueryTimes.new(driver)
            return told.value

        assert refusal().code is Code.ILLEGAL_STATE and "upgrade the masters" in str(refusal())
        restarted({})
        with masters.client() as driver:
            times = QueryTimes.new(driver)
        assert asked(masters, times, 7, 100) == 100
        restarted(former_build())
        assert "load() the DataFrame with the option at" in str(refusal())
        with pytest.raises(Refused, match="upgrade the masters"):
            asked(masters, times, 7, 200)
        restarted({})
        assert asked(masters, times, 7, 200) == 100 and asked(masters, times, 8, 300) == 300
