"""How a job's driver ends: in order at SIGTERM, with Spark's JVM if that is gone, and always within a bound.

Under spark-submit the driver is two processes, Spark's JVM and its child, this interpreter. A JVM whose interpreter
ends follows by itself; the other way round is here.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

END_WITHIN_S = 15.0
"""From the first SIGTERM to the end of the process, whatever it waits for then; what is cut off is replayed."""
LOOK_S = 0.5


def end_in_order(within_s: float = END_WITHIN_S) -> None:
    """Call once, on the main thread, at a job's start.

    SIGTERM then raises SystemExit(0) there, once: what the job holds is given back on the way out. Under spark-submit
    the JVM's death does the same.
    """
    ending = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        # The JVM's death follows the group's SIGTERM: a second one must not cut the orderly end off.
        if not ending.is_set():
            ending.set()
            bound = threading.Timer(within_s, _end_now, [within_s])
            bound.daemon = True
            bound.start()
            sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    if os.environ.get("PYSPARK_GATEWAY_PORT"):
        threading.Thread(target=_end_with, args=(os.getppid(),), name="parent", daemon=True).start()


def run_uninterrupted(give_back: Callable[[], None]) -> None:
    """Call it, and again if the SystemExit of `end_in_order` cuts in.

    What ends a run may be what the JVM's death did to it; SIGTERM then comes while the run gives back what it holds.
    """
    try:
        give_back()
    except SystemExit:
        give_back()
        raise


def _end_with(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _end_now(within_s: float) -> None:
    print(f"nyala: something did not end within {within_s:g} s and is cut off", file=sys.stderr, flush=True)
    faulthandler.dump_traceback()
    os._exit(1)
