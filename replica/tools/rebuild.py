"""Makes the directory of a new master from what tablet servers hold, after all masters were lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import grpc

from nyala import schemas
from nyala.replica.fs import LOCK_NAME, MASTER, Instance, RealDisk, format_directory, lock_root, raise_feature_level
from nyala.replica.master import LOST, Rebuilt, RebuiltSource, catalog_entry, write_catalog
from nyala.replica.rpc import ONCE_CHANNEL_OPTIONS, channel_to, pb, pb_grpc
from nyala.replica.types import Address, Clock, Code, Disk, Member, Refused, SystemClock, new_uuid

from .fs import need_formattable

MASTER_TIMEOUT_S = 3.0


def refuse_living_masters(addresses: Sequence[Address]) -> None:
    """Refused ILLEGAL_STATE if a process answers, or hangs, at the address of a lost master, or of the new one.

    Two masters with different catalogs would give one server different orders.
    """
    for address in addresses:
        with channel_to(address, ONCE_CHANNEL_OPTIONS) as channel:
            try:
                reply = pb_grpc.MasterServiceStub(channel).GetIdentity(pb.Empty(), timeout=MASTER_TIMEOUT_S)
                answers = f"{reply.kind} {reply.uuid}"
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    continue
                answers = f"a process ({error.code().name})"
        what = (
            "a process answers at the address of a master: while a master lives, its catalog is better than a rebuilt "
            "one. Go on with that master (`nyala master list`), or end it for good; nothing was written"
        )
        raise Refused(Code.ILLEGAL_STATE, what, address=address, answers=answers)


def need_new_directory(root: Path) -> None:
    """Refused ALREADY_EXISTS unless a master's directory can be made of `root`; changes nothing."""
    if root.exists() and not root.is_dir():
        raise Refused(Code.ALREADY_EXISTS, "this is no directory; nothing was written", path=str(root))
    if (root / LOCK_NAME).exists():
        with lock_root(root):
            need_formattable(root, kind=MASTER)
    else:
        need_formattable(root, kind=MASTER)


def write_directory(root: Path, address: Address, cluster_id: str, level: int, rebuilt: Rebuilt, term: int) -> Instance:
    """Make `root` the directory of a single master with this catalog, durably. Returns its identity. Refused as by
    `need_new_directory` and `write_master`."""
    need_new_directory(root)
    with lock_root(root):
        need_formattable(root, kind=MASTER)
        return write_master(RealDisk(root), SystemClock(), address, cluster_id, level, rebuilt, term)


def write_master(
    disk: Disk, clock: Clock, address: Address, cluster_id: str, level: int, rebuilt: Rebuilt, term: int
) -> Instance:
    """The same in an empty directory that the caller has locked.

    The identity is written first, and names the cluster; the catalog comes last. If the process dies in between, no
    master starts on the directory: wipe it (`nyala fs wipe`) and begin again. Refused ILLEGAL_STATE, with nothing
    written, if there are problems, or if the cluster's feature level is above this build's.
    """
    if rebuilt.problems:
        what = "what the tablet servers hold does not agree; nothing was written"
        raise Refused(Code.ILLEGAL_STATE, what, problems=len(rebuilt.problems), first=rebuilt.problems[0])
    if level > schemas.build_level():
        what = "the cluster was upgraded beyond this build: use the nyala that its servers run; nothing was written"
        raise Refused(Code.ILLEGAL_STATE, what, level=level, build_level=schemas.build_level())
    own = Member(new_uuid(), (address,))
    entry = catalog_entry(disk, rebuilt.records, term, clock.wall_us())
    instance = format_directory(disk, clock, kind=MASTER, uuid=own.uuid, cluster_id=cluster_id)
    instance = raise_feature_level(disk, instance, level)
    write_catalog(disk, own, entry)
    return instance


def rebuilt_json(rebuilt: Rebuilt) -> dict[str, object]:
    """Return what was found as JSON."""
    return {
        "tables": [
            {
                "table_id": t.description.table_id,
                "name": t.description.name,
                "replication_factor": t.description.replication_factor,
                "schema_id": t.description.schema.schema_id,
                "tablets": t.tablets,
                "missing": [{"bucket": bucket, "range": range_pos} for bucket, range_pos in t.missing],
            }
            for t in rebuilt.tables
        ],
        "sources": [_source_json(s) for s in rebuilt.sources],
        "problems": list(rebuilt.problems),
        "lost": list(LOST),
    }


def _source_json(found: RebuiltSource) -> dict[str, object]:
    position = found.position
    return {
        "table": position.table,
        "topic": position.topic,
        "source": list(position.source),
        "generation": position.generation,
        "done": position.done,
        "retired": bool(position.retired),
        "tablets_without": list(found.without),
    }
