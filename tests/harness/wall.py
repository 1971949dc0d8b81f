"""The wall clock of a real server process, moved by a test: as if its machine's clock were set.

Only the wall clock of Python moves; the kernel's monotonic clocks run on, as they do when a clock is set.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_SHIFTED = """
import mmap, os, struct, time
with open(os.environ["NYALA_TEST_WALL"], "r+b") as file:
    shift = mmap.mmap(file.fileno(), 8)
right = time.time_ns
time.time_ns = lambda: right() + struct.unpack("<q", shift)[0]
time.time = lambda: time.time_ns() / 1e9
"""
"""The interpreter runs it before anything of the server: `sitecustomize`."""


class Wall:
    """The wall clock of processes that run in `env`; `set` moves it at once, also under a running process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SHIFTED)
        self._file = folder / "shift-ns"
        self.set(0)
        others = os.environ.get("PYTHONPATH")
        path = f"{folder}{os.pathsep}{others}" if others else str(folder)
        self.env = {"PYTHONPATH": path, "NYALA_TEST_WALL": str(self._file)}

    def set(self, ahead_s: float) -> None:
        """Set the clock so many seconds ahead of the right time."""
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(handle, struct.pack("<q", int(ahead_s * 1e9)), 0)  # the file that is mapped, not another one
        finally:
            os.close(handle)
