"""Parses consensus metadata, for `ConsensusMeta.load` and for operators' tools, and renders it as JSON."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from nyala.replica.types import Corruption, LaterFormat, RaftConfig
from nyala.schemas import UnsupportedFrame, config_from_avro, unframe

from .config_codec import members_json

SCHEMA = "consensus_metadata"


@dataclass(frozen=True, kw_only=True)
class CmetaView:
    """The content of one version of the file."""

    tablet_id: str
    uuid: str
    """The server whose term and vote the file has."""
    term: int
    voted_for: str | None
    vote_floor_term: int
    config: RaftConfig
    """The committed config."""


def read_cmeta(data: bytes, path: str) -> CmetaView:
    """Return the content of a file's bytes. Corruption names the file, the defect and its place; LaterFormat a later
    build."""
    try:
        value = unframe(SCHEMA, data)
        if value["reserved"]:
            raise UnsupportedFrame(f"{SCHEMA}: it uses fields that this build does not know")
        return CmetaView(
            tablet_id=value["tablet_id"],
            uuid=value["uuid"],
            term=value["current_term"],
            voted_for=value["voted_for"] or None,
            vote_floor_term=value["vote_floor_term"],
            config=config_from_avro(value["committed_config"]),
        )
    except (UnsupportedFrame, LaterFormat) as error:
        raise LaterFormat("consensus metadata is of a later build", path=path, cause=str(error)) from error
    except (Corruption, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise Corruption("consensus metadata does not read back", path=path, cause=str(error)) from error


def config_json(config: RaftConfig) -> dict[str, Any]:
    """Return a config as tools print it."""
    return {"opid": str(config.opid), "unsafe": config.unsafe, "members": members_json(config)}


def cmeta_json(view: CmetaView) -> dict[str, Any]:
    """Return one file's content as tools print it."""
    return {
        "tablet_id": view.tablet_id,
        "server": view.uuid,
        "term": view.term,
        "voted_for": view.voted_for,
        "vote_floor_term": view.vote_floor_term,
        "committed_config": config_json(view.config),
    }
