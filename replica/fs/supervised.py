"""Reports to the parent process that this one serves, and notices that the parent ended."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from nyala.replica.types import Address


def say_ready(uuid: str, address: Address, ready_file: str) -> None:
    """One line of JSON on standard output: uuid, address, pid; first, unless empty, as the whole of `ready_file`.

    The file is for those who wait: it is there whole or not at all, and is no promise, so it is not synced.
    """
    text = json.dumps({"uuid": uuid, "address": str(address), "pid": os.getpid()})
    if ready_file:
        target = Path(ready_file)
        draft = target.with_name(target.name + ".tmp")
        draft.write_text(text)
        draft.replace(target)
    print(text, flush=True)


def when_parent_ends(parent_fd: int, gone: Callable[[], None]) -> None:
    """Call `gone` once in the running loop when the other end of this pipe, which is only ever closed, is closed.

    `parent_fd`: < 0 is no pipe, and no parent to outlive.
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
