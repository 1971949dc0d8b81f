"""A server's directory as a whole: formats it, reads its identity, wipes it. Offline; the caller holds its lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nyala.replica.fs import (
    FENCE,
    FOLDERS,
    INSTANCE,
    MARK,
    MASTER,
    RAFT_FOLDERS,
    TABLET_SERVER,
    Instance,
    RealDisk,
    format_directory,
    read_instance,
)
from nyala.replica.types import Code, Corruption, Disk, Refused, SystemClock, is_uuid

from .forced_config import UNDO

KINDS = {"tablet-server": TABLET_SERVER, "master": MASTER}
"""Name in commands -> value in the file `instance`."""


_TELLING = (INSTANCE, *RAFT_FOLDERS, FENCE)
"""Names that only our servers make. A folder `data` proves nothing: Kafka and other programs have one too."""


def need_server_directory(root: Path) -> None:
    """Raise Refused NOT_FOUND unless `root` has a name that only our servers make. Other directories are not even
    locked."""
    if not root.is_dir():
        raise Refused(
            Code.NOT_FOUND, "there is no such directory; give the one that the server was started with", root=str(root)
        )
    if not _is_a_servers(root):
        what = "this is no server's directory: nothing in it is ours"
        raise Refused(Code.NOT_FOUND, what, root=str(root), looked_for=", ".join(_TELLING))


def _is_a_servers(root: Path) -> bool:
    return any((root / name).exists() for name in _TELLING)


def identity(disk: Disk) -> Instance:
    """Return the directory's identity; Refused NOT_FOUND if it was never formatted, Corruption if the file is
    damaged."""
    found = read_instance(disk)
    if found is None:
        raise Refused(Code.NOT_FOUND, "the directory has no identity: no server ever ran here", path=disk.real_path(""))
    return found


def need_formattable(root: Path, *, kind: str, uuid: str = "") -> None:
    """Refuse what `format_root` would refuse, without a change: not even a lock is left in a foreign directory.

    INVALID_ARGUMENT for text that is no uuid, or for any uuid of a tablet server, which never takes over another's
    Raft state; ALREADY_EXISTS for a directory that has an identity or is not empty.
    """
    if uuid and not is_uuid(uuid):
        raise Refused(Code.INVALID_ARGUMENT, "a uuid is 32 hexadecimal digits in lower case", uuid=uuid)
    if uuid and kind != MASTER:
        what = "only a master may take the uuid of the one that it replaces: a tablet server gets a fresh one"
        raise Refused(Code.INVALID_ARGUMENT, what, kind=kind, uuid=uuid)
    present = {p.name: p for p in root.iterdir()} if root.exists() else {}
    if INSTANCE in present:
        raise Refused(Code.ALREADY_EXISTS, "the directory has an identity already", path=str(root))
    unused = {name for name in FOLDERS if name in present and not any(present[name].iterdir())}
    ours = FOLDERS if _is_a_servers(root) else unused
    others = sorted(name for name in present if not name.startswith(".") and name not in ours)
    if others:
        raise Refused(Code.ALREADY_EXISTS, "the directory is not empty", path=str(root), found=others[0])


def format_root(root: Path, *, kind: str, uuid: str = "") -> Instance:
    """Create an empty directory's identity; the directory is made if absent. The caller locks it.

    `uuid`: that of a master which the new one is to replace; it can start after the catalog was copied to it. Refused
    as by `need_formattable`.
    """
    need_formattable(root, kind=kind, uuid=uuid)
    return format_directory(RealDisk(root), SystemClock(), kind=kind, uuid=uuid, inherited=bool(uuid))


@dataclass(frozen=True, kw_only=True)
class WipePlan:
    """The plan of a wipe: the names in the root that it would remove, in this order, and what they hold."""

    uuid: str
    """The uuid of the identity that ends; empty if the file is missing or damaged, which a wipe repairs."""
    names: tuple[str, ...]
    kept: tuple[str, ...]
    """Names that our servers do not make; they stay."""
    tablets: int
    size_bytes: int


def plan_wipe(root: Path) -> WipePlan:
    """Plan a wipe, without a change. Refused NOT_FOUND for a directory with no name that only our servers make."""
    need_server_directory(root)
    present = {p.name for p in root.iterdir()}
    # The identity goes first: after an interrupted wipe no server starts on the rest until the wipe is repeated.
    # The name that shows a server's directory goes last, or an interrupted wipe could not be repeated.
    rest = [name for name in FOLDERS if name not in RAFT_FOLDERS]
    ours = [name for name in (INSTANCE, f".{INSTANCE}.tmp", MARK, *rest, UNDO, *RAFT_FOLDERS, FENCE) if name in present]
    try:
        found = read_instance(RealDisk(root))
    except (Corruption, Refused):
        found = None
    tablets = root / "tablet-meta"
    return WipePlan(
        uuid=found.uuid if found else "",
        names=tuple(ours),
        kept=tuple(sorted(n for n in present - set(ours) if n != ".lock")),
        tablets=sum(1 for p in tablets.iterdir() if not p.name.startswith(".")) if tablets.is_dir() else 0,
        size_bytes=sum(p.stat().st_size for name in ours for p in _files(root / name)),
    )


def wipe(disk: Disk, names: Sequence[str]) -> None:
    """Remove the names of a plan; the first one durably before the others."""
    for name in names:
        if name in (*FOLDERS, UNDO):
            disk.remove_tree(name)
        else:
            disk.remove(name)
        disk.sync_dir("")


def _files(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
