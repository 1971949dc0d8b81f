"""Ends a job's driver in order at SIGTERM and after the end of Spark's JVM, always within a bounded time.

Under spark-submit the driver is two processes: Spark's JVM, and its child, this interpreter. The JVM ends by itself
after its interpreter. This module makes the interpreter end after the JVM.
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
"""The longest time from the first SIGTERM to the end of the process; an interrupted micro-batch is replayed."""
LOOK_S = 0.5


def end_in_order(within_s: float = END_WITHIN_S) -> None:
    """Arrange the orderly end of a job; call it once, on the main thread, at the job's start.

    SIGTERM then raises SystemExit(0) on that thread, once, so that the job releases its leases. Under spark-submit the
    JVM's death does the same.
    """
    ending = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        # After a SIGTERM to the process group the JVM ends, too. That must not interrupt the orderly end.
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
    """Call `give_back`, and again if the SystemExit of `end_in_order` interrupts it.

    The JVM's death may end the run before SIGTERM arrives; the signal then arrives during `give_back`.
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
    print(f"nyala: the job did not end within {within_s:g} s, so it is cut off", file=sys.stderr, flush=True)
    faulthandler.dump_traceback()
    os._exit(1)
