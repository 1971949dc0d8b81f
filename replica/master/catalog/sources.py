"""Source positions: where each Kafka partition of a table begins and how far it is complete [design §3.4].

There is one record per (table id, source): generation, start, done, owner run, owner deadline. Pure: each function
returns the change to commit, or refuses. A refusal names both numbers and the command that resolves it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from nyala.replica.rows import SourceKey
from nyala.replica.rpc import pb
from nyala.replica.types import Code, Refused, check_source_topic

from .capacity import check_sources
from .catalog import Catalog
from .records import SOURCE, TABLE, Position, Table
from .tables import Change, find_table

LEASE_US_MAX = 60 * 60 * 1_000_000
LEASE_US_DEFAULT = 60 * 1_000_000


def source_name(table_id: str, source: SourceKey | pb.SourceKey) -> str:
    """The name of the record of one source of one table, among those of its kind."""
    return f"{table_id}/{source.cluster_id}/{source.topic_id}/{source.kafka_partition}"


def _reset_command(record: Position, to: int | str) -> str:
    return f"nyala source reset {record.table} --partition {record.kafka_partition} --to {to}"


def _position(code: Code, what: str, record: Position, resolve: str, **values: object) -> Refused:
    source = f"{record.topic}[{record.kafka_partition}]"
    return Refused(code, f"{what}; to resolve: {resolve}", {"table": record.table, "source": source, **values})


def _lease(lease_us: int) -> int:
    return min(lease_us, LEASE_US_MAX) if lease_us > 0 else LEASE_US_DEFAULT


def open_sources(
    catalog: Catalog, request: pb.OpenSourcesRequest, now_us: int, masters_own: Collection[str] = ()
) -> Change:
    """The change by which a query becomes the owner of its sources; its result is (table id, the new positions).

    `masters_own`: the masters' topics. Refused: INVALID_ARGUMENT (a new source whose topic is one of the system's own,
    or another table's), WRONG_TABLE (the checkpoint's table id is another), SOURCE_OWNED (another live run),
    SOURCE_POSITION (below `start`, above `done`, or the topic was recreated, or is another Kafka cluster's). All or
    none of the sources are opened.
    """
    if not request.owner_run:
        raise Refused(Code.INVALID_ARGUMENT, "a query names its run", table=request.table)
    table_id, table = find_table(catalog, request.table)
    if request.checkpoint_table_id and request.checkpoint_table_id != table_id:
        raise Refused(
            Code.WRONG_TABLE,
            "the checkpoint belongs to a table that was dropped; to resolve: delete the checkpoint, then start again",
            table=request.table,
            checkpoint=request.checkpoint_table_id,
            now=table_id,
        )
    known: dict[tuple[str, int], list[Position]] = {}
    for _, each in catalog.items(SOURCE, f"{table_id}/"):
        known.setdefault((each.topic, each.kafka_partition), []).append(each)
    puts: dict[str, Position] = {}
    begun = {w.topic for w in request.opens if catalog.get(SOURCE, source_name(table_id, w.source)) is None}
    _check_topics(catalog, table_id, table, begun, masters_own)
    for wanted in request.opens:
        name = source_name(table_id, wanted.source)
        record = catalog.get(SOURCE, name)
        if record is None or record.retired:  # a position in force has been begun or adopted
            _refuse_other_topic(known.get((wanted.topic, wanted.source.kafka_partition), ()), wanted)
        record = record or _new_position(request.table, table_id, wanted)
        _refuse_owned(record, request.owner_run, now_us)
        if wanted.has_checkpoint:
            _refuse_offset(record, wanted.checkpoint_offset)
        deadline_us = now_us + _lease(request.lease_us)
        puts[SOURCE + name] = replace(
            record,
            topic=wanted.topic or record.topic,  # a rebuilt catalog may lack the name, and a topic keeps it
            owner_run=request.owner_run,
            owner_deadline_us=deadline_us,
        )
    check_sources(catalog, f"{SOURCE}{table_id}/", puts)
    return puts, [], "", (table_id, [*puts.values()])


def _declared_topic(table: Table) -> str:
    topic: str = table.described.get("source", {}).get("topic", "")
    return topic or f"writes.{table.name}"


def _check_topics(
    catalog: Catalog, table_id: str, table: Table, topics: Collection[str], masters_own: Collection[str]
) -> None:
    """Refuse a topic that may not begin to feed the table. Any topic with the table's own events may, whatever its name
    is."""
    others = {*topics} - {_declared_topic(table), ""}  # an empty one is that of an earlier build
    for topic in sorted(others):
        check_source_topic(topic, masters_own)
    for other_id, other in catalog.items(TABLE) if others else ():
        if other_id != table_id and _declared_topic(other) in others:
            raise Refused(
                Code.INVALID_ARGUMENT,
                "this topic is the source of another table, so its events are not this table's; nothing was opened: "
                "leave --topic out, or create a table that declares the topic as its source",
                table=table.name,
                topic=_declared_topic(other),
                source_of=other.name,
            )


def _new_position(table: str, table_id: str, wanted: pb.SourceOpen) -> Position:
    if wanted.initial_start < 0:
        raise Refused(Code.INVALID_ARGUMENT, "an offset is not negative", initial_start=wanted.initial_start)
    return Position(
        table_id=table_id,
        table=table,
        topic=wanted.topic,
        cluster_id=wanted.source.cluster_id,
        topic_id=wanted.source.topic_id,
        kafka_partition=wanted.source.kafka_partition,
        generation=1,
        start=wanted.initial_start,
        done=wanted.initial_start,
        owner_run="",
        owner_deadline_us=0,
    )


def _refuse_other_topic(known: Sequence[Position], wanted: pb.SourceOpen) -> None:
    """Refuse a topic with the name of one that feeds the table, but with another topic id or in another Kafka cluster.

    `known`: the table's positions of that topic's name and partition. Their offsets mean nothing in the other topic:
    the ingest would skip rows, or apply old ones over newer ones.
    """
    cluster_id, topic_id = wanted.source.cluster_id, wanted.source.topic_id
    in_force = [r for r in known if not r.retired]
    if not in_force:
        return
    record = min(in_force, key=lambda r: int(r.cluster_id != cluster_id))
    ids = {"known_topic_id": record.topic_id, "now_topic_id": topic_id, "done": record.done}
    reset = f"nyala source reset {record.table} --topic {record.topic} --to earliest"
    if record.cluster_id == cluster_id:
        raise _position(Code.SOURCE_POSITION, "the topic was deleted and created again", record, reset, **ids)
    raise _position(
        Code.SOURCE_POSITION,
        f"the position of topic {record.topic} partition {record.kafka_partition} of this table belongs to "
        "another Kafka cluster",
        record,
        f"to leave that cluster and go on in this one's topic, `{reset} --kafka HOST:PORT` with a broker of this one "
        "(or --to latest, or an offset, if the table has the rows before it); if both clusters are to feed the table, "
        "their topics need different names",
        known_cluster_id=record.cluster_id,
        now_cluster_id=cluster_id,
        **ids,
    )


def _refuse_owned(record: Position, owner_run: str, now_us: int) -> None:
    owner = record.owner_run
    if owner and owner != owner_run and record.owner_deadline_us > now_us:
        left_s = (record.owner_deadline_us - now_us + 999_999) // 1_000_000
        raise _position(
            Code.SOURCE_OWNED,
            "another query owns this source",
            record,
            f"stop that query; if it died, wait {left_s} s or run `nyala source release {record.table}`",
            owner=owner,
            asking=owner_run,
        )


def _refuse_offset(record: Position, offset: int) -> None:
    if offset < record.start:
        raise _position(
            Code.SOURCE_POSITION,
            "the query would read from below the source's start",
            record,
            f"{_reset_command(record, offset)}, or delete the checkpoint to go on at {record.done}",
            query=offset,
            start=record.start,
        )
    if offset > record.done:
        raise _position(
            Code.SOURCE_POSITION,
            "the query would skip offsets that are not in the table",
            record,
            f"delete the checkpoint to go on at {record.done}, or {_reset_command(record, offset)} to skip them",
            query=offset,
            done=record.done,
        )


def _owned(catalog: Catalog, name: str, owner_run: str) -> Position:
    record = catalog.get(SOURCE, name)
    if record is None:
        raise Refused(Code.NOT_FOUND, "no such source; open it first", source=SOURCE + name)
    if not record.owner_run:
        what = "this query's lease on the source was given back, by an operator or by a reset"
        raise _position(Code.SOURCE_OWNED, what, record, "start the query again", asking=owner_run)
    if record.owner_run != owner_run:
        raise _position(
            Code.SOURCE_OWNED,
            "another query owns this source now",
            record,
            "stop one of the two",
            owner=record.owner_run,
            asking=owner_run,
        )
    return record


def advance_sources(catalog: Catalog, request: pb.AdvanceSourcesRequest, now_us: int) -> Change:
    """The change that moves `done` forward and renews, or releases, the owner's lease; its result is the positions.

    Refused: SOURCE_OWNED, STALE_GENERATION, NOT_FOUND; then nothing changes. An expired lease is renewed unless another
    query has taken the source.
    """
    puts: dict[str, Position] = {}
    for advance in request.advances:
        name = source_name(request.table_id, advance.source)
        record = _owned(catalog, name, request.owner_run)
        if advance.generation != record.generation:
            raise _position(
                Code.STALE_GENERATION,
                "the source was reset meanwhile",
                record,
                "start the query again",
                query=advance.generation,
                now=record.generation,
            )
        # A replayed micro-batch reports known offsets again. That is not an error, and no position goes back.
        puts[SOURCE + name] = replace(
            record,
            done=max(record.done, advance.done),
            owner_run="" if request.release else request.owner_run,
            owner_deadline_us=0 if request.release else now_us + _lease(request.lease_us),
        )
    return puts, [], "", [*puts.values()]


def source_positions(catalog: Catalog, table: str, after: str = "") -> Iterator[tuple[str, Position]]:
    """(key, position) of the sources of one table, or of all if `table` is empty, after the key `after`."""
    within = f"{find_table(catalog, table)[0]}/" if table else ""
    return ((key, record) for key, record in catalog.walk(SOURCE, within, after) if not record.retired)


def lower_source(catalog: Catalog, request: pb.ResetSourceRequest) -> Change:
    """The change that moves `done` back to `to_offset`, in the same generation; its result is the position.

    It is for records that a table lost when a tablet was recovered from a survivor [design §3.4]. Tablets ignore
    records that they have. The owner loses its lease, because it knows the later position. `done` never rises, and
    never falls below `start`. Refused(STALE_GENERATION) as in `reset_source`.
    """
    table_id, _ = find_table(catalog, request.table)
    name = source_name(table_id, request.source)
    record = catalog.get(SOURCE, name)
    if record is None:
        raise Refused(
            Code.NOT_FOUND,
            "no such source; `nyala source list` shows the sources",
            table=request.table,
            source=SOURCE + name,
        )
    _refuse_reset(record, request)
    lowered = lowered_to(record, request.to_offset)
    return {SOURCE + name: lowered}, [], "", lowered


def lowered_to(record: Position, offset: int) -> Position:
    """The position with `done` lowered to `offset`, but not below `start` and never raised; without an owner."""
    done = max(record.start, min(record.done, offset))
    return replace(record, done=done, owner_run="", owner_deadline_us=0)


def reset_source(catalog: Catalog, request: pb.ResetSourceRequest, now_us: int) -> Change:
    """The change that starts a source anew at `to_offset` under the next generation; its result is the position.

    The tablets learn the generation from the next writes. Refused(SOURCE_OWNED) if the source has a live owner, unless
    forced. STALE_GENERATION if the caller knows another generation, because a repeated or late reset would discard the
    progress since then. NO_SPACE for a new topic if the table has as many positions as it may. A reset under a new
    topic id, or in another Kafka cluster, retires the positions of the old topic and ends its owner's lease.
    """
    table_id, _ = find_table(catalog, request.table)
    if request.to_offset < 0:
        raise Refused(Code.INVALID_ARGUMENT, "an offset is not negative", to_offset=request.to_offset)
    name = source_name(table_id, request.source)
    known = catalog.get(SOURCE, name)
    in_force = known if known is not None and not known.retired else None
    puts: dict[str, Position] = {}
    record = in_force or _adopt_topic(catalog, request, table_id, puts)
    _refuse_reset(record, request)
    if not request.force:
        _refuse_owned(record, "", now_us)
    puts[SOURCE + name] = replace(
        record,
        generation=max(record.generation, record.unseen_generation) + 1,
        start=request.to_offset,
        done=request.to_offset,
        owner_run="",
        owner_deadline_us=0,
    )
    if in_force is None:  # the retired positions are kept: a topic that comes back goes on at its own
        check_sources(catalog, f"{SOURCE}{table_id}/", puts)
    return puts, [], "", puts[SOURCE + name]


def _refuse_reset(record: Position, request: pb.ResetSourceRequest) -> None:
    if request.generation not in (0, record.generation):
        raise _position(
            Code.STALE_GENERATION,
            "the source was reset meanwhile",
            record,
            f"read its generation again: nyala source list {record.table}",
            known=request.generation,
            now=record.generation,
        )


def _adopt_topic(
    catalog: Catalog, request: pb.ResetSourceRequest, table_id: str, puts: dict[str, Position]
) -> Position:
    """The record of a partition of a topic that replaces another; the earlier records are marked retired in `puts`.

    Other topics that feed the table stay as they are. If there are several, a request must name the topic, and so must
    one that leaves another Kafka cluster. No topic is left while its own cluster has a position in force.
    """
    source = request.source
    old = {
        k: r
        for k, r in catalog.items(SOURCE, f"{table_id}/")
        if r.kafka_partition == source.kafka_partition and not r.retired
        if request.topic == r.topic or (not request.topic and r.cluster_id == source.cluster_id)
    }
    old = {k: r for k, r in old.items() if r.cluster_id == source.cluster_id} or old
    topics = sorted({r.topic for r in old.values()})
    if len(topics) > 1:
        raise Refused(Code.INVALID_ARGUMENT, "several topics feed this table: say which one", topics=", ".join(topics))
    if not old:
        raise Refused(
            Code.NOT_FOUND,
            "no such source; `nyala source list` shows the sources",
            table=request.table,
            kafka_partition=source.kafka_partition,
        )
    latest = max(old.values(), key=lambda r: r.generation)
    for key, record in old.items():
        puts[f"{SOURCE}{table_id}/{key}"] = replace(record, retired=True, owner_run="", owner_deadline_us=0)
    return replace(latest, cluster_id=source.cluster_id, topic_id=source.topic_id, retired=False)
