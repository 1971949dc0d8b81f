"""Reads files of a server without its lock: the server may replace them meanwhile, or delete their tablet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nyala.replica.consensus_metadata import FOLDER, CmetaView, path_of, read_cmeta
from nyala.replica.types import Code, Corruption, Disk, Refused


@dataclass(kw_only=True)
class CmetaFiles:
    """Consensus metadata of a server, tablet by tablet."""

    found: list[CmetaView] = field(default_factory=list)
    damaged: list[Corruption] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Tablets whose file was listed, and was gone when it was read."""

    def __bool__(self) -> bool:
        return bool(self.found or self.damaged or self.gone)


def read_cmeta_files(disk: Disk, tablet_id: str = "") -> CmetaFiles:
    """Read the consensus metadata of every tablet of a directory, or of one."""
    out = CmetaFiles()
    for name in disk.listdir(FOLDER):
        if tablet_id not in ("", name):
            continue
        try:
            out.found.append(read_cmeta(disk.read(path_of(name)), disk.real_path(path_of(name))))
        except FileNotFoundError:
            out.gone.append(name)
        except Corruption as error:
            out.damaged.append(error)
    return out


def read_file(path: Path) -> bytes:
    """Read a file that its server only replaces as a whole; Refused NOT_FOUND if it has gone."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        what = "the file went away before it was read: its tablet was deleted"
        raise Refused(Code.NOT_FOUND, what, path=str(path)) from error
