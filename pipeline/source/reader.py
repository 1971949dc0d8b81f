"""Reads a table into Spark: one partition per tablet, or `slices` of each. A query reads all of them as
of one hybrid time."""

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

from .application_time import observe_time
from .query_time import QueryTimes
from .where import parse_where

SLICES_MAX = 1024
_DIGITS_MAX = 18


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read, from strings. `at_time`: hybrid time, 0 for none. `staleness_us`: 0 for none."""

    masters: str
    table: str
    columns: tuple[str, ...] | None = None
    where: str = ""
    at_time: int = 0
    slices: int = 1
    staleness_us: int = 0
    at_first_use: bool = False
    """Whether all queries of the DataFrame read as of the moment at which the first is planned."""
    tls: str = ""
    """The directory of the client's credentials, on the driver and on all executors; empty: that of NYALA_TLS there."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse the options of `spark.read`; Refused(INVALID_ARGUMENT) names the one that is wrong or missing."""
        known = {"masters", "table", "columns", "where", "at", "slices", "staleness", "tls", "path"}
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
        at, staleness_us = options.get("at", ""), _staleness_us(options.get("staleness", ""))
        if at and staleness_us:
            raise _invalid("at and staleness exclude each other: the one names a time, the other how old it may be")
        now = at.strip().lower() == "now"
        at_time = 0 if now else _time_of(at)
        where, tls = options.get("where", ""), options.get("tls", "")
        return cls(masters, table, columns, where, at_time, slices, staleness_us, now, tls)


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
        what = "at is an ISO timestamp, microseconds since 1970, or now"
        raise _invalid(f"{what}, not {shown(text)!r}") from error
    if not 0 < time <= MAX_HYBRID_TIME:
        raise _invalid(f"at is a time after 1970 and before 2041, not {shown(text)!r}")
    return time


@dataclass
class Part(InputPartition):  # type: ignore[misc]
    """One slice of one tablet: at a time if the spec has one, otherwise at the time of each query."""

    pos: int
    spec: ScanSpec
    times: QueryTimes | None

    def __init__(self, pos: int, spec: ScanSpec, times: QueryTimes | None) -> None:
        self.pos, self.spec, self.times = pos, spec, times
        super().__init__(pos)


@dataclass
class Reader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads on the executors. Pickled in between."""

    options: ReadOptions
    handle: TableHandle
    columns: tuple[str, ...]

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the reads of all queries of this `load()`: Spark keeps the answer. A part has a time only if the options
        name one."""
        spec = ScanSpec(
            columns=self.columns,
            predicates=parse_where(self.options.where, self.handle.schema),
            slice_count=self.options.slices,
            staleness_us=self.options.staleness_us,
        )
        check_spec(self.handle, spec)
        asked, slices = tablets_to_ask(self.handle, spec), range(self.options.slices)
        if self.options.at_time or self.options.at_first_use:
            spec, times = replace(spec, snapshot_time=self._time_of_all_queries(asked)), None
        else:
            times = QueryTimes.new(shared_client(self.options.masters, self.options.tls))
        return [Part(tablet.pos, replace(spec, slice_pos=number), times) for tablet in asked for number in slices]

    def _time_of_all_queries(self, asked: Sequence[TabletHandle]) -> int:
        """Return the time that the options name, for reads of these tablets. A planned read counts as a read."""
        client = self._client_with_time_seen()
        at = self.options.at_time
        if not at:
            at = client.snapshot_time(self.handle, tablets=asked)
        elif at > client.time_seen:
            ahead_us = us_of_hybrid(at) - us_of_hybrid(client.snapshot_time(self.handle, tablets=asked))
            if ahead_us > limits.CLOCK_AHEAD_OF_CALLERS_US_MAX:
                return at  # The servers will refuse this read, so no caller sees data of that time.
        client.observe(observe_time(self.handle, self.options.masters, at))
        return at

    def _time_of_query(self, spec: ScanSpec, times: QueryTimes) -> int:
        """[task] Return the time of this task's query. No later query of this Spark application reads an older time."""

        def choose() -> int:
            asked = tablets_to_ask(self.handle, spec)
            # On another host a task does not know the times of the application's writes. A strong read includes all of
            # them.
            staleness_us = spec.staleness_us if times.beside_driver else 0
            return self._client_with_time_seen(times).snapshot_time(self.handle, staleness_us, asked)

        at = times.agreed(shared_client(self.options.masters, self.options.tls), choose)
        if times.beside_driver:
            observe_time(self.handle, self.options.masters, at, times.folder)
        return at

    def _client_with_time_seen(self, times: QueryTimes | None = None) -> Client:
        """Return the process's client. On the driver's host it knows the times that the application has read and
        written."""
        client = shared_client(self.options.masters, self.options.tls)
        if times is None or times.beside_driver:
            client.observe(observe_time(self.handle, self.options.masters, folder=times.folder if times else ""))
        return client

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of one partition; it is complete, or an error is raised."""
        if not isinstance(partition, Part):
            raise TypeError(f"not a partition of this source: {partition!r}")
        spec, times = partition.spec, partition.times
        at = spec.snapshot_time if times is None else self._time_of_query(spec, times)
        client, tablet = shared_client(self.options.masters, self.options.tls), self.handle.tablets[partition.pos]
        try:
            found = client.scan_tablet(self.handle, tablet, replace(spec, snapshot_time=at))
        except Refused as error:
            if error.code is Code.HISTORY_GONE and self.options.at_first_use:
                error.add_note("With at = now a DataFrame reads as of its first use: load() it again.")
            raise
        for batch in found.batches:
            yield batch.select(list(self.columns))
