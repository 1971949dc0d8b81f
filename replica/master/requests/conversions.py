"""Converts requests about sources from protobuf, and source positions to it."""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.rpc import pb, source_from_pb, source_to_pb

from ..catalog.records import Position
from ..catalog.sources import AdvanceSources, OpenSources, ResetSource, SourceAdvance, SourceOpen


def open_sources_from_pb(request: pb.OpenSourcesRequest) -> OpenSources:
    """From the wire."""
    return OpenSources(
        request.table,
        request.checkpoint_table_id,
        tuple(
            SourceOpen(
                source_from_pb(o.source), o.topic, o.checkpoint_offset if o.has_checkpoint else None, o.initial_start
            )
            for o in request.opens
        ),
        request.owner_run,
        request.lease_us,
    )


def advance_sources_from_pb(request: pb.AdvanceSourcesRequest) -> AdvanceSources:
    """From the wire."""
    advances = tuple(SourceAdvance(source_from_pb(a.source), a.generation, a.done) for a in request.advances)
    return AdvanceSources(request.table_id, request.owner_run, request.lease_us, advances, request.release)


def reset_source_from_pb(request: pb.ResetSourceRequest) -> ResetSource:
    """From the wire."""
    source = source_from_pb(request.source)
    return ResetSource(request.table, source, request.to_offset, request.force, request.topic, request.generation)


def position_to_pb(position: Position) -> pb.SourcePosition:
    """To the wire."""
    return pb.SourcePosition(
        table_id=position.table_id,
        source=source_to_pb(position.source),
        generation=position.generation,
        start=position.start,
        done=position.done,
        owner_run=position.owner_run,
        owner_deadline_us=position.owner_deadline_us,
        topic=position.topic,
        table=position.table,
    )


def positions_to_pb(positions: Iterable[Position]) -> list[pb.SourcePosition]:
    """To the wire."""
    return [position_to_pb(position) for position in positions]
