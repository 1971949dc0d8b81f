"""The entry point of the `nyala` command: a module of its own, because it runs before the package is imported.

Imports are most of the time of a short command. Ctrl-C during them is one line, not a traceback of some library.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def end_at_once(_number: int, _frame: FrameType | None) -> None:
    """End the process with status 130. Nothing was begun that would have to be ended in order."""
    os.write(2, b"nyala: interrupted: nothing was sent\n")
    os._exit(130)


def main() -> int:
    """Run one command. From the call of its function on, SIGINT is KeyboardInterrupt again."""
    signal.signal(signal.SIGINT, end_at_once)
    from nyala.infra.cli.app import main as run

    return run()
