"""The log file of a process: bounded by rotation, made of whole lines, and never a reason for the process to end."""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import time
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from typing import TextIO, cast

from .errors import Code, Refused
from .process_options import ProcessOptions

TELL_EVERY_S = 60.0
"""How often standard error is told that the file cannot be written."""
_MODE = 0o640
"""The owner's group may read logs, if the umask allows it. Others may not: messages name hosts, tables and tablets."""


class _Lines:
    """The current file. Each line is appended whole, or not at all."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise OSError(errno.EINVAL, "it is no regular file")

    def write(self, text: str) -> None:
        """Append; OSError if there is no room for all of it."""
        data = text.encode(errors="backslashreplace")
        length = self.tell()
        written = os.write(self._fd, data)
        if written < len(data):
            os.ftruncate(self._fd, length)  # it takes no room, so it succeeds on a full disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def tell(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    @property
    def removed(self) -> bool:
        """Whether no name leads to the file any more."""
        return os.fstat(self._fd).st_nlink == 0

    def flush(self) -> None:
        """[logging] Nothing is held back."""

    def close(self) -> None:
        """End; may be called once."""
        os.close(self._fd)


class LogFile(RotatingFileHandler):
    """Writes records to a file, and renames it to `.1`, `.2` and so on when it is full; the oldest one is removed.

    If a record cannot be written, it is lost, and the process goes on. It reports that on standard error, at most
    once a minute, and in the file as soon as it can be written.
    """

    def __init__(self, options: ProcessOptions) -> None:
        """Refused ILLEGAL_STATE if the file cannot be opened."""
        self.lost = 0
        """Records that could not be written since the last one that could."""
        self._told_s: float | None = None
        path, bytes_max = options.log_file, options.log_file_bytes
        try:
            super().__init__(path, maxBytes=bytes_max, backupCount=options.log_files - 1)
        except OSError as error:
            what = "the log file cannot be opened: choose another one by --log-file, in a directory that exists"
            raise Refused(Code.ILLEGAL_STATE, what, file=path, reason=error.strerror or str(error)) from error

    def _open(self) -> TextIO:  # type: ignore[override]
        return cast(TextIO, _Lines(self.baseFilename))

    def shouldRollover(self, record: logging.LogRecord) -> int:
        """[logging] Whether the record's line does not fit into the current file."""
        lines = cast("_Lines | None", self.stream)
        if lines is not None and lines.removed:
            lines.close()
            self.stream = lines = None  # type: ignore[assignment]
        if lines is None:
            self.stream = self._open()  # type: ignore[assignment]
            lines = cast(_Lines, self.stream)
        length = lines.tell()
        line = len((self.format(record) + self.terminator).encode(errors="backslashreplace"))
        return int(length > 0 and length + line > self.maxBytes)

    def emit(self, record: logging.LogRecord) -> None:
        """[logging] Write the record, and before it how many are lost."""
        if self.lost:
            lost, self.lost = self.lost, 0
            text = "%d records before this one could not be written to this file, and are lost"
            super().emit(logging.LogRecord("nyala.process", logging.ERROR, "", 0, text, (lost,), None))
            if self.lost:
                self.lost = lost + 1
                return
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """[logging] Count the record as lost."""
        self.lost += 1
        now_s = time.monotonic()
        if self._told_s is not None and now_s - self._told_s < TELL_EVERY_S:
            return
        self._told_s = now_s
        text = "the log file %s cannot be written, and records are lost until it can: %s. The process goes on"
        told = logging.LogRecord(
            "nyala.process", logging.ERROR, "", 0, text, (self.baseFilename, sys.exception()), None
        )
        with suppress(OSError, ValueError, AttributeError):  # there is no standard error, or it cannot be written
            print(self.format(told), file=sys.stderr, flush=True)
