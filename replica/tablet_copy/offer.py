"""Judges whether an honest source can have offered a manifest, before anything here changes. One pure function.

Checksums protect the files themselves, but not the terms, configs, names and lengths of the manifest: a term would be
kept for ever, and a name would become a file's name.
"""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.consensus_metadata import CmetaView, path_of, read_cmeta
from nyala.replica.raft import invalid_config_reason, is_position, too_far
from nyala.replica.tablet import Superblock
from nyala.replica.types import Code, OpId, Refused, ReplicaError, limits

from .blocks import parse_superblock
from .manifest import CopyFile, CopyManifest


def accept_offer(manifest: CopyManifest, tablet_id: str, own_term: int) -> Superblock:
    """The source's superblock; Refused CORRUPTION names the part that no honest source offers to a server in
    `own_term`."""
    try:
        remote = parse_superblock(manifest.superblock, "copy session")
        why = _wrong(manifest, read_cmeta(manifest.cmeta, path_of(tablet_id)), remote, tablet_id, own_term)
    except ReplicaError as error:
        why = str(error)
    if why:
        what = "the source offers what no replica has; it was not copied, look at that server"
        raise Refused(Code.CORRUPTION, what, tablet=tablet_id, why=why)
    return remote


def _wrong(manifest: CopyManifest, cmeta: CmetaView, remote: Superblock, tablet_id: str, own_term: int) -> str:
    if cmeta.tablet_id != tablet_id or remote.tablet_id != tablet_id:
        return f"metadata of {cmeta.tablet_id} and a superblock of {remote.tablet_id}"
    if too_far(own_term, cmeta.term):
        return f"term {cmeta.term}, and {own_term} is known here"
    if not _has_place(cmeta.config.opid, cmeta.term):  # so that the term is not below 0 either
        return f"a config set at {cmeta.config.opid}, in term {cmeta.term}"
    if why := invalid_config_reason(cmeta.config):
        return why
    for what, opid in (("the log ends", manifest.last_opid), ("the rows end", remote.flush_opid)):
        if not is_position(opid) or too_far(own_term, opid.term):  # a replica starts in the term in which its log ends
            return f"{what} at {opid}, and term {own_term} is known here"
    if remote.flush_opid.index > manifest.last_opid.index:
        return f"the rows end at {remote.flush_opid}, the log at {manifest.last_opid}"
    if not 0 <= manifest.first_retained_index <= limits.RAFT_INDEX_MAX:
        return f"the log begins at {manifest.first_retained_index}"
    return _wrong_files(manifest.files)


def _wrong_files(files: Iterable[CopyFile]) -> str:
    seen: set[tuple[int, str]] = set()
    for file in files:
        if file.length_bytes < 0 or len(file.name) > limits.NAME_LENGTH_MAX:
            return f"a file {file.name[: limits.NAME_LENGTH_MAX]!r} of {file.length_bytes} bytes"
        if (file.kind, file.name) in seen:
            return f"the file {file.name!r} twice"
        seen.add((file.kind, file.name))
    return ""


def _has_place(opid: OpId, term: int) -> bool:
    """Whether a config can have this position; the first config of a group has 0.0."""
    return is_position(opid) and opid.term <= term
