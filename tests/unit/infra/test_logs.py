"""Log lines as text and as JSON, and the log file: whole lines, a bounded length, and no end of the process."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from nyala.replica.types import InvariantViolation, Refused
from nyala.replica.types.log_file import LogFile
from nyala.replica.types.log_records import about
from nyala.replica.types.logs import EXCEPTION_CHARS_MAX, MESSAGE_CHARS_MAX, JsonFormatter, TextFormatter
from nyala.replica.types.process_options import LOG_FILE_BYTES_MIN, ProcessOptions

WORST = "\U0001f4a5"
"""A character that takes the most bytes in JSON: 12."""


LINES = 'two\nlines\r\nand\u2028more \x1b[31m "quoted" \\'


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def log() -> tuple[logging.Logger, list[logging.LogRecord]]:
    """A logger without a parent, and its records."""
    logger, kept = logging.Logger("nyala.tried", logging.DEBUG), Kept()
    logger.addHandler(kept)
    return logger, kept.records


class WithoutText:
    def __str__(self) -> str:
        raise KeyError("no text")


@pytest.mark.parametrize(
    ("message", "values", "text"),
    [
        ("plain", (), "plain"),
        (LINES, (), LINES),
        ("%s of %d", ("h\u00e9llo \ud800", 7), "h\u00e9llo \ud800 of 7"),
        ("%d entries", ("many",), "%d entries (its 1 values cannot be shown)"),
        ("%s", (WithoutText(),), "%s (its 1 values cannot be shown)"),
        ("%s and %s", ("one",), "%s and %s (its 1 values cannot be shown)"),
        (WORST * 2 * MESSAGE_CHARS_MAX, (), None),
    ],
)  # fmt: skip
def test_each_record_is_one_line_of_json(
    log: tuple[logging.Logger, list[logging.LogRecord]], message: str, values: tuple[object, ...], text: str | None
) -> None:
    """Goal: a program reads each record as one line, whatever is in it, and a line has a bound. Method: texts with line
    breaks, control characters, half a character, and values that do not fit or have no text, each with a traceback of
    a long text."""
    logger, records = log
    formatter = JsonFormatter("server")
    formatter.uuid = "5" * 32
    try:
        raise ValueError("first\nsecond " + WORST * EXCEPTION_CHARS_MAX)
    except ValueError:
        about(logger, "t" * 32, "a" * 32, peer="p" * 32).exception(message, *values)
    records[0].created, records[0].msecs = 1_000_000_000.125, 125.0
    line = formatter.format(records[0])
    assert line.isascii() and line.isprintable() and len(line) < LOG_FILE_BYTES_MIN
    found = json.loads(line)
    exception = found.pop("exception")
    assert exception.startswith("Traceback (most recent call last):\n") and "ValueError: first\nsecond" in exception
    assert "characters are left out" in exception and len(exception) <= EXCEPTION_CHARS_MAX
    told = found.pop("message")
    if text is None:
        assert "characters are left out" in told and len(told) <= MESSAGE_CHARS_MAX
    else:
        assert told == f"T {'t' * 32} P {'a' * 32} {text}"
    assert found == {
        "time": "2001-09-09T01:46:40.125Z", "level": "ERROR", "logger": "nyala.tried", "role": "server",
        "uuid": "a" * 32, "tablet": "t" * 32, "peer": "p" * 32,
    }  # fmt: skip


def test_record_names_the_process_and_only_what_it_is_about(
    log: tuple[logging.Logger, list[logging.LogRecord]],
) -> None:
    """Goal: a field is there if the record is about a tablet or a peer, and the text is the same in both forms. Method:
    records about neither and about each; a percent sign in a message without values."""
    logger, records = log
    logger.info("100%")
    about(logger, "t1").info("100%")
    about(logger, "", "p1", peer="q1").info("%d %%", 100)
    formatter = JsonFormatter("master")
    first, second, third = (json.loads(formatter.format(record)) for record in records)
    assert first.keys() == {"time", "level", "logger", "message", "role", "uuid"} and first["uuid"] == ""
    assert (second["message"], second["tablet"], "peer" in second) == ("T t1 100%", "t1", False)
    assert (third["message"], third["uuid"], third["peer"], "tablet" in third) == ("P p1 100 %", "p1", "q1", False)
    texts = [TextFormatter().format(record).partition(" I ")[2] for record in records]
    assert texts == ["100%", "T t1 100%", "P p1 100 %"]


def record_of(text: str) -> logging.LogRecord:
    return logging.LogRecord("nyala.tried", logging.INFO, "", 0, "%s", (text,), None)


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_files_have_a_bound_and_whole_lines(form: str, tmp_path: Path) -> None:
    """Goal: logs take at most `log_files` times `log_file_bytes`, and the newest are kept, in order. Method: five times
    as many bytes, of characters that are longer in bytes, and one line of the longest that there is."""
    path = tmp_path / "nyala.log"
    handler = LogFile(ProcessOptions(log_file=str(path), log_file_bytes=LOG_FILE_BYTES_MIN, log_files=3))
    handler.setFormatter(JsonFormatter("server") if form == "json" else TextFormatter())
    count = 0
    for count in range(5 * 3 * LOG_FILE_BYTES_MIN // 1600):
        handler.handle(record_of(f"{count} " + WORST * (133 if form == "json" else 400)))
    handler.handle(record_of(f"{count + 1} " + WORST * MESSAGE_CHARS_MAX))
    handler.close()
    files = [tmp_path / name for name in ("nyala.log.2", "nyala.log.1", "nyala.log")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(LOG_FILE_BYTES_MIN * 0.6 < file.stat().st_size <= LOG_FILE_BYTES_MIN for file in files[:2])
    assert files[2].stat().st_size <= LOG_FILE_BYTES_MIN
    lines = "".join(file.read_text() for file in files).splitlines()
    texts = [json.loads(line)["message"] if form == "json" else line.partition(" I ")[2] for line in lines]
    numbers = [int(text.partition(" ")[0]) for text in texts]
    assert numbers == list(range(count + 2 - len(numbers), count + 2)) and handler.lost == 0


FULL = """
import json, logging, resource, sys
from nyala.replica.types.logs import begin_to_log, name_process
from nyala.replica.types.process_options import ProcessOptions
path = sys.argv[1]
begin_to_log(ProcessOptions(log_file=path, log_format="json"), "server")
name_process("5" * 32)
log = logging.getLogger("nyala.tried")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for n in range(10):
    log.info("before %d", n)
resource.setrlimit(resource.RLIMIT_FSIZE, (open(path).seek(0, 2) + 700, hard))
for n in range(100):
    log.info("on a full disk %d", n)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.info("after")
print("lives")
"""


def test_full_disk_costs_records_and_no_process(tmp_path: Path) -> None:
    """Goal: a process whose log file cannot be written lives on, says so once, leaves no half line, and notes the loss
    as soon as it can. Method: the kernel's bound on a file's length, which cuts a write short as a full disk does."""
    path = tmp_path / "nyala.log"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "lives\n", done.stderr
    [told] = [json.loads(line) for line in done.stderr.splitlines()]
    assert f"the log file {path} cannot be written" in told["message"] and "File too large" not in told["logger"]
    texts = [json.loads(line)["message"] for line in path.read_text().splitlines()]
    kept = [text for text in texts if text.startswith("on a full disk")]
    assert 1 <= len(kept) < 10 and texts[:10] == [f"before {n}" for n in range(10)]
    lost = f"{100 - len(kept)} records before this one could not be written to this file, and are lost"
    assert texts[10 + len(kept) :] == [lost, "after"]


def test_removed_log_file_is_made_again(tmp_path: Path) -> None:
    """Goal: a file that was removed is no hole into which records fall. Method: remove it between two records."""
    path = tmp_path / "nyala.log"
    handler = LogFile(ProcessOptions(log_file=str(path)))
    handler.handle(record_of("first"))
    path.unlink()
    handler.handle(record_of("second"))
    handler.close()
    assert path.read_text() == "second\n"


def test_log_file_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """Goal: a wrong file or bound starts nothing, and the error says what to write. Method: no folder, a folder, a
    device; a file that is too short for a line, and one file, which could not be rotated."""
    for path in (tmp_path / "no" / "nyala.log", tmp_path, Path("/dev/null")):
        with pytest.raises(Refused, match="the log file cannot be opened: choose another one by --log-file"):
            LogFile(ProcessOptions(log_file=str(path)))
    with pytest.raises(InvariantViolation, match="a log file holds the longest line"):
        ProcessOptions(log_file_bytes=LOG_FILE_BYTES_MIN - 1)
    with pytest.raises(InvariantViolation, match="one file is written while the others are kept"):
        ProcessOptions(log_files=1)


UNCAUGHT = """
import logging, sys, threading, warnings
from nyala.replica.types.logs import begin_to_log, name_process, say_why_it_ends
from nyala.replica.types.process_options import ProcessOptions
begin_to_log(ProcessOptions(log_format="json", log_level="debug"), "master")
name_process("5" * 32)
logging.getLogger("nyala.tried").debug("of this project")
logging.getLogger("kafka.admin.client").debug("Starting KafkaAdminClient with configuration: password")
warnings.warn("deprecated\\n")
def fail(): raise ValueError("in a\\nthread")
thread = threading.Thread(target=fail, name="lane")
thread.start()
thread.join()
class Ended:
    def __del__(self): raise RuntimeError("at its\\nend")
Ended()
say_why_it_ends("nyala-master", "the port is taken")
raise OSError("at the\\nroot")
"""


def test_everything_on_standard_error_is_json() -> None:
    """Goal: errors that nobody catches or can catch, warnings of Python and the reason of a refused start are lines
    like all others, and debug lines of libraries, which may show a password, are not logged. Method: a process with
    each of them."""
    done = subprocess.run([sys.executable, "-c", UNCAUGHT], capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1 and {(line["role"], line["uuid"]) for line in lines} == {("master", "5" * 32)}
    assert [line["level"] for line in lines] == ["DEBUG", "WARNING", "ERROR", "ERROR", "CRITICAL", "CRITICAL"]
    assert "of this project" in lines[0]["message"] and "deprecated" in lines[1]["message"]
    assert lines[2]["message"] == "thread lane ends by an unexpected error: in a\nthread"
    assert lines[2]["exception"].startswith("Traceback") and "in fail" in lines[2]["exception"]
    assert "at its\nend" in lines[3]["message"] and "in __del__" in lines[3]["exception"]
    assert lines[4]["message"] == "nyala-master: the port is taken" and "exception" not in lines[4]
    assert lines[5]["exception"].rstrip().endswith("OSError: at the\nroot")
