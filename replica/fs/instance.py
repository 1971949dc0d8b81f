"""The identity and the folders of a server's or a master's directory. The uuid is written once and never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from nyala.replica.types import Clock, Code, Corruption, Disk, DiskFailure, Refused, new_uuid
from nyala.schemas import UnsupportedFrame, feature_of, frame, unframe

INSTANCE = "instance"
TABLET_SERVER, MASTER = "TABLET_SERVER", "MASTER"
RAFT_FOLDERS = ("tablet-meta", "consensus-meta", "wals")
"""Folders with a server's Raft state: superblocks (of a tombstone: the last logged OpId), consensus metadata, logs."""
FOLDERS = (*RAFT_FOLDERS, "data", "quarantine", "replay")
MARK = ".folder-of"
"""In each of RAFT_FOLDERS: the uuid of its server. A folder that lost its last file has the mark, and the mount
point of a disk that is not mounted has none. The same file beside the folders says that all of them have it."""
FENCE = "unsafe-recovery"
"""The name of the fence. While the file exists, no server starts on the directory; its writer decides its content."""
KNOWN_MASTERS = "known-masters"
"""A server's list of the masters that the leading one named last, one address on each line. It may be lost."""


@dataclass(frozen=True)
class Instance:
    """The identity of a directory."""

    uuid: str
    kind: str
    cluster_id: str
    created_us: int
    inherited: bool = False
    """Whether the uuid belonged to another directory before, whose Raft state is not here yet."""
    takeover: int = 0
    """The number of the takeover that the group committed; 0 for the first directory of a uuid, and before the
    takeover."""
    feature_level: int = 1
    """The cluster's feature level, as far as this process knows it. A build that does not know that level cannot open
    the directory."""


_INHERITED = "inherited-uuid"
"""A feature of the file: a build that did not know it would take the directory for one that never voted."""


_LEVEL = feature_of(0).removesuffix("0")


def read_instance(disk: Disk) -> Instance | None:
    """Return the identity in a directory, None if it has none; Corruption if it is damaged.

    Refused ILLEGAL_STATE if a later build wrote it: then nothing is damaged, and nothing may be guessed.
    """
    if not disk.exists(INSTANCE):
        return None
    try:
        value = unframe("instance", disk.read(INSTANCE))
    except UnsupportedFrame as error:
        what = "the directory is of a later format than this build reads: start the build that wrote it, or a newer one"
        raise Refused(Code.ILLEGAL_STATE, what, path=disk.real_path(INSTANCE), why=str(error)) from error
    except ValueError as error:
        what = (
            "the instance file is damaged: put it back from a backup, or end this server's identity with "
            "`nyala fs wipe` and let the others heal its tablets"
        )
        raise Corruption(what, path=disk.real_path(INSTANCE), error=str(error)) from error
    features = value["incompatible_features"]
    inherited = _INHERITED in features
    number = int.from_bytes(value["reserved"], "little") if inherited else 0
    level = max((int(f.removeprefix(_LEVEL)) for f in features if f.startswith(_LEVEL)), default=1)
    return Instance(value["uuid"], value["kind"], value["cluster_id"], value["created_us"], inherited, number, level)


def format_directory(
    disk: Disk,
    clock: Clock,
    *,
    kind: str = TABLET_SERVER,
    uuid: str = "",
    inherited: bool = False,
    cluster_id: str = "",
) -> Instance:
    """Create an empty directory's identity, with a fresh uuid unless one is given, and its folders.

    `inherited`: the uuid belonged to another directory, whose Raft state has to be copied here before this one votes.
    `cluster_id`: the cluster that it belongs to from the first; a master of it does not start without a catalog.
    Refused ALREADY_EXISTS if it has one; Corruption if the identity is missing beside data: it is never guessed,
    because a server that forgot its votes must not answer under its old name [kudu raft-tablet-copy, "Other Failure
    Recovery"].
    """
    if disk.exists(INSTANCE):
        raise Refused(Code.ALREADY_EXISTS, "the directory has an identity already", path=disk.real_path(INSTANCE))
    left = [f"{folder}/{name}" for folder in FOLDERS for name in disk.listdir(folder)][:1]
    if left:
        what = (
            "the instance file is missing beside data: put it back from a backup, or wipe the whole directory with "
            "`nyala fs wipe`"
        )
        raise Corruption(what, found=left[0])
    for folder in FOLDERS:
        disk.mkdir(folder)
    instance = Instance(uuid or new_uuid(), kind, cluster_id, clock.wall_us(), inherited)
    _save(disk, instance)
    mark_folders(disk, instance)
    return instance


def open_or_format(disk: Disk, clock: Clock, *, kind: str = TABLET_SERVER, uuid: str = "") -> Instance:
    """Return the identity of the directory; an empty directory gets a fresh one.

    Corruption if the file is damaged, of another kind, missing beside tablets, if one of RAFT_FOLDERS is missing, or
    is empty and lost the mark that it had: a disk is lost then, and with it votes or entries [kudu raft-tablet-copy,
    "Other Failure Recovery"]. Corruption too if such a folder is another server's.
    """
    instance = read_instance(disk)
    if instance is None:
        return format_directory(disk, clock, kind=kind, uuid=uuid)
    if instance.kind != kind:
        raise Corruption("the directory belongs to a server of another kind", kind=instance.kind, wanted=kind)
    check_folders(disk, instance)
    for folder in FOLDERS:
        disk.mkdir(folder)
    # An empty folder of an earlier build may be a mount point.
    mark_folders(disk, instance, [folder for folder in RAFT_FOLDERS if disk.listdir(folder)])
    return instance


def check_folders(disk: Disk, instance: Instance) -> None:
    """Raise Corruption if one of RAFT_FOLDERS is missing, is empty and lost its mark, or is another server's.

    A master's empty folders are not judged here: it knows from its cluster's id that it had a catalog, and a copy of
    that heals it.
    """
    all_had_it = instance.kind == TABLET_SERVER and has_mark(disk, "", instance)
    lost = [
        folder
        for folder in RAFT_FOLDERS
        if not disk.exists(folder) or (all_had_it and not disk.listdir(folder) and not has_mark(disk, folder, instance))
    ]
    if lost:
        raise lost_raft_folders(instance, lost)
    for folder in RAFT_FOLDERS:
        if disk.listdir(folder):
            _refuse_foreign(disk, folder, instance)


def mark_folders(disk: Disk, instance: Instance, folders: Iterable[str] = RAFT_FOLDERS) -> None:
    """Give these folders their mark, and note it when all have theirs. From then on, `open_or_format`
    refuses an empty folder without a mark."""
    for folder in folders:
        _mark(disk, folder, instance)
    if all(has_mark(disk, folder, instance) for folder in RAFT_FOLDERS):
        _mark(disk, "", instance)


def _mark(disk: Disk, folder: str, instance: Instance) -> None:
    if not has_mark(disk, folder, instance):
        with suppress(Refused):  # the disk may be full
            disk.replace(_mark_path(folder), instance.uuid.encode())


def _mark_path(folder: str) -> str:
    return f"{folder}/{MARK}" if folder else MARK


def _marked_by(disk: Disk, folder: str) -> bytes:
    """Return the uuid in a folder's mark; empty if it has none."""
    try:
        return disk.read(_mark_path(folder))
    except FileNotFoundError:
        return b""


def has_mark(disk: Disk, folder: str, instance: Instance) -> bool:
    """Whether the folder is certainly this server's, also if it is empty. `folder`: empty for the note that all have
    their mark."""
    return _marked_by(disk, folder) == instance.uuid.encode()


def _refuse_foreign(disk: Disk, folder: str, instance: Instance) -> None:
    """Raise Corruption if the folder has the whole mark of another server."""
    found = _marked_by(disk, folder)
    if len(found) == len(instance.uuid) and found != instance.uuid.encode():
        raise Corruption(
            "a folder has the mark of another server, and nothing in it was changed: mount this server's own folder; "
            "if the folder is this server's, because the mark is damaged, remove the mark",
            mark=disk.real_path(_mark_path(folder)),
            found=found.decode(errors="replace"),
            uuid=instance.uuid,
        )


def lost_raft_folders(instance: Instance, folders: list[str]) -> Corruption:
    """Return the error for a directory whose RAFT_FOLDERS are gone or empty."""
    return Corruption(
        "a folder that held superblocks, consensus metadata or logs is gone or empty, and nothing was started: mount "
        "its disk again; if it is mounted and its files were removed, put them back from a backup, or end this "
        "server's identity with `nyala fs wipe`",
        lost=", ".join(folders),
        uuid=instance.uuid,
    )


def join_cluster(disk: Disk, instance: Instance, cluster_id: str) -> Instance:
    """Store the cluster that the directory belongs to, durably; returns the identity. Refused WRONG_CLUSTER if it
    already belongs to another."""
    if instance.cluster_id == cluster_id:
        return instance
    if instance.cluster_id:
        raise Refused(
            Code.WRONG_CLUSTER, "this server belongs to another cluster", own=instance.cluster_id, offered=cluster_id
        )
    joined = replace(instance, cluster_id=cluster_id)
    _save(disk, joined)
    return joined


def raise_feature_level(disk: Disk, instance: Instance, level: int) -> Instance:
    """Store that feature level, durably; returns the identity. Builds that do not know the level can no longer open
    it."""
    if level <= instance.feature_level:
        return instance
    raised = replace(instance, feature_level=level)
    _save(disk, raised)
    return raised


def take_over(disk: Disk, instance: Instance, number: int) -> Instance:
    """Store takeover `number` of the uuid, durably; returns the identity, which now stands for the former directory's
    votes."""
    taken = replace(instance, inherited=True, takeover=number)
    _save(disk, taken)
    return taken


def repair_instance(disk: Disk, instance: Instance) -> list[str]:
    """Write a running server's identity again if its file is gone, damaged or another one, and each of its marks that
    has other bytes; returns what was written. A mark that is gone is not made, because its folder may be gone, too.

    A later build's file is left alone. What cannot be read just now, or finds no room, is left to the next call.
    """
    again = []
    with suppress(Refused):
        if not _holds(lambda: read_instance(disk) == instance):
            _save(disk, instance)
            again.append("instance file")
        for folder in ("", *RAFT_FOLDERS):
            path = _mark_path(folder)
            if disk.exists(path) and not _holds(partial(has_mark, disk, folder, instance)):
                disk.replace(path, instance.uuid.encode())
                again.append(f"mark {path}")
    return again


def _holds(read: Callable[[], bool]) -> bool:
    """Whether a file can be read and has what it should have."""
    try:
        return read()
    except (Corruption, DiskFailure, FileNotFoundError):
        return False


def _save(disk: Disk, instance: Instance) -> None:
    features = [_INHERITED] if instance.inherited else []
    if instance.feature_level > 1:
        features.append(feature_of(instance.feature_level))
    value = {
        "uuid": instance.uuid,
        "kind": instance.kind,
        "cluster_id": instance.cluster_id,
        "created_us": instance.created_us,
        "version": 1,
        "incompatible_features": features,
        "reserved": instance.takeover.to_bytes(4, "little") if instance.inherited else b"",
    }
    disk.replace(INSTANCE, frame("instance", value))


def refuse_fenced(disk: Disk) -> None:
    """Raise Refused(ILLEGAL_STATE) if an offline change of several directories is unfinished here."""
    if disk.exists(FENCE):
        raise Refused(
            Code.ILLEGAL_STATE,
            "an unsafe recovery of this directory is not finished: run the same `nyala unsafe recover` again",
            path=disk.real_path(FENCE),
        )
