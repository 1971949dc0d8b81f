"""One driver, one or two queries: ingest, and beside it, if wanted, the decisions query. Neither goes on alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .decisions import DecisionsOptions, DecisionsQuery
from .ingest import IngestOptions, IngestQuery
from .progress import Progress
from .supervise import RestartOptions, run_beside, run_with_restarts


def run_ingest(
    spark: Any,
    options: IngestOptions,
    restarts: RestartOptions,
    *,
    tell: Callable[[str], None],
    show: Callable[[Progress], None],
    decisions: DecisionsOptions | None = None,
) -> None:
    """Run ingest, restarted as `restarts` says, until it ends. QueryRefused or QueryInterrupted says what ended it.

    With `decisions` that query runs too, restarted likewise; if it ends, ingest is ended.
    """
    ending = threading.Event()
    running: list[IngestQuery] = []

    def once() -> None:
        running[:] = [IngestQuery(spark, options, show)]
        if not ending.is_set():
            running[0].run()

    def ingest() -> None:
        run_with_restarts(once, restarts, tell, sleep=ending.wait)

    def end_ingest() -> None:
        ending.set()
        for query in running:
            query.stop()

    if decisions is None:
        ingest()
        return

    def decide(wanted: DecisionsOptions = decisions) -> None:
        run_with_restarts(lambda: DecisionsQuery(spark, wanted).run(), restarts, tell)

    run_beside(ingest, end_ingest, decide, "decisions")
