"""Who this master is: the file `instance`, written once at the first start."""

from __future__ import annotations

from nyala.replica.base import Clock, Corruption, Disk, new_uuid
from nyala.schemas import frame, unframe

_PATH = "instance"
_FOLDERS = ("tablet-meta", "consensus-meta", "wals", "data", "quarantine")


def open_identity(disk: Disk, clock: Clock) -> str:
    """The uuid of the master that owns the directory; an empty directory gets a fresh one.

    Corruption if the file is damaged, a tablet server's, or missing beside tablets: an identity is never guessed.
    """
    if disk.exists(_PATH):
        try:
            value = unframe("instance", disk.read(_PATH))
        except (ValueError, EOFError) as error:
            raise Corruption("the instance file is damaged", path=disk.real_path(_PATH), reason=str(error)) from error
        if value["kind"] != "MASTER":
            raise Corruption("the directory belongs to a server of another kind", kind=value["kind"], wanted="MASTER")
        return str(value["uuid"])
    for folder in ("tablet-meta", "consensus-meta"):
        if disk.listdir(folder):
            raise Corruption("the instance file is missing beside data; wipe the whole directory", found=folder)
    uuid = new_uuid()
    for folder in _FOLDERS:
        disk.mkdir(folder)
    disk.replace(
        _PATH,
        frame(
            "instance",
            {
                "uuid": uuid,
                "kind": "MASTER",
                "cluster_id": "",
                "created_us": clock.wall_us(),
                "version": 1,
                "incompatible_features": [],
                "reserved": b"",
            },
        ),
    )
    return uuid
