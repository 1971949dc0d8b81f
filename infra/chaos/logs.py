"""Compares the logs of a tablet's replicas: pure functions over entries that were read from the disks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nyala.replica.types import OpId

SHOWN_MAX = 5


@dataclass(frozen=True)
class Logged:
    """One entry of a log: the fields that must be equal on any two replicas, and its time."""

    opid: OpId
    kind: str
    hybrid_time: int
    payload_crc: int
    meta_crc: int
    """The CRC of a config, or of a write's origin: a part of the entry like its payload."""


def judge_logs(tablet_id: str, logs: Mapping[str, Sequence[Logged]], committed: Mapping[str, int]) -> list[str]:
    """The errors by V1 and in the order of each log. `committed`: by server, the commit index that its replica
    reported.

    No index that two disks have, up to the lower commit index, has two terms or contents; indexes of one log follow
    each other without a gap, terms never fall, and hybrid times never fall.
    """
    wrong: list[str] = []
    seen: dict[int, tuple[str, Logged]] = {}
    for server, entries in sorted(logs.items()):
        kept = in_force(entries)
        wrong += _order(f"{tablet_id[:8]} on {server}", list(kept.values()))
        for index, entry in kept.items():
            if index > committed.get(server, 0):
                continue
            first = seen.setdefault(index, (server, entry))
            if first[1] != entry:
                wrong.append(f"{tablet_id[:8]} index {index}: {first[0]} has {first[1]}, {server} has {entry}")
    return wrong[:SHOWN_MAX]


def judge_appenders(tablet_id: str, logs: Mapping[str, Sequence[Logged]]) -> tuple[int, list[str]]:
    """V2 as far as disks show it: the number of entries found on a second disk, and traces of two appenders of one
    term.

    Committed or not, replaced later or not: one OpId is one entry with one predecessor, on every disk. A term begins
    once, with the NOOP of the candidate that won it. A second leader of the term would have begun it a second time.
    """
    wrong: list[str] = []
    shared: set[OpId] = set()
    first: dict[OpId, tuple[str, Logged]] = {}
    behind: dict[OpId, tuple[str, OpId]] = {}
    begun: dict[int, tuple[str, OpId]] = {}
    for server, entries in sorted(logs.items()):
        for entry, before in _appended(entries, {}):
            opid = entry.opid
            where, known = first.setdefault(opid, (server, entry))
            if where != server:
                shared.add(opid)
            if known != entry:
                wrong.append(f"{tablet_id[:8]} {opid}: {where} was sent {known}, {server} was sent {entry}")
            if before is None:
                continue
            where, other = behind.setdefault(opid, (server, before))
            if other != before:
                wrong.append(f"{tablet_id[:8]} {opid} follows {other} on {where}, {before} on {server}")
            if before.term < opid.term:
                where, start = begun.setdefault(opid.term, (server, opid))
                if start != opid:
                    wrong.append(f"{tablet_id[:8]} term {opid.term} begins at {start} on {where}, {opid} on {server}")
                if entry.kind != "NOOP":
                    wrong.append(f"{tablet_id[:8]} term {opid.term} begins with {entry.kind} on {server}")
    return len(shared), wrong[:SHOWN_MAX]


def judge_majority(
    tablet_id: str, logs: Mapping[str, Sequence[Logged]], committed: Mapping[str, int], voters: Sequence[str]
) -> list[str]:
    """Whether the last entry that any voter had committed, and so all entries before it, is in the logs of a majority.

    The logs must have been read after `committed` was reported. No entry above a replica's commit index was
    acknowledged.
    """
    top, knower = max(((committed.get(v, 0), v) for v in voters), default=(0, ""))
    if not top:
        return [f"{tablet_id[:8]}: no voter has committed anything"]
    kept = {v: in_force(logs.get(v, ())) for v in voters}
    entry = kept[knower].get(top)
    if entry is None:
        return [f"{tablet_id[:8]} index {top}: {knower} has committed it, and its log has it no more"]
    holders = [v for v in voters if kept[v].get(top) == entry]
    if 2 * len(holders) > len(voters):
        return []
    return [f"{tablet_id[:8]} {entry.opid} is committed, and of {', '.join(voters)} only {', '.join(holders)} have it"]


def in_force(entries: Iterable[Logged]) -> dict[int, Logged]:
    """The entries by index: a later entry at an index replaces the earlier one, and all that followed it."""
    kept: dict[int, Logged] = {}
    for _ in _appended(entries, kept):
        pass
    return kept


def _appended(entries: Iterable[Logged], kept: dict[int, Logged]) -> Iterator[tuple[Logged, OpId | None]]:
    """Each entry in the order of the disk, and the OpId of its predecessor then; None if that is not in the log.

    `kept` gets the entries that are in force so far.
    """
    last = 0
    for entry in entries:
        index = entry.opid.index
        for replaced in range(index, last + 1):
            kept.pop(replaced, None)
        kept[index], last = entry, index
        before = kept.get(index - 1)
        yield entry, before.opid if before else None


def _order(where: str, entries: Iterable[Logged]) -> list[str]:
    wrong: list[str] = []
    before: Logged | None = None
    for entry in entries:
        if before is not None:
            if entry.opid.index != before.opid.index + 1:
                wrong.append(f"{where}: {entry.opid} follows {before.opid}")
            if entry.opid.term < before.opid.term:
                wrong.append(f"{where}: the term falls from {before.opid} to {entry.opid}")
            if 0 < entry.hybrid_time < before.hybrid_time:
                wrong.append(f"{where}: hybrid time falls at {entry.opid}")
        before = entry
    return wrong[:SHOWN_MAX]
