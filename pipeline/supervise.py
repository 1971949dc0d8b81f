"""Start a query again when it ended for a cause that goes away, with back-off and a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.base import check

from .errors import QueryInterrupted, QueryRefused


@dataclass(frozen=True, kw_only=True)
class RestartOptions:
    """Stable. A run longer than `calm_s` resets the count: it was not the same trouble."""

    restarts_max: int = 20
    backoff_s_min: float = 1.0
    backoff_s_max: float = 30.0
    calm_s: float = 300.0

    def __post_init__(self) -> None:
        check(self.restarts_max >= 0, "restarts_max is not negative")
        check(0 < self.backoff_s_min <= self.backoff_s_max, "back-off grows")

    def pause_s(self, restarts: int) -> float:
        """Seconds before restart number `restarts`, the first being 1."""
        return min(self.backoff_s_max, self.backoff_s_min * 2.0 ** min(restarts - 1, 30))


def run_with_restarts(
    run: Callable[[], None],
    options: RestartOptions,
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Call `run` until it returns. QueryInterrupted starts it again; anything else, and the last one, is raised."""
    restarts = 0
    while True:
        started = now()
        try:
            return run()
        except QueryInterrupted as error:
            restarts = 1 if now() - started > options.calm_s else restarts + 1
            if restarts > options.restarts_max:
                raise
            pause = options.pause_s(restarts)
            tell(f"the query ended: {error}; start {restarts} of {options.restarts_max} in {pause:g} s")
            sleep(pause)


def run_beside(main: Callable[[], None], end_main: Callable[[], None], other: Callable[[], None], name: str) -> None:
    """Run `main` here and `other` on a thread of its own; returns when `main` does.

    When `other` ends first, however it ends, nobody would miss it until its work is: so `end_main` is called, which
    must make `main` return or raise, and QueryRefused says what became of the query `name`.
    """
    ended: list[QueryRefused] = []

    def run_other() -> None:
        why = ""
        try:
            other()
        except Exception as error:  # noqa: BLE001 - the thread's root; told by the main thread
            why = f": {error}"
        ended.append(QueryRefused(f"the {name} query ended{why}"))
        end_main()

    threading.Thread(target=run_other, name=name, daemon=True).start()
    try:
        main()
    except Exception as error:
        if ended:
            raise ended[0] from error
        raise
    if ended:
        raise ended[0]
