"""Reports to the parent process that this one serves, and notices that the parent ended."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from nyala.replica.types import Address


def say_ready(uuid: str, address: Address, ready_file: str) -> None:
    """Write one line of JSON with uuid, address and pid: into `ready_file` if it has a name, then to standard output.

    The file appears whole. It is not synced, because nothing is wrong if it is lost.
    """
    text = json.dumps({"uuid": uuid, "address": str(address), "pid": os.getpid()})
    if ready_file:
        target = Path(ready_file)
        draft = target.with_name(target.name + ".tmp")
        draft.write_text(text)
        draft.replace(target)
    print(text, flush=True)


def when_parent_ends(parent_fd: int, gone: Callable[[], None]) -> None:
    """Call `gone` once in the running loop when the parent closes its end of the pipe. The parent never writes to it.

    `parent_fd`: the pipe; below 0: there is no parent to watch.
    """
    if parent_fd < 0:
        return
    loop = asyncio.get_running_loop()
    os.set_blocking(parent_fd, False)

    def readable() -> None:
        try:
            data = os.read(parent_fd, 1024)
        except BlockingIOError:
            return
        if not data:
            loop.remove_reader(parent_fd)
            gone()

    loop.add_reader(parent_fd, readable)
