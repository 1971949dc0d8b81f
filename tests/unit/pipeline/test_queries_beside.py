"""Two queries in one driver: neither goes on without the other, and the error names the one that ended."""

from __future__ import annotations

import threading

import pytest

from nyala.pipeline.errors import QueryInterrupted, QueryRefused
from nyala.pipeline.supervise import run_two_queries


class Main:
    """A first query that runs until it is ended; with `error` it raises that instead of returning."""

    def __init__(self, error: Exception | None = None) -> None:
        self._ending = threading.Event()
        self._error = error

    def run(self) -> None:
        assert self._ending.wait(30), "nobody ended it"
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        self._ending.set()


def fail() -> None:
    raise QueryRefused("another run holds it")


@pytest.mark.parametrize("error", [None, QueryInterrupted("Spark was told to stop")])
def test_query_beside_that_fails_ends_the_first_one_and_is_told(error: Exception | None) -> None:
    """Goal: if the decisions query fails, the ingest in the same driver ends with its error. Method: refuse the other
    one, however the first ends."""
    main = Main(error)
    with pytest.raises(QueryRefused, match="the decisions query ended: another run holds it"):
        run_two_queries(main.run, main.end, fail, "decisions")


def test_query_beside_that_just_ends_ends_the_first_one_too() -> None:
    """Goal: if the decisions query ends without an error, the ingest in the same driver ends too. Method: the other one
    returns."""
    main = Main()
    with pytest.raises(QueryRefused, match=r"the decisions query ended$"):
        run_two_queries(main.run, main.end, lambda: None, "decisions")


def test_first_query_that_ends_is_not_held_by_the_one_beside() -> None:
    """Goal: a run that has caught up returns, and an error of it is its own. Method: the other one never ends."""
    never = threading.Event()
    run_two_queries(lambda: None, lambda: None, lambda: bool(never.wait(60)) and None, "decisions")
    with pytest.raises(QueryRefused, match="another run holds it"):
        run_two_queries(fail, lambda: None, lambda: bool(never.wait(60)) and None, "decisions")
    never.set()
