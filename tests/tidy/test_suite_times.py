"""The times that a run prints are of suites that exist, and tests that share something run in one process."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from xdist.scheduler import LoadScopeScheduling

from tests.harness.suite_times import SUITES, suite_lines, suite_of
from tests.harness.worker_shares import Shares, others_of_thirds, part_of, share_of

TESTS = Path(__file__).resolve().parents[1]


def test_each_suite_has_tests_and_each_test_a_suite() -> None:
    """Goal: a suite that was moved does not vanish from the times. Method: every file of tests, by the suite's rule."""
    files = [str(path.relative_to(TESTS.parent)) for path in sorted(TESTS.rglob("test_*.py"))]
    assert {suite_of(name) for name in files} == set(SUITES)


def test_times_of_a_suite_are_summed_and_the_longest_is_first() -> None:
    """Goal: a line says what its suite took. Method: two tests of one suite, one with a set-up, and one of another."""
    wal, script = "tests/unit/wal/test_wal_append.py::test_", "tests/raft_scripts/test_raft_scripts.py::test_a"
    lines = suite_lines([(wal + "a", 1.0), (wal + "a", 0.5), (wal + "b", 2.0), (script, 3.0)])
    assert [line.split(maxsplit=4) for line in lines] == [
        ["3.5", "s", "2", "tests", "units"],
        ["3.0", "s", "1", "tests", "scenario scripts"],
    ]


def test_tests_of_a_file_share_a_process_and_all_with_kafka_and_spark_share_one() -> None:
    """Goal: what a module's tests share is made once, and Kafka and Spark run once at a time on two cores. Method: ids
    of every file of the end-to-end tests and of others; xdist's scheduler asks by the name that is overridden."""
    road = {share_of(f"tests/e2e/{path.name}::test_x") for path in (TESTS / "e2e").glob("test_*.py")}
    assert len(road) == 1
    assert share_of("tests/unit/wal/test_wal_index.py::test_x[a::b/c]") == "tests/unit/wal/test_wal_index.py"
    assert share_of("tests/process/test_names_process.py::test_x") not in road
    assert len({share_of(f"tests/tidy/{path.name}::test_x") for path in (TESTS / "tidy").glob("test_*.py")}) == 1
    assert "_split_scope" in LoadScopeScheduling.__dict__ and "_split_scope" in Shares.__dict__


@given(st.lists(st.integers(1, 9), max_size=4), st.integers(0, 10_000), st.integers(2, 4))
def test_runs_of_all_parts_hold_each_test_once_and_share_every_file(files: list[int], number: int, parts: int) -> None:
    """Goal: no test is left out for ever, and no part has all the long tests of a file. Method: files of so many tests,
    in any order; as many parts as there are, of numbers that follow each other."""
    ids = [f"tests/e2e/test_{file}.py::test_{test}" for file, tests in enumerate(files) for test in range(tests)]
    found = [part_of(ids if number % 2 else ids[::-1], number + at, parts) for at in range(parts)]
    assert sorted(nodeid for part in found for nodeid in part) == sorted(ids)
    assert found[0] == part_of(ids, number + parts, parts)
    for file in range(len(files)):
        here = [sum(nodeid.startswith(f"tests/e2e/test_{file}.py") for nodeid in part) for part in found]
        assert max(here) - min(here) <= 1


class _Case:
    def __init__(self, nodeid: str, mark: str) -> None:
        self.nodeid, self._mark = nodeid, mark

    def get_closest_marker(self, name: str) -> bool | None:
        return True if name == self._mark else None


def test_first_and_each_third_case_of_a_marked_test_is_not_deep() -> None:
    """Goal: a test whose table is mostly left to the deep tests is run with some of it each time. Method: two marked
    tests of five and one case and one without the mark, mixed."""
    cases = [
        _Case(f"t.py::test_{name}[{case}]", mark) for case in range(5) for name, mark in (("a", "a_third"), ("b", ""))
    ]
    deep = others_of_thirds([*cases, _Case("t.py::test_c", "a_third")])  # type: ignore[list-item]
    assert [case.nodeid for case in deep] == [f"t.py::test_a[{case}]" for case in (1, 2, 4)]
