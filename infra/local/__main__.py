"""A supervisor in its own process, which `nyala up --detach` leaves running."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from nyala.replica.types.logs import log_to_stderr

from .children import text_of
from .control import serve
from .state import StackError
from .supervisor import StackOptions, Supervisor


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="supervise a local stack")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--options", default="{}", help="JSON of StackOptions")
    arguments = parser.parse_args()
    options = json.loads(arguments.options)
    options["server_env"] = tuple(tuple(pair) for pair in options.get("server_env", ()))
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    log_to_stderr(logging.WARNING)
    supervisor = Supervisor(arguments.folder, StackOptions(**options))
    try:
        supervisor.start()
        end_control = serve(supervisor)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(text_of(error), file=sys.stderr)
        supervisor.stop()
        return 1
    ended.wait()
    end_control()
    supervisor.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
