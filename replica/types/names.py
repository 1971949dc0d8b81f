"""Checks of names, ids and numbers that come in: one alphabet, one length and one range each. Pure.

Each check returns its argument, or raises Refused(INVALID_ARGUMENT) that shows the value: cut short, and with
characters escaped that cannot be printed, so that it cannot change a log line or a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from . import limits
from .errors import Code, Refused, printable

T = TypeVar("T")
_SHOWN_CHARS = 80
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_TABLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_WHITE = str.maketrans("\t\n\r", "   ")
_JSON_PART = re.compile(r'\\.|["\[{\]}]', re.DOTALL)
"""Matches what may change how deep a JSON text nests. It matches two characters at most, so a scan reads each character
once or twice. If whole strings were parts, one that does not end would be read again from each of its escaped
quotes."""


def shown(value: object) -> str:
    """Return the value as an error may show it: at most 80 characters, with those escaped that cannot be printed."""
    text = value if isinstance(value, str) else repr(value)
    cut = printable(text[: _SHOWN_CHARS + 1])
    return cut if len(cut) <= _SHOWN_CHARS else f"{cut[:_SHOWN_CHARS]}... ({len(text)} characters)"


def some_of(values: Sequence[T], text: Callable[[T], str] = str) -> str:
    """Return the first five of the values as a list in a sentence, and whether there are more."""
    return ", ".join(text(value) for value in values[:5]) + (", ..." if len(values) > 5 else "")


def refused(what: str, value: object, **values: object) -> Refused:
    """Return the refusal of one value."""
    return Refused(Code.INVALID_ARGUMENT, what, {"value": shown(value), **values})


def check_id(text: str, what: str, *, length_max: int = limits.ID_LENGTH_MAX) -> str:
    """Check an id of a tablet, a table, a server, a master or a cluster: it may be a file's name."""
    if not _ID.fullmatch(text) or len(text) > length_max:
        raise refused(
            f"{what}: an id has 1 to {length_max} letters, digits, '.', '_' and '-', and does not begin with '.'",
            text,
            length=len(text),
        )
    return text


def check_token(text: str, what: str, *, length_max: int = limits.TOKEN_LENGTH_MAX) -> str:
    """Check a key that a caller made up, such as a request's or a client's id: it must be printable, and is bounded."""
    if not text or len(text) > length_max or _CONTROL.search(text):
        raise refused(f"{what}: 1 to {length_max} characters, none of them a control character", text, length=len(text))
    return text


def check_text(text: str, what: str, *, length_max: int = limits.TEXT_LENGTH_MAX) -> str:
    """Check a text that people read, such as a reason: it is bounded, and may hold no control characters except tabs
    and new lines."""
    if len(text) > length_max or _CONTROL.search(text.translate(_WHITE)):
        raise refused(f"{what}: at most {length_max} characters, and no control characters", text, length=len(text))
    return text


def check_length(text: str, what: str, *, length_max: int) -> str:
    """Check only the length of a text that is looked up, or that an earlier build may have made with other
    characters."""
    if len(text) > length_max:
        raise refused(f"{what}: at most {length_max} characters", text, length=len(text))
    return text


def check_table_name(name: str) -> str:
    """Check the name of a table that is to be made."""
    if not _TABLE_NAME.fullmatch(name) or len(name) > limits.TABLE_NAME_LENGTH_MAX:
        what = "a table name begins with a letter or digit, and goes on with those, '.', '_' and '-'"
        raise Refused(
            Code.INVALID_ARGUMENT,
            what,
            name=shown(name),
            length=len(name),
            max=limits.TABLE_NAME_LENGTH_MAX,
        )
    return name


def check_column_name(name: str) -> str:
    """Check the name of a column that is to be made. Those of tables made before may have other characters."""
    if not name or len(name) > limits.NAME_LENGTH_MAX or _CONTROL.search(name) or name != name.strip():
        raise refused(
            f"a column name has 1 to {limits.NAME_LENGTH_MAX} characters, none of them a control character, and no "
            "space at either end",
            name,
            length=len(name),
        )
    return name


def check_topic(topic: str, what: str = "a topic") -> str:
    """Check the name of a Kafka topic by Kafka's own rules."""
    if not _TOPIC.fullmatch(topic) or len(topic) > limits.TOPIC_LENGTH_MAX or topic in (".", ".."):
        raise Refused(
            Code.INVALID_ARGUMENT,
            f"{what}: Kafka takes letters, digits, '.', '_' and '-' in a topic's name",
            topic=shown(topic),
            length=len(topic),
            max=limits.TOPIC_LENGTH_MAX,
        )
    return topic


def check_source_topic(topic: str, masters_own: Collection[str] = ()) -> str:
    """Check a topic from which a table is to be filled: it may be none of Kafka's own, nor one of dead letters, nor one
    of the masters' (`kafka_topics.control_topics`). A caller that does not know their names leaves them to the
    masters."""
    check_topic(topic, "a table's source")
    if topic.startswith("__"):
        raise refused(
            "a table's source cannot be a topic of Kafka's own, which begin with '__'; name another one", topic
        )
    if topic in masters_own or topic.startswith("dead-letters."):
        raise refused("a table's source cannot be one of the system's own topics; name another one", topic)
    return topic


def check_number(number: float, what: str, low: float, high: float) -> float:
    """Check that a number is from `low` to `high`, and not NaN."""
    if not low <= number <= high:
        raise refused(f"{what}: a number from {low:g} to {high:g}", number)
    return number


def parse_json(data: bytes | str, what: str, *, depth_max: int = limits.JSON_DEPTH_MAX) -> Any:
    """Return the value of a JSON text; Refused if it is not valid, nests deeper than `depth_max`, or holds NaN or
    Infinity."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        if nests_deeper(text, depth_max):
            raise refused(f"{what}: JSON of at most {depth_max} levels", text)
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise refused(f"{what}: a value that is no JSON", data, reason=str(error)[:200]) from error


def nests_deeper(text: str, depth_max: int) -> bool:
    """Whether the text nests deeper than `depth_max`, by its brackets outside of strings. It need not be valid JSON."""
    depth, quoted = 0, False
    for part in _JSON_PART.finditer(text):
        first = part[0][0]
        if first == '"':
            quoted = not quoted
        elif not quoted and first != "\\":
            depth += 1 if first in "[{" else -1
            if depth > depth_max:
                return True
    return False


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
