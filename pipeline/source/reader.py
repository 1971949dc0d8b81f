"""Reads a table into Spark: one partition per tablet, or `slices` of each, all at one time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from nyala.replica.client import Client, ScanSpec, TableHandle, TabletHandle, check_spec, shared_client, tablets_to_ask
from nyala.replica.types import (
    MAX_HYBRID_TIME,
    Code,
    Refused,
    hybrid_from_us,
    limits,
    shown,
    staleness_problem,
    us_of_hybrid,
)

from .application_time import raise_time_seen
from .where import parse_where

SLICES_MAX = 1024
_DIGITS_MAX = 18


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read, from strings. `at_time`: hybrid time, 0 for now. `staleness_us`: 0 for none."""

    masters: str
    table: str
    columns: tuple[str, ...] | None = None
    where: str = ""
    at_time: int = 0
    slices: int = 1
    staleness_us: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse the options of `spark.read`; Refused(INVALID_ARGUMENT) names the one that is wrong or missing."""
        known = {"masters", "table", "columns", "where", "at", "slices", "staleness", "path"}
        if unknown := sorted(set(options) - known):
            raise _invalid(f"no option {unknown[0]!r}; there are {', '.join(sorted(known - {'path'}))}")
        table = options.get("table") or options.get("path") or ""
        masters = options.get("masters") or ""
        if not table or not masters:
            raise _invalid("say which table to read: option masters is host:port[,host:port], option table its name")
        columns = tuple(name.strip() for name in options.get("columns", "").split(",") if name.strip()) or None
        try:
            slices = int(options.get("slices", "1"))
        except ValueError:
            slices = 0
        if not 1 <= slices <= SLICES_MAX:
            raise _invalid(f"slices is 1 to {SLICES_MAX}, not {options.get('slices')!r}")
        at_time, staleness_us = _time_of(options.get("at", "")), _staleness_us(options.get("staleness", ""))
        if at_time and staleness_us:
            raise _invalid("at and staleness exclude each other: the one names a time, the other how old it may be")
        return cls(masters, table, columns, options.get("where", ""), at_time, slices, staleness_us)


def _invalid(why: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, why)


def _staleness_us(text: str) -> int:
    """Return the microseconds of a number of seconds; 0 if empty."""
    if not text:
        return 0
    try:
        staleness_us = float(text) * 1e6
    except ValueError:
        raise _invalid(f"staleness is a number of seconds, not {text!r}") from None
    if problem := staleness_problem(staleness_us):
        raise _invalid(f"{problem}, not {text!r}")
    return int(staleness_us)


def _time_of(text: str) -> int:
    """Return the hybrid time of an ISO timestamp (UTC unless it names a zone) or of microseconds since 1970; 0 if
    empty."""
    if not text:
        return 0
    try:
        if text.isdecimal() and len(text) <= _DIGITS_MAX:
            time = hybrid_from_us(int(text))
        else:
            parsed = dt.datetime.fromisoformat(text)
            aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)
            time = hybrid_from_us(round(aware.timestamp() * 1e6))
    except (ValueError, OverflowError) as error:
        what = "at is an ISO timestamp or microseconds since 1970"
        raise _invalid(f"{what}, not {shown(text)!r}") from error
    if not 0 < time <= MAX_HYBRID_TIME:
        raise _invalid(f"at is a time after 1970 and before 2041, not {shown(text)!r}")
    return time


@dataclass
class Part(InputPartition):  # type: ignore[misc]
    """One slice of one tablet at the read's time."""

    pos: int
    spec: ScanSpec

    def __init__(self, pos: int, spec: ScanSpec) -> None:
        self.pos, self.spec = pos, spec
        super().__init__(pos)


@dataclass
class Reader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads on the executors. Pickled in between."""

    options: ReadOptions
    handle: TableHandle
    columns: tuple[str, ...]

    def partitions(self) -> Sequence[InputPartition]:
        """Choose the time, so that all partitions read the table as of one moment."""
        client = shared_client(self.options.masters)
        spec = ScanSpec(
            columns=self.columns,
            predicates=parse_where(self.options.where, self.handle.schema),
            slice_count=self.options.slices,
            staleness_us=self.options.staleness_us,
        )
        check_spec(self.handle, spec)
        asked, slices = tablets_to_ask(self.handle, spec), range(self.options.slices)
        spec = replace(spec, snapshot_time=self._time(client, asked))
        return [Part(tablet.pos, replace(spec, slice_pos=number)) for tablet in asked for number in slices]

    def _time(self, client: Client, asked: Sequence[TabletHandle]) -> int:
        """Return the time of all partitions, which read these tablets. No later stale read of this Spark application is
        older: the executors do not report what they have read, so what is planned counts as read."""
        client.observe(raise_time_seen(self.handle, self.options.masters))
        at = self.options.at_time
        if not at:
            at = client.snapshot_time(self.handle, self.options.staleness_us, asked)
        elif at > client.time_seen:
            ahead_us = us_of_hybrid(at) - us_of_hybrid(client.snapshot_time(self.handle, tablets=asked))
            if ahead_us > limits.CLOCK_AHEAD_OF_CALLERS_US_MAX:
                return at  # The servers will refuse this read, so no caller sees data of that time.
        client.observe(raise_time_seen(self.handle, self.options.masters, at))
        return at

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of one partition; it is complete, or an error is raised."""
        if not isinstance(partition, Part):
            raise TypeError(f"not a partition of this source: {partition!r}")
        client = shared_client(self.options.masters)
        tablet = self.handle.tablets[partition.pos]
        for batch in client.scan_tablet(self.handle, tablet, partition.spec).batches:
            yield batch.select(list(self.columns))
