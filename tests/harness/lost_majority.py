"""Tablets whose majority is gone: evidence made by hand, and stopped servers' directories on disks in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock
from nyala.replica.tools import RecoveryPlan, ReplicaEvidence, Target, by_tablet, make_plan, of_directory
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig
from tests.harness.copies import TABLET, RestingReplica, new_disk
from tests.harness.sim_disk import SimDisk

UUIDS = {name: name * 32 for name in "abcdef"}


def config(voters: str, opid: OpId = OpId(1, 1)) -> RaftConfig:
    return RaftConfig(opid, tuple(Member(UUIDS[v], (Address(f"host-{v}", 7050),)) for v in voters))


def seen(name: str, last: tuple[int, int], voters: str = "abc", **fields: Any) -> ReplicaEvidence:
    """Return a whole replica of server `name` in a directory, which ends at `last`."""
    base = ReplicaEvidence(
        tablet_id=TABLET,
        table_id="t1",
        table_name="things",
        server_uuid=UUIDS[name],
        place=f"/data/{name}",
        data_state=DataState.READY,
        term=last[0],
        last=OpId(*last),
        config=config(voters),
    )
    return replace(base, **fields)


def make_witness(disk: SimDisk) -> None:
    """Turn the files on the disk into a witness's: the log stays as it is, and no rows are left."""
    superblock = Superblock.load(disk, TABLET)
    disk.replace(superblock.path, superblock.without_rows().encode())


def damage_block(disk: SimDisk) -> None:
    """Change one byte of the first block at rest."""
    disk.corrupt(Superblock.load(disk, TABLET).blocks[0].files[0][0], 40)


def stopped_server(name: str, terms: Sequence[int] = (1, 1, 2), voters: str = "abc", *, flush_at: int = 0) -> SimDisk:
    """Return the disk of a server that holds a READY replica with one row for each of `terms`: key i has value
    `v<term>`."""
    disk = new_disk()
    resting = RestingReplica(disk, UUIDS[name])
    for index, term in enumerate(terms, start=1):
        resting.write([index], f"v{term}", term)
        if index == flush_at:
            resting.tablet.flush()
    resting.cmeta.save_config(config(voters))
    resting.cmeta.save_hard_state(max(terms), None)
    resting.close()
    return disk


def plan_for(disks: dict[str, SimDisk], members: str = "", **more: Any) -> RecoveryPlan:
    """Return the plan from these directories, with the servers `members` as targets."""
    found = [e for name, disk in disks.items() for e in of_directory(disk, UUIDS[name], f"/data/{name}")]
    targets = [Target(uuid=UUIDS[m], addresses=(Address(f"host-{m}", 7050),)) for m in members]
    return make_plan(by_tablet(found), [TABLET], targets=targets, **more)


def rows_of(disk: SimDisk) -> dict[int, str]:
    """Return the rows of a replica at rest, its whole log applied."""
    uuid = ConsensusMeta.load(disk, TABLET).uuid
    resting = RestingReplica(disk, uuid)
    try:
        return resting.rows()
    finally:
        resting.close()


def is_ready(disk: SimDisk) -> bool:
    return Superblock.exists(disk, TABLET) and Superblock.load(disk, TABLET).data_state is DataState.READY
