"""Checks the request to create a tablet. A request that no honest master sends is refused before a file is made.
Pure."""

from __future__ import annotations

from nyala.replica.raft import unheld_reason
from nyala.replica.rows import TableDescription
from nyala.replica.rpc import check_numbers, check_tablet_id, config_from_pb, description_from_pb, pb
from nyala.replica.tablet import Superblock
from nyala.replica.types import ZERO_OPID, Code, DataState, RaftConfig, Refused, check_id, check_token, limits


def checked_creation(request: pb.CreateTabletRequest) -> tuple[Superblock, RaftConfig]:
    """The superblock and the first config of a tablet that is to be made; Refused(INVALID_ARGUMENT) names the
    impossible value."""
    check_tablet_id(request.tablet_id)
    check_id(request.table.table_id, "a tablet's table")
    check_token(request.table.name, "the name of a tablet's table")
    table = description_from_pb(request.table)
    check_numbers(table)
    table.partition.check_position(request.bucket, request.range_pos)
    _check_versions(table)
    config = config_from_pb(request.config)
    _check_first(config, request.leader_hint)
    superblock = Superblock(
        tablet_id=request.tablet_id,
        table_id=table.table_id,
        table_name=table.name,
        data_state=DataState.READY,
        bucket=request.bucket,
        range_pos=request.range_pos,
        partition=table.partition,
        table_schemas=(*table.older_schemas, table.schema),
        history_retention_us=table.history_retention_us,
    )
    return superblock, config


def _check_versions(table: TableDescription) -> None:
    """Blocks name the version of their schema by its id."""
    ids = [schema.schema_id for schema in (*table.older_schemas, table.schema)]
    if ids[0] < 1 or ids != sorted(set(ids)):
        raise _refuse("the ids of a table's schemas rise from 1 or more, and the last one is in force", schema_ids=ids)


def _check_first(config: RaftConfig, leader_hint: str) -> None:
    """Refuse a config with which no tablet begins: its members hold data, and its log has no entry yet. If the config
    named a decision, all members would refuse the masters' decisions up to that one."""
    members = len(config.members)
    if (config.opid, config.decision, config.unsafe) != (ZERO_OPID, (0, 0), False):
        what = "a tablet's first config has position 0.0 and no decision, and is not unsafe"
        raise _refuse(what, opid=config.opid, decision=config.decision, unsafe=config.unsafe)
    if members > limits.CONFIG_MEMBERS_PROPOSED_MAX:
        raise _refuse("too many members", members=members, max=limits.CONFIG_MEMBERS_PROPOSED_MAX)
    if why := unheld_reason(config):
        raise _refuse("no tablet can begin with this config", why=why, members=members)
    for member in config.members:
        if not member.holds_data:
            raise _refuse("the first members of a tablet hold data: a witness is made of one later", member=member)
        if not member.addresses:
            raise _refuse("every member has an address", member=member)
    if leader_hint and leader_hint not in config.voters:
        raise _refuse("the first leader is a voter", leader_hint=leader_hint)


def _refuse(what: str, /, **values: object) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, what, values)
