"""Runs ingest in a driver and, if requested, the decisions query beside it. If one of them ends, the other one is
ended, too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .decisions import DecisionsOptions, DecisionsProgress, DecisionsQuery
from .ingest import IngestOptions, IngestQuery
from .progress import Progress
from .supervise import ProgressCounter, RestartOptions, run_two_queries, run_with_restarts
from .warm import warm_workers


def run_decisions(
    spark: Any,
    options: DecisionsOptions,
    restarts: RestartOptions,
    *,
    tell: Callable[[str], None],
    show: Callable[[DecisionsProgress], None] | None = None,
) -> None:
    """Run the decisions query, restarted by `restarts`, until it ends; as `run_ingest`.

    `show` receives each micro-batch's progress; default: `tell` receives a line.
    """
    counter = ProgressCounter()

    def shown(done: DecisionsProgress) -> None:
        counter.beat()
        if show is None:
            tell(done.line())
        else:
            show(done)

    run_with_restarts(lambda: DecisionsQuery(spark, options, shown).run(), restarts, tell, counter=counter)


def run_ingest(
    spark: Any,
    options: IngestOptions,
    restarts: RestartOptions,
    *,
    tell: Callable[[str], None],
    show: Callable[[Progress], None],
    life: Callable[[str], None] = lambda _: None,
    decisions: DecisionsOptions | None = None,
) -> None:
    """Run ingest, restarted by `restarts`, until it ends. The QueryRefused or QueryInterrupted states what ended it.

    `life` receives QUERY_STARTS and QUERY_ENDED of each run.

    With `decisions` that query runs too, restarted likewise; if it ends, ingest is ended.
    """
    warm_workers(spark)
    ending = threading.Event()
    running: list[IngestQuery] = []

    counter = ProgressCounter()

    def shown(progress: Progress) -> None:
        counter.beat()
        show(progress)

    def once() -> None:
        running[:] = [IngestQuery(spark, options, shown, life)]
        if not ending.is_set():
            running[0].run()

    def ingest() -> None:
        run_with_restarts(once, restarts, tell, counter=counter, sleep=ending.wait)

    def end_ingest() -> None:
        ending.set()
        for query in running:
            query.stop()

    if decisions is None:
        ingest()
        return

    def decide(wanted: DecisionsOptions = decisions) -> None:
        run_decisions(spark, wanted, restarts, tell=tell, show=lambda _: None)

    run_two_queries(ingest, end_ingest, decide, "decisions")
