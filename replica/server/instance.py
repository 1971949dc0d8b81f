"""A server's identity and directory: written once, at the first start, and never changed."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.base import Clock, Code, Corruption, Disk, Refused, new_uuid
from nyala.schemas import frame, unframe

_PATH = "instance"
FOLDERS = ("tablet-meta", "consensus-meta", "wals", "data", "quarantine", "replay")


@dataclass(frozen=True)
class Instance:
    """Who this directory belongs to."""

    uuid: str
    kind: str
    cluster_id: str
    created_us: int


def open_or_format(disk: Disk, clock: Clock, *, kind: str = "TABLET_SERVER", uuid: str = "") -> Instance:
    """The identity of the directory; an empty directory gets a fresh one.

    Corruption if the file is damaged, of another kind, or missing beside tablets: an identity is never guessed, because
    a server that forgot its votes must not answer under its old name [kudu raft-tablet-copy, "Other Failure Recovery"].
    """
    if disk.exists(_PATH):
        try:
            value = unframe("instance", disk.read(_PATH))
        except (ValueError, EOFError) as error:
            raise Corruption("the instance file is damaged", path=disk.real_path(_PATH), error=str(error)) from error
        if value["kind"] != kind:
            raise Corruption("the directory belongs to a server of another kind", kind=value["kind"], wanted=kind)
        instance = Instance(value["uuid"], value["kind"], value["cluster_id"], value["created_us"])
    else:
        left = [f"{folder}/{name}" for folder in FOLDERS for name in disk.listdir(folder)][:1]
        if left:
            raise Corruption("the instance file is missing beside data; wipe the whole directory", found=left[0])
        instance = Instance(uuid or new_uuid(), kind, "", clock.wall_us())
        _save(disk, instance)
    for folder in FOLDERS:
        disk.mkdir(folder)
    return instance


def join_cluster(disk: Disk, instance: Instance, cluster_id: str) -> Instance:
    """The identity with the cluster it belongs to, durably; Refused WRONG_CLUSTER if it already belongs to another."""
    if instance.cluster_id == cluster_id:
        return instance
    if instance.cluster_id:
        raise Refused(
            Code.WRONG_CLUSTER, "this server belongs to another cluster", own=instance.cluster_id, offered=cluster_id
        )
    joined = Instance(instance.uuid, instance.kind, cluster_id, instance.created_us)
    _save(disk, joined)
    return joined


def _save(disk: Disk, instance: Instance) -> None:
    value = {
        "uuid": instance.uuid,
        "kind": instance.kind,
        "cluster_id": instance.cluster_id,
        "created_us": instance.created_us,
        "version": 1,
        "incompatible_features": [],
        "reserved": b"",
    }
    disk.replace(_PATH, frame("instance", value))
