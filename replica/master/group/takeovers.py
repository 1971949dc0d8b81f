"""Knows which directory a master's uuid belongs to, after another directory has taken the uuid over.

In Kudu, the operator must make sure that a replaced master never comes back [kudu master permanent failure, "Design
proposal", step 3]. Here it may come back: the others refuse its messages, because another directory keeps its votes
now. Before the catalog is copied to a directory, the directory takes over the uuid. The leader commits the number of
this takeover. The directory stores the number, and its messages carry it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nyala.replica.fs import Instance
from nyala.replica.types import Code, Disk, EntryKind, RaftConfig, Refused
from nyala.replica.wal import read_offline

from ..catalog.catalog import CATALOG_ID, Catalog, decode_change
from ..catalog.records import MASTER, Takeover, read


class Takeovers:
    """The takeovers that this master knows of.

    Invariants: a takeover that the log has at the start counts even if it is not committed, so that no restart forgets
    one. Messages of a master with a number below the known one are refused. Concurrency: the loop's thread.
    """

    def __init__(self, own: Instance, logged: Mapping[str, int]) -> None:
        """`logged`: numbers by uuid that the log had at the start, applied or not."""
        self._own = own
        self._logged = dict(logged)
        self._seen: dict[str, int] = {}
        self.catalog: Catalog | None = None
        """The committed catalog; None until it is open."""

    def read_log(self, disk: Disk) -> None:
        """Count the takeovers in a log that was copied here."""
        self._logged |= takeovers_in_log(disk)

    def number(self, uuid: str) -> int:
        """The number of the latest takeover of that uuid; 0: there was none."""
        known = self.catalog.get(MASTER, uuid) if self.catalog is not None else None
        return max(self._logged.get(uuid, 0), known.takeover if known else 0)

    def check(self, uuid: str, shown: int) -> None:
        """Raise Refused ILLEGAL_STATE for a directory that another one has replaced."""
        latest = self.number(uuid)
        if shown < latest:
            what = (
                "another directory has taken over this master's uuid: this one must not come back, end its identity "
                "with `nyala fs wipe`"
            )
            raise Refused(Code.ILLEGAL_STATE, what, uuid=uuid, takeover=shown, latest=latest)

    def check_own(self) -> None:
        """Raise Refused if another directory has replaced this one, as far as this master knows."""
        self.check(self._own.uuid, self._own.takeover)

    def risen(self, config: RaftConfig) -> list[str]:
        """The members whose uuid was taken over since the last call. Open links to them must be closed, because they go
        to the former processes."""
        now = {m.uuid: self.number(m.uuid) for m in config.members}
        found = [uuid for uuid, number in now.items() if number > self._seen.get(uuid, number)]
        self._seen = now
        return found


def next_takeover(
    catalog: Catalog, config: RaftConfig, uuid: str, seen: int, in_touch: Collection[str]
) -> tuple[dict[str, Takeover], int]:
    """(records to put, number) of one more takeover of that member. `in_touch`: the leader, and the members that it
    heard lately.

    Refused INVALID_NAME for a uuid that is not a member, ILLEGAL_STATE for a member that lives, CAS_FAILED with the
    present number as detail if the caller saw another one.
    """
    if config.member(uuid) is None:
        members = " ".join(m.uuid for m in config.members)
        raise Refused(Code.INVALID_NAME, "the masters' group has no member of this uuid", uuid=uuid, members=members)
    if uuid in in_touch:
        what = (
            "the master with this uuid leads, or the leader heard it within the last election timeout, and only a "
            "master that is gone can be replaced; nothing was changed: end it for good, wait a second, and repeat"
        )
        raise Refused(Code.ILLEGAL_STATE, what, uuid=uuid)
    known = catalog.get(MASTER, uuid)
    number = known.takeover if known else 0
    if seen != number:
        what = "that master was taken over since"
        raise Refused(Code.CAS_FAILED, what, detail=str(number), uuid=uuid, seen=seen, number=number)
    return {MASTER + uuid: Takeover(takeover=number + 1)}, number + 1


def takeovers_in_log(disk: Disk) -> dict[str, int]:
    """By uuid, the numbers of takeovers that the catalog's log has, committed or not. It reads the files before the log
    is opened."""
    folder = f"wals/{CATALOG_ID}"
    found: dict[str, int] = {}
    if not disk.exists(folder):
        return found
    for entry in read_offline(disk, folder, CATALOG_ID).entries:
        if entry.kind is EntryKind.CATALOG:
            for key, record in decode_change(entry)[0].items():
                if key.startswith(MASTER) and isinstance(known := read(key, record), Takeover):
                    uuid = key.removeprefix(MASTER)
                    found[uuid] = max(found.get(uuid, 0), known.takeover)
    return found
