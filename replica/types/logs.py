"""Log lines of every process of this project: as text or as JSON, to standard error or to a file of bounded length.

Times are in UTC to the millisecond, because files of several machines and several days are read side by side.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import sys
import threading
import time
from types import TracebackType

from .log_file import LogFile
from .log_records import PEER, PROCESS, TABLET
from .process_options import ProcessOptions

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname).1s %(message)s"
FORMAT_WITH_NAMES = "%(asctime)s.%(msecs)03dZ %(levelname).1s %(name)s %(message)s"
DAY_AND_TIME = "%Y-%m-%dT%H:%M:%S"
MESSAGE_CHARS_MAX = 16 << 10
EXCEPTION_CHARS_MAX = 32 << 10
"""The beginning and the end of a longer text are logged. A character takes up to 12 bytes in JSON, so a line is shorter
than LOG_FILE_BYTES_MIN."""
_log = logging.getLogger("nyala.process")
_ErrorInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class TextFormatter(logging.Formatter):
    """Writes records as text. Their times are in UTC, whatever the machine's time zone is."""

    converter = staticmethod(time.gmtime)

    def __init__(self, *, names: bool = False) -> None:
        super().__init__(FORMAT_WITH_NAMES if names else FORMAT, DAY_AND_TIME)

    def format(self, record: logging.LogRecord) -> str:
        """[logging] A line, and more lines for a traceback."""
        return cut(super().format(record), MESSAGE_CHARS_MAX + EXCEPTION_CHARS_MAX)


class JsonFormatter(logging.Formatter):
    """Writes each record as one JSON object on one line.

    It never raises for a record, because the line of an error that cannot be written would be missed most.
    """

    def __init__(self, role: str) -> None:
        """`role`: of this process, `master` or `server`."""
        super().__init__()
        self.role = role
        self.uuid = ""
        """This process's; empty until its directory is open."""

    def format(self, record: logging.LogRecord) -> str:
        """[logging] The line."""
        moment = time.strftime(DAY_AND_TIME, time.gmtime(record.created))
        found = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": cut(_message_of(record), MESSAGE_CHARS_MAX),
            "role": self.role,
            "uuid": str(getattr(record, PROCESS, "") or self.uuid),
        }
        for name in (TABLET, PEER):
            if value := getattr(record, name, ""):
                found[name] = str(value)
        if record.exc_info and record.exc_info[0] is not None:
            found["exception"] = cut(self.formatException(record.exc_info), EXCEPTION_CHARS_MAX)
        return json.dumps(found)


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - the arguments do not fit the format, or have no text
        return f"{record.msg} (its {len(record.args or ())} values cannot be shown)"


def cut(text: str, chars_max: int) -> str:
    """Return the text, without its middle if it is longer."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2 - 32
    return f"{text[:half]} ... {len(text) - 2 * half} characters are left out ... {text[-half:]}"


class _StandardError(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error. If nothing can be written there, there is no place to report that."""

    def handleError(self, record: logging.LogRecord) -> None:
        """[logging] Drop the record: its reader is gone, or its disk is full."""


def log_to_stderr(level: int | str = logging.INFO, *, names: bool = False) -> None:
    """Begin to log as text; called once in a process. `names`: with the logger's name. A signal that ends the process,
    such as SIGBUS, writes its name and the stacks of all threads."""
    _begin(_StandardError(sys.stderr), TextFormatter(names=names), level)


def begin_to_log(options: ProcessOptions, role: str, *, names: bool = False) -> None:
    """Begin to log as the options of a master or server say; called once, as soon as they are known.

    Refused ILLEGAL_STATE if the log file cannot be opened. Errors that nobody catches are logged too. The level is that
    of this project's own loggers: libraries log from INFO on, because their debug lines may show a password.
    """
    handler = LogFile(options) if options.log_file else _StandardError(sys.stderr)
    json_lines = options.log_format == "json"
    level = logging.getLevelNamesMapping()[options.log_level.upper()]
    _begin(handler, JsonFormatter(role) if json_lines else TextFormatter(names=names), max(level, logging.INFO))
    logging.getLogger("nyala").setLevel(level)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable


def _begin(handler: logging.Handler, formatter: logging.Formatter, level: int | str) -> None:
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


def name_process(uuid: str) -> None:
    """Give later lines of JSON this process's uuid."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonFormatter):
            handler.formatter.uuid = uuid


def say_why_it_ends(program: str, error: str) -> None:
    """Say why this process cannot start: in one line on standard error, and in the log file if there is one."""
    handlers = logging.getLogger().handlers
    files = any(isinstance(handler, LogFile) for handler in handlers)
    json_lines = any(isinstance(handler.formatter, JsonFormatter) for handler in handlers)
    if files or json_lines:
        _log.critical("%s: %s", program, error)
    if files or not json_lines:
        print(f"{program}: {error}", file=sys.stderr)


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    _log.critical("the process ends by an unexpected error: %s", error, exc_info=(kind, error, traceback))


def _uncaught_in_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is None or isinstance(ended.exc_value, SystemExit):
        return
    name = ended.thread.name if ended.thread is not None else "unknown"
    info: _ErrorInfo = (ended.exc_type, ended.exc_value, ended.exc_traceback)
    _log.error("thread %s ends by an unexpected error: %s", name, ended.exc_value, exc_info=info)


def _unraisable(ended: sys.UnraisableHookArgs) -> None:
    what = ended.err_msg or "an error cannot be raised where it occurred"
    info: _ErrorInfo | None = None
    if ended.exc_value is not None:
        info = (ended.exc_type, ended.exc_value, ended.exc_traceback)
    _log.error("%s: %s: %s", what, type(ended.object).__name__, ended.exc_value, exc_info=info)
