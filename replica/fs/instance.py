"""The identity and the folders of a server's or a master's directory. The uuid is written once and never changed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from nyala.replica.types import Clock, Code, Corruption, Disk, DiskFailure, Refused, new_uuid
from nyala.schemas import NewerFormat, feature_of, frame, unframe

INSTANCE = "instance"
TABLET_SERVER, MASTER = "TABLET_SERVER", "MASTER"
PROMISES = ("tablet-meta", "consensus-meta", "wals")
"""Folders that hold a server's promises: superblocks, consensus metadata, logs."""
FOLDERS = (*PROMISES, "data", "quarantine", "replay")
MARK = ".folder-of"
"""In each folder of promises: the uuid of its server. A folder that lost its last file has the mark, and the mount
point of a disk that is not mounted has none."""
FENCE = "unsafe-recovery"
"""The name of the fence. While the file exists, no server starts on the directory; its writer decides its content."""
KNOWN_MASTERS = "known-masters"
"""A server's list of the masters that the leading one named last, one address on each line. It promises nothing."""


@dataclass(frozen=True)
class Instance:
    """The identity of a directory."""

    uuid: str
    kind: str
    cluster_id: str
    created_us: int
    inherited: bool = False
    """Whether the uuid belonged to another directory before, whose promises are not here yet."""
    takeover: int = 0
    """The number of the takeover that the group committed; 0 for the first directory of a uuid, and before the
    takeover."""
    feature_level: int = 1
    """The cluster's feature level, as far as this process knows it. A build that does not know that level cannot open
    the directory."""


_INHERITED = "inherited-uuid"
"""A feature of the file: a build that did not know it would mistake the directory for one that has promised nothing."""


_LEVEL = feature_of(0).removesuffix("0")


def read_instance(disk: Disk) -> Instance | None:
    """Return the identity in a directory, None if it has none; Corruption if it is damaged.

    Refused ILLEGAL_STATE if a later build wrote it: then nothing is damaged, and nothing may be guessed.
    """
    if not disk.exists(INSTANCE):
        return None
    try:
        value = unframe("instance", disk.read(INSTANCE))
    except NewerFormat as error:
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

    `inherited`: the uuid belonged to another directory, whose promises have to be copied here before this one makes
    any. `cluster_id`: the cluster that it belongs to from the first; a master of it does not start without a catalog.
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
    for folder in PROMISES:
        _mark(disk, folder, instance)
    return instance


def open_or_format(disk: Disk, clock: Clock, *, kind: str = TABLET_SERVER, uuid: str = "") -> Instance:
    """Return the identity of the directory; an empty directory gets a fresh one.

    Corruption if the file is damaged, of another kind, missing beside tablets, or if the folder of the metadata or of
    the logs is missing: a disk is lost then, and with it promises [kudu raft-tablet-copy, "Other Failure Recovery"].
    """
    instance = read_instance(disk)
    if instance is None:
        return format_directory(disk, clock, kind=kind, uuid=uuid)
    if instance.kind != kind:
        raise Corruption("the directory belongs to a server of another kind", kind=instance.kind, wanted=kind)
    lost = [folder for folder in PROMISES if not disk.exists(folder)]
    if lost:
        raise lost_promises(instance, lost)
    for folder in FOLDERS:
        disk.mkdir(folder)
    for folder in PROMISES:  # of an earlier build; an empty folder may be a mount point
        if disk.listdir(folder) and not disk.exists(f"{folder}/{MARK}"):
            _mark(disk, folder, instance)
    return instance


def _mark(disk: Disk, folder: str, instance: Instance) -> None:
    with suppress(Refused):  # the disk may be full
        disk.replace(f"{folder}/{MARK}", instance.uuid.encode())


def has_mark(disk: Disk, folder: str, instance: Instance) -> bool:
    """Whether the folder is certainly this server's, also if it is empty."""
    try:
        return disk.read(f"{folder}/{MARK}") == instance.uuid.encode()
    except FileNotFoundError:
        return False


def lost_promises(instance: Instance, folders: list[str]) -> Corruption:
    """Return the error for a directory whose folders of promises are gone or empty."""
    return Corruption(
        "a folder that held promises is gone or empty: mount its disk again; if it is mounted and its files were "
        "removed, put them back from a backup, or end this server's identity with `nyala fs wipe`",
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
    promises."""
    taken = replace(instance, inherited=True, takeover=number)
    _save(disk, taken)
    return taken


def repair_instance(disk: Disk, instance: Instance) -> bool:
    """Write a running server's identity again if its file is gone or damaged; returns whether it did."""
    try:
        if read_instance(disk) is not None:
            return False
    except Refused:
        return False  # of a later build, or not to be read just now
    except (Corruption, DiskFailure, FileNotFoundError):
        pass
    _save(disk, instance)
    return True


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
