"""Uses up the memory maps of a process, really, and gives them back: in a test's child, or in a server.

`server_env` makes a server run this file before anything of its own, as `sitecustomize`: SIGUSR1 uses the maps up,
SIGUSR2 gives them back. So this file uses the standard library only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

_PAGE = 4096
_LEAVE, _NOW = "NYALA_TEST_MAPS_LEFT", "NYALA_TEST_MAPS_NOW"
AT_ONCE = {_NOW: "yes"}
"""With this in its environment, too, a server uses its maps up as it starts."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(3 * [ctypes.c_int]), ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_held: list[tuple[int, int]] = []
_last: list[mmap.mmap] = []


def maps_max() -> int:
    """The kernel's limit of memory maps of one process."""
    return int(Path("/proc/sys/vm/max_map_count").read_text())


def maps_used() -> int:
    """The memory maps of this process."""
    with open("/proc/self/maps", "rb") as lines:
        return sum(1 for _ in lines)


def use_up(leave: int) -> None:
    """Use up all maps of this process but so many: every second page of one range gets another protection."""
    pages = max(0, maps_max() - maps_used() - leave)
    start = _libc.mmap(None, _PAGE * (pages + 2), 0, 0x22, -1, 0)
    _held.append((start, _PAGE * (pages + 2)))
    for page in range(1, pages, 2):
        if _libc.mprotect(start + _PAGE * page, _PAGE, 1):
            break  # ENOMEM: none is left
    with suppress(OSError):  # the last ones; shared maps are never joined
        while not leave:
            _last.append(mmap.mmap(-1, _PAGE))


def give_back() -> None:
    """Give back everything that `use_up` took."""
    while _last:
        _last.pop().close()
    while _held:
        _libc.munmap(*_held.pop())


def server_env(folder: Path, leave: int) -> dict[str, str]:
    """The environment of a server that uses up its maps but `leave` on SIGUSR1, and gives them back on SIGUSR2."""
    folder.mkdir(exist_ok=True)
    shutil.copyfile(__file__, folder / "sitecustomize.py")
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{others}" if others else str(folder), _LEAVE: str(leave)}


if __name__ == "sitecustomize" and _LEAVE in os.environ:
    signal.signal(signal.SIGUSR1, lambda *_: use_up(int(os.environ[_LEAVE])))
    signal.signal(signal.SIGUSR2, lambda *_: give_back())
    if _NOW in os.environ:
        use_up(int(os.environ[_LEAVE]))
