"""Judges every file of a stopped server's directory: whether it is whole, belongs there, and is named by a
superblock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nyala.replica.consensus_metadata import FOLDER as CMETA
from nyala.replica.consensus_metadata import cmeta_json
from nyala.replica.fs import (
    FENCE,
    FOLDERS,
    INSTANCE,
    KNOWN_MASTERS,
    RAFT_FOLDERS,
    Instance,
    check_folders,
    read_instance,
)
from nyala.replica.server.startup.durable_state import check_durable_state
from nyala.replica.tablet import Superblock, sweep_orphans
from nyala.replica.tablet_copy import list_quarantine, named_blocks, spared_blocks, wal_folder
from nyala.replica.types import Code, Corruption, Disk, DiskFailure, Refused

from .check import Severity
from .forced_config import UNDO
from .tablet_files import FileFinding, TabletFiles, read_tablet

_NAMES_OF_OURS = frozenset({INSTANCE, FENCE, KNOWN_MASTERS, UNDO, *FOLDERS})


@dataclass(kw_only=True)
class DirectoryView:
    """The content of a directory, and what is wrong with it."""

    instance: Instance | None
    tablets: list[TabletFiles]
    findings: list[FileFinding] = field(default_factory=list)
    """Findings about files that are no single tablet's."""
    orphans: list[str] = field(default_factory=list)
    """Files in `data/` that no superblock names, live or quarantined."""

    @property
    def all_findings(self) -> list[FileFinding]:
        """Return errors first, then by path."""
        found = self.findings + [f for t in self.tablets for f in t.findings]
        return sorted(found, key=lambda f: (f.severity is not Severity.ERROR, f.path, f.what))

    @property
    def healthy(self) -> bool:
        """Return whether a server that starts on it would serve every tablet and has forgotten nothing."""
        return not any(f.severity is Severity.ERROR for f in self.all_findings)


def check_directory(
    disk: Disk, *, blocks: bool = True, progress: Callable[[str, int], None] = lambda path, size: None
) -> DirectoryView:
    """Read everything once and change nothing; with `blocks` also every byte of every block."""
    findings: list[FileFinding] = []

    def note(severity: Severity, path: str, what: object) -> None:
        findings.append(FileFinding(severity=severity, path=path, what=str(what)))

    instance = None
    try:
        instance = read_instance(disk)
        if instance is None:
            note(Severity.ERROR, INSTANCE, "the identity is missing: no server starts here")
    except (Corruption, Refused) as error:
        note(Severity.ERROR, INSTANCE, error)
    refusal = _refusal_of_start(disk, instance)
    lost = _lost(instance, refusal)
    if refusal:
        note(Severity.ERROR, lost, f"no server starts: {refusal}")
    tablets = [
        read_tablet(disk, tablet_id, blocks=blocks, progress=progress) for tablet_id in Superblock.list_tablets(disk)
    ]
    for tablet in tablets:
        if instance is not None and tablet.cmeta is not None and tablet.cmeta.uuid != instance.uuid:
            tablet.error(f"{CMETA}/{tablet.tablet_id}", f"it holds term and vote of server {tablet.cmeta.uuid}")
    known = {t.tablet_id for t in tablets}
    for name in disk.listdir(CMETA):
        if name not in known:
            note(Severity.WARNING, f"{CMETA}/{name}", "metadata of a tablet that is not here: a copy will heed it")
    for name in disk.listdir("wals"):
        if name not in known:
            note(Severity.WARNING, wal_folder(name), "a log that no superblock names: a copy will put it aside")
    if disk.exists(FENCE):
        note(Severity.ERROR, FENCE, "an unsafe recovery of this directory is not finished: no server starts")
    for name in disk.listdir(""):
        if name not in _NAMES_OF_OURS:
            note(Severity.WARNING, name, "no server makes a file of this name")
    view = DirectoryView(instance=instance, tablets=tablets, findings=findings)
    _look_for_orphans(disk, view, lost)
    for kept in list_quarantine(disk):
        if kept.error:
            note(Severity.WARNING, kept.path, f"the quarantined superblock cannot be read: {kept.error}")
    return view


def _look_for_orphans(disk: Disk, view: DirectoryView, lost: str) -> None:
    if lost:
        what = f"no orphan is told from a block, because {lost} is missing or unusable, and with it what may name it"
        view.findings.append(FileFinding(severity=Severity.WARNING, path="data", what=what))
        return
    try:
        named = named_blocks(disk)
    except (Corruption, DiskFailure) as error:
        what = f"no orphan is told from a block, because a superblock that may name it cannot be read: {error}"
        view.findings.append(FileFinding(severity=Severity.WARNING, path="data", what=what))
        return
    try:
        there = disk.listdir("data")
    except DiskFailure as error:
        view.findings.append(FileFinding(severity=Severity.ERROR, path="data", what=f"it cannot be read: {error}"))
        return
    named |= spared_blocks(disk, there)
    view.orphans = [f"data/{name}" for name in there if f"data/{name}" not in named]
    for path in view.orphans:
        what = f"no superblock names these {disk.size(path)} bytes: the next start, or --repair, removes them"
        view.findings.append(FileFinding(severity=Severity.WARNING, path=path, what=what))


def _refusal_of_start(disk: Disk, instance: Instance | None) -> Corruption | None:
    """Return the error with which a start refuses RAFT_FOLDERS; None if it takes them, or has no
    identity."""
    if instance is None:
        return None
    try:
        check_folders(disk, instance)
        check_durable_state(disk, instance)
    except Corruption as error:
        return error
    return None


def _lost(instance: Instance | None, refusal: Corruption | None) -> str:
    """Return what keeps a start from knowing which blocks are named: the identity, the folders that it refuses, or the
    mark of one. Empty if nothing does."""
    if instance is None:
        return INSTANCE
    if refusal is None:
        return ""
    return str(refusal.values.get("lost") or refusal.values.get("mark") or ", ".join(RAFT_FOLDERS))


def remove_orphans(disk: Disk) -> list[str]:
    """Remove the files in `data/` that no superblock names; returns the removed paths. Corruption if anything may name
    them.

    Refused(ILLEGAL_STATE) if the identity is missing, or a start would refuse RAFT_FOLDERS: a disk is lost
    then, or not mounted, and every block would be an orphan.
    """
    instance = read_instance(disk)
    if lost := _lost(instance, _refusal_of_start(disk, instance)):
        what = "no orphan is told from a block, because what may name it is missing: mount its disk again"
        raise Refused(Code.ILLEGAL_STATE, what, missing=lost)
    return sweep_orphans(disk, named_blocks(disk) | spared_blocks(disk, disk.listdir("data")))


def tablet_json(tablet: TabletFiles) -> dict[str, Any]:
    """Return one tablet for a program."""
    superblock, log = tablet.superblock, tablet.log
    return {
        "tablet_id": tablet.tablet_id,
        "table": superblock.table_name if superblock else None,
        "data_state": superblock.data_state.name if superblock else None,
        "witness": superblock.witness if superblock else None,
        "last_logged": str(tablet.last_opid) if tablet.last_opid is not None else None,
        "flushed": str(superblock.flush_opid) if superblock else None,
        "quarantine": superblock.quarantine if superblock else None,
        "consensus_metadata": cmeta_json(tablet.cmeta) if tablet.cmeta else None,
        "log": log
        and {
            "first_index": log.first_index,
            "last": str(log.last),
            "withheld": str(log.withheld) if log.withheld else None,
            "segments": [
                {"name": s.name, "first_index": s.first_index, "last_index": s.last_index, "bytes": s.length_bytes}
                for s in log.segments
            ],
        },
        "blocks": [
            {"path": path, "bytes": length, "crc32c": f"{crc:08x}", "rows": b.rows, "level": b.level}
            for b in (superblock.blocks if superblock else ())
            for path, length, crc in b.files
        ],
        "findings": [finding_json(f) for f in tablet.findings],
    }


def finding_json(finding: FileFinding) -> dict[str, Any]:
    """Return one finding for a program."""
    return {
        "severity": finding.severity,
        "tablet_id": finding.tablet_id or None,
        "path": finding.path,
        "what": finding.what,
    }


def directory_json(view: DirectoryView) -> dict[str, Any]:
    """Return a whole directory for a program."""
    return {
        "uuid": view.instance.uuid if view.instance else None,
        "kind": view.instance.kind if view.instance else None,
        "cluster_id": view.instance.cluster_id if view.instance else None,
        "healthy": view.healthy,
        "findings": [finding_json(f) for f in view.all_findings],
        "orphans": view.orphans,
        "tablets": [tablet_json(t) for t in view.tablets],
    }
