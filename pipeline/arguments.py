"""Numbers on a job's command line: each option has a range, and any other text is refused in one line.

`argparse` alone accepts `nan`, `-5` and `inf` for times, and answers `5 parsecs` with a page of usage.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TypeVar

from nyala.replica.types import Code, Refused, limits, shown

from .kafka_security import kafka_options

T = TypeVar("T")

DAY_S = 86_400.0
LEASE_S_MAX = 3_600.0
"""The masters refuse a longer lease."""
COUNT_MAX = (1 << 31) - 1
"""Spark counts in 32 bits."""


def seconds(option: str, least: float = 0.0, most: float = limits.SECONDS_MAX) -> Callable[[str], float]:
    """Return a function for `argparse` that turns an option's value into seconds from `least` to `most`, or raises
    Refused."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise _refused(option, text, f"a number of seconds from {least:g} to {most:,.0f}, such as 90 or 0.5")
        return value

    return read


def count(option: str, least: int = 0, most: int = COUNT_MAX) -> Callable[[str], int]:
    """Return such a function for a whole number."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise _refused(option, text, f"a whole number from {least:,} to {most:,}")
        return value

    return read


def add_restart_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that bound how often a query is restarted."""
    parser.add_argument(
        "--patience-s",
        type=seconds("--patience-s", 0.1),
        help="give up after this time without progress (default: a day; 600 with --available-now)",
    )
    restarts = count("--restarts-max")
    parser.add_argument("--restarts-max", type=restarts, help="give up after so many restarts without progress, too")


def add_masters_options(parser: argparse.ArgumentParser, certificate: str) -> None:
    """Add the options by which a job reaches the masters and servers; `certificate`: whose it needs with TLS."""
    parser.add_argument("--masters", required=True, help="host:port[,host:port]")
    parser.add_argument(
        "--tls",
        default="",
        metavar="DIR",
        help=f"directory of {certificate} certificate, on the driver and all executors; default: NYALA_TLS on each",
    )


def add_kafka_options(parser: argparse.ArgumentParser, then: str = "") -> None:
    """Add the options by which a job knows the masters' topics, and how its clients log in to Kafka and wait for it.

    `then`: the end of the help text: what the job does if no broker answers in time.
    """
    parser.add_argument("--topic-prefix", default="", help="prefix of the names of the masters' topics")
    kafka_s = seconds("--kafka-timeout-s", 1, DAY_S)
    parser.add_argument(
        "--kafka-timeout-s", type=kafka_s, default=60.0, help=f"wait for a broker that does not answer{then}"
    )
    parser.add_argument(
        "--kafka-option", action="append", default=[], metavar="NAME=VALUE", help="option of Spark's Kafka source"
    )
    parser.add_argument("--kafka-properties", default="", metavar="FILE", help="Java client properties: how to log in")


def options_of(kind: Callable[..., T], given: argparse.Namespace, **converted: object) -> T:
    """A job's dataclass of options, from the options of the command line that have the names of its fields.

    Its `bootstrap` is --kafka, and its `kafka` says how clients log in there. `converted`: fields of other types than
    the command line has. QueryRefused if the file of --kafka-properties or a --kafka-option cannot be read.
    """
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    named = {name: value for name, value in vars(given).items() if name in names}
    kafka = kafka_options(given.kafka_option, given.kafka_properties)
    return kind(**named | converted | {"bootstrap": given.kafka, "kafka": kafka})


def _refused(option: str, text: str, takes: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, f"option {option} takes {takes}, not {shown(text)!r}")


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line. For an option that is no number the process ends with status 1 and one line about
    it."""
    try:
        return parser.parse_args(arguments)
    except Refused as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
