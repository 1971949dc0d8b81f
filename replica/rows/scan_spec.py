"""The parameters of a read, passed from the caller to each tablet."""

from __future__ import annotations

from dataclasses import dataclass

from .predicate import Predicate


@dataclass(frozen=True)
class ScanSpec:
    """The parameters of a read. `columns` None: all. `snapshot_time` 0: the latest, linearizable. `limit` 0: none.

    `slice_count` cuts each tablet's hash space into parts, each of which is read, and repeated after a failure, on its
    own; `slice_pos` is the one to read. `staleness_us` not 0: any replica may answer if its data is at most that old;
    with a `snapshot_time`, any that has reached it. `count_only`: the number of rows instead of their columns.
    """

    columns: tuple[str, ...] | None = None
    predicates: tuple[Predicate, ...] = ()
    snapshot_time: int = 0
    limit: int = 0
    slice_pos: int = 0
    slice_count: int = 1
    staleness_us: int = 0
    count_only: bool = False
