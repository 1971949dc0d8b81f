"""Reads the log at a restart, and finds which of its configs are committed [kudu consensus, "Assembling/Rebooting"].

There are no commit records. Entries above the flush index come back as received, not as committed: they are applied
when the replica learns the commit index from its group.
"""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.consensus_metadata import ConsensusMeta, decode_config
from nyala.replica.types import Corruption, EntryKind, OpId, RaftConfig
from nyala.replica.wal import Replay

from .log_cache import LogCache


@dataclass(frozen=True)
class Recovered:
    """The state from which the core starts. `last_time`: the highest hybrid time in the retained log or flushed."""

    cache: LogCache
    committed_config: RaftConfig
    pending_config: RaftConfig | None
    last_time: int


def recover(
    replay: Replay, *, flush_opid: OpId, flush_time: int, cmeta: ConsensusMeta, cache_bytes_max: int
) -> Recovered:
    """Read the log once. Raises Corruption if it cannot continue from `flush_opid`."""
    cache: LogCache | None = None
    configs: list[RaftConfig] = []
    last_time = flush_time
    for entry in replay.entries:
        last_time = max(last_time, entry.hybrid_time)
        if entry.kind is EntryKind.CONFIG:
            configs.append(decode_config(entry.meta).with_opid(entry.opid))
        if cache is None:
            boundary = _boundary(entry.opid, flush_opid)
            cache = LogCache(boundary=boundary, bytes_max=cache_bytes_max)
            if boundary == entry.opid:
                continue
        cache.append((entry,))
        # Entries need not stay in memory: all are durable, and those above the flush can be applied from the log.
        if entry.opid.index <= flush_opid.index:
            cache.evict_below(entry.opid.index + 1)
        elif cache.cached_bytes > cache_bytes_max * 5 // 4:  # Many at once: each trim copies the entries that stay.
            cache.trim(entry.opid.index)
    if cache is None:
        cache = LogCache(boundary=flush_opid, bytes_max=cache_bytes_max)
    if cache.last.index < flush_opid.index:
        raise Corruption("the log ends below what is flushed", last=cache.last, flushed=flush_opid)
    if flush_opid.index >= cache.first_index - 1 and cache.term_at(flush_opid.index) != flush_opid.term:
        term = cache.term_at(flush_opid.index)
        raise Corruption("the log holds another entry at the flushed index", flushed=flush_opid, term=term)
    committed, pending = _settle(cmeta.committed_config, configs, flush_opid)
    return Recovered(cache, committed, pending, last_time)


def _boundary(first: OpId, flush_opid: OpId) -> OpId:
    """The position right before the log in memory, of known term: right before `first`, or `first` itself.

    If the flush ended right before the oldest retained entry, that position is the boundary. Otherwise the term before
    the oldest entry was removed with its segment, so the oldest entry itself, which is flushed, is the boundary.
    """
    if first.index > flush_opid.index + 1:
        raise Corruption("the log begins above what is flushed", first=first, flushed=flush_opid)
    if first.index == flush_opid.index + 1:
        return flush_opid
    return first if first.index > 1 else OpId(0, 0)


def _settle(stored: RaftConfig, in_log: list[RaftConfig], flush_opid: OpId) -> tuple[RaftConfig, RaftConfig | None]:
    """(committed, pending) config.

    A config in the log is committed if consensus metadata has it, if it is flushed, or if another config follows it,
    because a leader proposes a change only when the one before is committed. The exception is a change that is taken
    back (D-19): the config before it follows it again, and neither need be committed.
    """
    newer = [config for config in in_log if config.opid.index > stored.opid.index]
    if not newer:
        return stored, None
    if newer[-1].opid.index <= flush_opid.index:
        return newer[-1], None
    chain = [stored, *newer]
    taken_back = len(newer) > 1 and chain[-3].members == chain[-1].members
    return chain[-3 if taken_back else -2], chain[-1]
