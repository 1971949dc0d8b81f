"""The root record of one tablet on one server: `tablet-meta/<tablet_id>`, replaced atomically.

Without it the tablet's data state is DOES_NOT_EXIST, whatever other files there are. The block list, the ledger and
`state` contain exactly the entries up to `flush_opid`; replay starts right after it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from nyala import schemas
from nyala.replica.rows import PartitionSpec, TableSchema
from nyala.replica.types import (
    ZERO_OPID,
    Code,
    Corruption,
    DataState,
    Disk,
    DiskFailure,
    LaterFormat,
    OpId,
    Refused,
    check,
)
from nyala.replica.types.log_records import about

_log = logging.getLogger(__name__)

FOLDER = "tablet-meta"
LAST_LOGGED_UNKNOWN = "last-logged-unknown"
"""A feature that makes older builds refuse the record. They would let such a tombstone vote."""

WITNESS_FEATURE = "witness"

_STATE_CHANGES = frozenset(
    {
        (DataState.DOES_NOT_EXIST, DataState.COPYING),
        (DataState.DOES_NOT_EXIST, DataState.READY),
        (DataState.READY, DataState.READY),
        (DataState.READY, DataState.DELETED),
        (DataState.DELETED, DataState.DELETED),
        (DataState.DELETED, DataState.COPYING),
        (DataState.COPYING, DataState.COPYING),
        (DataState.COPYING, DataState.READY),
        (DataState.COPYING, DataState.DELETED),
    }
)
"""The legal changes of the data state. None returns to DOES_NOT_EXIST. A state may stay: then other fields change."""

_BLOCK_FIELDS = ("name", "length_bytes", "crc", "rows", "min_time", "max_time", "level", "schema_id")
"""Fields of a block that `superblock.avsc` has under the same names, as they are."""
_FIELDS = (
    *("tablet_id", "table_id", "table_name", "quarantine", "bucket", "range_pos", "history_retention_us"),
    *("flush_time", "history_horizon", "ledger", "wal_generation", "state"),
)
"""The same fields of a superblock."""


class BlockInfo(NamedTuple):
    """One block in the superblock: an Arrow file and its sidecar. Lengths in bytes, CRC-32C of whole files."""

    name: str
    length_bytes: int
    crc: int
    rows: int
    min_time: int
    max_time: int
    level: int
    schema_id: int
    sidecar_name: str
    sidecar_length_bytes: int
    sidecar_crc: int
    block_id: str
    """The identity that other blocks' sidecars name; it stays when a copy renames the files."""
    dead_rows: int = 0
    """Rows that were superseded when the block was written."""

    @property
    def files(self) -> tuple[tuple[str, int, int], ...]:
        """(path, length, CRC) of each file."""
        return (
            (self.name, self.length_bytes, self.crc),
            (self.sidecar_name, self.sidecar_length_bytes, self.sidecar_crc),
        )

    def to_avro(self) -> dict[str, Any]:
        """The block as `superblock.avsc` has it; id and sidecar are JSON there."""
        sidecar = {"name": self.sidecar_name, "length": self.sidecar_length_bytes, "crc": self.sidecar_crc}
        return {
            **{name: getattr(self, name) for name in _BLOCK_FIELDS},
            "tombstones": self.dead_rows,
            "sidecar": json.dumps({"id": self.block_id, "sidecar": sidecar}).encode(),
        }

    @classmethod
    def from_avro(cls, raw: dict[str, Any]) -> BlockInfo:
        """The inverse of `to_avro`; ValueError, KeyError or TypeError if the sidecar's bytes are something else."""
        extra = json.loads(raw["sidecar"])
        sidecar = extra["sidecar"]
        kinds = [type(value) for value in (extra["id"], sidecar["name"], sidecar["length"], sidecar["crc"])]
        if kinds != [str, str, int, int]:
            raise ValueError("a block's sidecar is not described by two texts and two numbers")
        return cls(
            **{name: raw[name] for name in _BLOCK_FIELDS},
            sidecar_name=sidecar["name"],
            sidecar_length_bytes=sidecar["length"],
            sidecar_crc=sidecar["crc"],
            block_id=extra["id"],
            dead_rows=raw["tombstones"],
        )


def _empty_ledger() -> dict[str, Any]:
    return {"sources": [], "clients": []}


@dataclass(kw_only=True)
class Superblock:
    """One tablet's root record.

    Invariants: `next_block` only grows; a replica with rows never becomes a witness in place; `last_logged` is set
    while DELETED and kept through COPYING; a READY superblock names only complete blocks.
    Durability: `save` is atomic and synced before it returns.
    """

    tablet_id: str
    table_id: str
    table_name: str = ""
    data_state: DataState = DataState.READY
    last_logged: OpId | None = None
    last_logged_known: bool = True
    """False: `last_logged` is a lower bound, because the log could not be read at the deletion. It does not vote."""
    quarantine: str = ""
    bucket: int = 0
    range_pos: int = 0
    partition: PartitionSpec | None = None
    table_schemas: tuple[TableSchema, ...] = ()
    """Every known version, the current one last. Empty for the masters' catalog."""
    history_retention_us: int = 0
    flush_opid: OpId = ZERO_OPID
    flush_time: int = 0
    history_horizon: int = 0
    blocks: tuple[BlockInfo, ...] = ()
    next_block: int = 0
    """Number of the next block; never reused, not even after deletion and a new copy."""
    ledger: dict[str, Any] = field(default_factory=_empty_ledger)
    wal_generation: int = 0
    state: bytes = b""
    """The catalog's records, in the masters' own tablet."""
    witness: bool = False
    """Whether there are no rows: a log that begins after `flush_opid`, and no blocks. An older build refuses the
    record."""

    @property
    def path(self) -> str:
        """The path of this record."""
        return superblock_path(self.tablet_id)

    @property
    def schema(self) -> TableSchema:
        """The current table schema."""
        check(bool(self.table_schemas), "a data tablet has a schema", tablet=self.tablet_id)
        return self.table_schemas[-1]

    def save(self, disk: Disk, over: Superblock | None = None) -> None:
        """Replace the record on disk. Raises InvariantViolation for a data state that cannot follow the one on disk.
        Raises DiskFailure if the folder is gone: it is never made here, because the next start must notice that it is
        lost.

        `over`: the record in force, if it is in memory. It stands for the one on disk, which may be missing, damaged or
        of an earlier time: that must not lose what replaces it. Without it, Corruption is raised for a damaged record.
        """
        previous: Superblock | None = over
        if over is not None:
            _is_recorded(disk, over)
        else:
            previous = Superblock.load(disk, self.tablet_id) if disk.exists(self.path) else None
        before = previous.data_state if previous else DataState.DOES_NOT_EXIST
        check(
            (before, self.data_state) in _STATE_CHANGES,
            "this change of the data state is not legal",
            tablet=self.tablet_id,
            before=before.name,
            after=self.data_state.name,
        )
        if previous is not None:
            check(
                self.next_block >= previous.next_block,
                "block numbers are never reused",
                before=previous.next_block,
                after=self.next_block,
            )
            ready = previous.data_state is self.data_state is DataState.READY
            became = ready and self.witness and not previous.witness
            check(not became, "rows are not given up in place", tablet=self.tablet_id)
        check(not (self.witness and self.blocks), "a witness names no blocks", tablet=self.tablet_id)
        disk.replace(self.path, self.encode())

    @classmethod
    def load(cls, disk: Disk, tablet_id: str) -> Superblock:
        """The record on disk. Refused(TABLET_NOT_FOUND) if there is none, Corruption or LaterFormat if unreadable."""
        path = superblock_path(tablet_id)
        try:
            data = disk.read(path)
        except FileNotFoundError as e:
            raise Refused(Code.TABLET_NOT_FOUND, "no superblock", tablet=tablet_id) from e
        try:
            result = cls.from_avro(schemas.unframe("superblock", data))
        except schemas.UnsupportedFrame as e:
            raise LaterFormat("the superblock is of a later build", path=path, reason=str(e)) from e
        except (ValueError, KeyError, EOFError, IndexError, TypeError) as e:
            raise Corruption("the superblock cannot be read", path=path, reason=str(e)) from e
        if result.tablet_id != tablet_id:
            raise Corruption("the superblock is another tablet's", tablet=tablet_id, found=result.tablet_id)
        return result

    def repair(self, disk: Disk) -> bool:
        """Write the record again if it is missing, damaged or another one; returns whether it was.

        Call it for the record in force, which is in memory, while no other one can be saved. A readable record that
        differs is of an earlier time: it names merged blocks, and entries that the log has no more. A later build's
        record is left alone, and a folder that is gone is not made, because a start must notice that it is lost.
        """
        if not disk.exists(FOLDER):
            return False
        try:
            if _is_recorded(disk, self):
                return False
        except LaterFormat:
            return False
        disk.replace(self.path, self.encode())
        return True

    @classmethod
    def exists(cls, disk: Disk, tablet_id: str) -> bool:
        """Whether the tablet exists here, in whatever data state."""
        return disk.exists(superblock_path(tablet_id))

    @classmethod
    def list_tablets(cls, disk: Disk) -> list[str]:
        """Ids of the tablets that have a superblock here, sorted. The name of a file on its way begins with a dot, and
        no id does; a disk does not list it."""
        return disk.listdir(FOLDER)

    def end_of(self, logged: OpId) -> OpId:
        """The last OpId of a READY replica whose log ends at `logged`; a log may be empty after the flush position."""
        return max(logged, self.flush_opid)

    def without_rows(self) -> Superblock:
        """The record of a witness of the same tablet, whose log begins after the same position."""
        return replace(self, witness=True, blocks=(), ledger=_empty_ledger(), state=b"")

    def encode(self) -> bytes:
        """The bytes of the file."""
        return schemas.frame("superblock", self.to_avro())

    def to_avro(self) -> dict[str, Any]:
        """The dict of `superblock.avsc`."""
        check(self.data_state is not DataState.DOES_NOT_EXIST, "DOES_NOT_EXIST is never stored", tablet=self.tablet_id)
        return {
            "version": 1,
            "incompatible_features": [
                *([] if self.last_logged_known else [LAST_LOGGED_UNKNOWN]),
                *([WITNESS_FEATURE] if self.witness else []),
            ],
            **{name: getattr(self, name) for name in _FIELDS},
            "data_state": self.data_state.name,
            "last_logged": None if self.last_logged is None else self.last_logged._asdict(),
            "partition_json": self.partition.to_json(self.schema) if self.partition else "",
            "schemas_json": [s.to_json() for s in self.table_schemas],
            "flush_opid": self.flush_opid._asdict(),
            "blocks": [b.to_avro() for b in self.blocks],
            "block_generation": self.next_block,
            "reserved": b"",
        }

    @classmethod
    def from_avro(cls, raw: dict[str, Any]) -> Superblock:
        """The inverse of `to_avro`; ValueError if a block is listed twice: its rows would count twice."""
        blocks = tuple(BlockInfo.from_avro(b) for b in raw["blocks"])
        for names in ([b.name for b in blocks], [b.sidecar_name for b in blocks], [b.block_id for b in blocks]):
            if len(set(names)) < len(names):
                raise ValueError("a block is listed twice")
        last = raw["last_logged"]
        table_schemas = tuple(TableSchema.from_json(s) for s in raw["schemas_json"])
        partition = raw["partition_json"]
        return cls(
            **{name: raw[name] for name in _FIELDS},
            data_state=DataState[raw["data_state"]],
            last_logged=None if last is None else OpId(**last),
            last_logged_known=LAST_LOGGED_UNKNOWN not in raw["incompatible_features"],
            partition=PartitionSpec.from_json(partition, table_schemas[-1]) if partition else None,
            table_schemas=table_schemas,
            flush_opid=OpId(**raw["flush_opid"]),
            blocks=blocks,
            next_block=raw["block_generation"],
            witness=WITNESS_FEATURE in raw["incompatible_features"],
        )


def _is_recorded(disk: Disk, record: Superblock) -> bool:
    """Whether the disk has this record, which is in force. If not, a line in the process's log says why. LaterFormat as
    in `load`; Refused if a resource is exhausted.

    A record that was never flushed may have no file yet. The history horizon may be higher in memory.
    """
    try:
        found = Superblock.load(disk, record.tablet_id)
        if replace(found, history_horizon=record.history_horizon).encode() == record.encode():
            return True
        why: object = f"{record.path} has another record, which ends at {found.flush_opid} and not {record.flush_opid}"
    except LaterFormat:
        raise
    except (Corruption, DiskFailure, Refused) as error:
        if isinstance(error, Refused) and error.code is not Code.TABLET_NOT_FOUND:
            raise
        if isinstance(error, Refused) and record.flush_opid == ZERO_OPID:
            return False
        why = error
    text = "the record in memory replaces its file, nothing is lost; look at the disk: %s"
    about(_log, record.tablet_id).error(text, why)
    return False


def superblock_path(tablet_id: str) -> str:
    """Path of a tablet's superblock."""
    return f"{FOLDER}/{tablet_id}"


def block_names(superblock: Superblock) -> frozenset[str]:
    """Paths of every file in `data/` that the superblock names."""
    return frozenset(path for block in superblock.blocks for path, _, _ in block.files)


def sweep_orphans(disk: Disk, live_names: Sequence[str] | frozenset[str]) -> list[str]:
    """Remove the files of `data/` that no superblock names, live or quarantined; returns the removed paths, sorted.
    Call it only at start, before any tablet is open: a running flush writes its block before a superblock names it.
    """
    live = frozenset(live_names)
    orphans = [f"data/{name}" for name in disk.listdir("data") if f"data/{name}" not in live]
    for path in orphans:
        disk.remove(path)
    return orphans
