from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpId(_message.Message):
    __slots__ = ("term", "index")
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    term: int
    index: int
    def __init__(self, term: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("uuid", "addresses", "votes", "promote", "holds_data", "replace")
    UUID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_FIELD_NUMBER: _ClassVar[int]
    HOLDS_DATA_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    addresses: _containers.RepeatedCompositeFieldContainer[Address]
    votes: bool
    promote: bool
    holds_data: bool
    replace: bool
    def __init__(self, uuid: _Optional[str] = ..., addresses: _Optional[_Iterable[_Union[Address, _Mapping]]] = ..., votes: _Optional[bool] = ..., promote: _Optional[bool] = ..., holds_data: _Optional[bool] = ..., replace: _Optional[bool] = ...) -> None: ...

class RaftConfig(_message.Message):
    __slots__ = ("opid", "members", "decision_term", "decision_version", "unsafe")
    OPID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    DECISION_TERM_FIELD_NUMBER: _ClassVar[int]
    DECISION_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNSAFE_FIELD_NUMBER: _ClassVar[int]
    opid: OpId
    members: _containers.RepeatedCompositeFieldContainer[Member]
    decision_term: int
    decision_version: int
    unsafe: bool
    def __init__(self, opid: _Optional[_Union[OpId, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., decision_term: _Optional[int] = ..., decision_version: _Optional[int] = ..., unsafe: _Optional[bool] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("term", "index", "kind", "hybrid_time", "schema_id", "meta", "payload", "payload_crc")
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HYBRID_TIME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CRC_FIELD_NUMBER: _ClassVar[int]
    term: int
    index: int
    kind: int
    hybrid_time: int
    schema_id: int
    meta: bytes
    payload: bytes
    payload_crc: int
    def __init__(self, term: _Optional[int] = ..., index: _Optional[int] = ..., kind: _Optional[int] = ..., hybrid_time: _Optional[int] = ..., schema_id: _Optional[int] = ..., meta: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., payload_crc: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "outcome_unknown", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    outcome_unknown: bool
    detail: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., outcome_unknown: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AppendEntries(_message.Message):
    __slots__ = ("prev", "entries", "commit_index", "round", "safe_time", "quiet")
    PREV_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SAFE_TIME_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    prev: OpId
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    commit_index: int
    round: int
    safe_time: int
    quiet: bool
    def __init__(self, prev: _Optional[_Union[OpId, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., commit_index: _Optional[int] = ..., round: _Optional[int] = ..., safe_time: _Optional[int] = ..., quiet: _Optional[bool] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("code", "mismatch", "last", "conflict_index", "commit_index", "round", "applied_index", "data_state", "quiet", "no_data")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    NO_DATA_FIELD_NUMBER: _ClassVar[int]
    code: int
    mismatch: bool
    last: OpId
    conflict_index: int
    commit_index: int
    round: int
    applied_index: int
    data_state: int
    quiet: bool
    no_data: bool
    def __init__(self, code: _Optional[int] = ..., mismatch: _Optional[bool] = ..., last: _Optional[_Union[OpId, _Mapping]] = ..., conflict_index: _Optional[int] = ..., commit_index: _Optional[int] = ..., round: _Optional[int] = ..., applied_index: _Optional[int] = ..., data_state: _Optional[int] = ..., quiet: _Optional[bool] = ..., no_data: _Optional[bool] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("pre_vote", "last", "transfer")
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    pre_vote: bool
    last: OpId
    transfer: bool
    def __init__(self, pre_vote: _Optional[bool] = ..., last: _Optional[_Union[OpId, _Mapping]] = ..., transfer: _Optional[bool] = ...) -> None: ...

class VoteReply(_message.Message):
    __slots__ = ("pre_vote", "granted", "code", "reason")
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pre_vote: bool
    granted: bool
    code: int
    reason: str
    def __init__(self, pre_vote: _Optional[bool] = ..., granted: _Optional[bool] = ..., code: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ("last",)
    LAST_FIELD_NUMBER: _ClassVar[int]
    last: OpId
    def __init__(self, last: _Optional[_Union[OpId, _Mapping]] = ...) -> None: ...

class RaftMessage(_message.Message):
    __slots__ = ("tablet_id", "from_uuid", "to_uuid", "term", "append_entries", "append_reply", "vote_request", "vote_reply", "timeout_now")
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_UUID_FIELD_NUMBER: _ClassVar[int]
    TO_UUID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPEND_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    APPEND_REPLY_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_REPLY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    tablet_id: str
    from_uuid: str
    to_uuid: str
    term: int
    append_entries: AppendEntries
    append_reply: AppendReply
    vote_request: VoteRequest
    vote_reply: VoteReply
    timeout_now: TimeoutNow
    def __init__(self, tablet_id: _Optional[str] = ..., from_uuid: _Optional[str] = ..., to_uuid: _Optional[str] = ..., term: _Optional[int] = ..., append_entries: _Optional[_Union[AppendEntries, _Mapping]] = ..., append_reply: _Optional[_Union[AppendReply, _Mapping]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_reply: _Optional[_Union[VoteReply, _Mapping]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping]] = ...) -> None: ...

class PeerBatch(_message.Message):
    __slots__ = ("from_uuid", "dest_uuid", "from_address", "messages", "process", "takeover")
    FROM_UUID_FIELD_NUMBER: _ClassVar[int]
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    FROM_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    from_uuid: str
    dest_uuid: str
    from_address: Address
    messages: _containers.RepeatedCompositeFieldContainer[RaftMessage]
    process: int
    takeover: int
    def __init__(self, from_uuid: _Optional[str] = ..., dest_uuid: _Optional[str] = ..., from_address: _Optional[_Union[Address, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[RaftMessage, _Mapping]]] = ..., process: _Optional[int] = ..., takeover: _Optional[int] = ...) -> None: ...

class OpenLinkRequest(_message.Message):
    __slots__ = ("from_uuid", "dest_uuid", "from_address", "takeover", "process")
    FROM_UUID_FIELD_NUMBER: _ClassVar[int]
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    FROM_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    from_uuid: str
    dest_uuid: str
    from_address: Address
    takeover: int
    process: int
    def __init__(self, from_uuid: _Optional[str] = ..., dest_uuid: _Optional[str] = ..., from_address: _Optional[_Union[Address, _Mapping]] = ..., takeover: _Optional[int] = ..., process: _Optional[int] = ...) -> None: ...

class OpenLinkReply(_message.Message):
    __slots__ = ("error", "port", "ticket")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    error: Error
    port: int
    ticket: bytes
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., port: _Optional[int] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class StartTabletCopyRequest(_message.Message):
    __slots__ = ("dest_uuid", "from_uuid", "from_addresses", "tablet_id", "term", "current_state", "last_opid", "log_only", "config")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    FROM_UUID_FIELD_NUMBER: _ClassVar[int]
    FROM_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_OPID_FIELD_NUMBER: _ClassVar[int]
    LOG_ONLY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    from_uuid: str
    from_addresses: _containers.RepeatedCompositeFieldContainer[Address]
    tablet_id: str
    term: int
    current_state: int
    last_opid: OpId
    log_only: bool
    config: OpId
    def __init__(self, dest_uuid: _Optional[str] = ..., from_uuid: _Optional[str] = ..., from_addresses: _Optional[_Iterable[_Union[Address, _Mapping]]] = ..., tablet_id: _Optional[str] = ..., term: _Optional[int] = ..., current_state: _Optional[int] = ..., last_opid: _Optional[_Union[OpId, _Mapping]] = ..., log_only: _Optional[bool] = ..., config: _Optional[_Union[OpId, _Mapping]] = ...) -> None: ...

class StartTabletCopyReply(_message.Message):
    __slots__ = ("error", "current_term", "last_opid", "data_state")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CURRENT_TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_OPID_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    current_term: int
    last_opid: OpId
    data_state: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., current_term: _Optional[int] = ..., last_opid: _Optional[_Union[OpId, _Mapping]] = ..., data_state: _Optional[int] = ...) -> None: ...

class BeginCopyRequest(_message.Message):
    __slots__ = ("dest_uuid", "requestor_uuid", "tablet_id", "allow_leaderless", "log_only", "acknowledged", "flushed", "requestor_run", "attempt")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    REQUESTOR_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOW_LEADERLESS_FIELD_NUMBER: _ClassVar[int]
    LOG_ONLY_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_FIELD_NUMBER: _ClassVar[int]
    REQUESTOR_RUN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    requestor_uuid: str
    tablet_id: str
    allow_leaderless: bool
    log_only: bool
    acknowledged: OpId
    flushed: OpId
    requestor_run: str
    attempt: int
    def __init__(self, dest_uuid: _Optional[str] = ..., requestor_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., allow_leaderless: _Optional[bool] = ..., log_only: _Optional[bool] = ..., acknowledged: _Optional[_Union[OpId, _Mapping]] = ..., flushed: _Optional[_Union[OpId, _Mapping]] = ..., requestor_run: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class BeginCopyReply(_message.Message):
    __slots__ = ("error", "session_id", "superblock", "cmeta", "files", "last_opid", "first_retained_index", "is_leader", "ttl_us")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERBLOCK_FIELD_NUMBER: _ClassVar[int]
    CMETA_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    LAST_OPID_FIELD_NUMBER: _ClassVar[int]
    FIRST_RETAINED_INDEX_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    error: Error
    session_id: str
    superblock: bytes
    cmeta: bytes
    files: _containers.RepeatedCompositeFieldContainer[CopyFile]
    last_opid: OpId
    first_retained_index: int
    is_leader: bool
    ttl_us: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., session_id: _Optional[str] = ..., superblock: _Optional[bytes] = ..., cmeta: _Optional[bytes] = ..., files: _Optional[_Iterable[_Union[CopyFile, _Mapping]]] = ..., last_opid: _Optional[_Union[OpId, _Mapping]] = ..., first_retained_index: _Optional[int] = ..., is_leader: _Optional[bool] = ..., ttl_us: _Optional[int] = ...) -> None: ...

class CopyFile(_message.Message):
    __slots__ = ("kind", "name", "length_bytes", "crc")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    kind: int
    name: str
    length_bytes: int
    crc: int
    def __init__(self, kind: _Optional[int] = ..., name: _Optional[str] = ..., length_bytes: _Optional[int] = ..., crc: _Optional[int] = ...) -> None: ...

class OpenFetchRequest(_message.Message):
    __slots__ = ("dest_uuid", "session_id")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    session_id: str
    def __init__(self, dest_uuid: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class OpenFetchReply(_message.Message):
    __slots__ = ("error", "port", "ticket")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    error: Error
    port: int
    ticket: bytes
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., port: _Optional[int] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("dest_uuid", "session_id", "kind", "name", "byte_offset", "length_bytes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    session_id: str
    kind: int
    name: str
    byte_offset: int
    length_bytes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., session_id: _Optional[str] = ..., kind: _Optional[int] = ..., name: _Optional[str] = ..., byte_offset: _Optional[int] = ..., length_bytes: _Optional[int] = ...) -> None: ...

class FetchPart(_message.Message):
    __slots__ = ("error", "byte_offset", "length_bytes")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BYTE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    error: Error
    byte_offset: int
    length_bytes: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., byte_offset: _Optional[int] = ..., length_bytes: _Optional[int] = ...) -> None: ...

class EndCopyRequest(_message.Message):
    __slots__ = ("dest_uuid", "session_id", "success", "doubted")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    DOUBTED_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    session_id: str
    success: bool
    doubted: str
    def __init__(self, dest_uuid: _Optional[str] = ..., session_id: _Optional[str] = ..., success: _Optional[bool] = ..., doubted: _Optional[str] = ...) -> None: ...

class EndCopyReply(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ListCopiesRequest(_message.Message):
    __slots__ = ("dest_uuid",)
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    def __init__(self, dest_uuid: _Optional[str] = ...) -> None: ...

class CopyJob(_message.Message):
    __slots__ = ("tablet_id", "source_uuid", "target_uuid", "phase", "bytes_done", "bytes_total", "started_us", "error", "idle_us", "ttl_us")
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_UUID_FIELD_NUMBER: _ClassVar[int]
    TARGET_UUID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    IDLE_US_FIELD_NUMBER: _ClassVar[int]
    TTL_US_FIELD_NUMBER: _ClassVar[int]
    tablet_id: str
    source_uuid: str
    target_uuid: str
    phase: str
    bytes_done: int
    bytes_total: int
    started_us: int
    error: str
    idle_us: int
    ttl_us: int
    def __init__(self, tablet_id: _Optional[str] = ..., source_uuid: _Optional[str] = ..., target_uuid: _Optional[str] = ..., phase: _Optional[str] = ..., bytes_done: _Optional[int] = ..., bytes_total: _Optional[int] = ..., started_us: _Optional[int] = ..., error: _Optional[str] = ..., idle_us: _Optional[int] = ..., ttl_us: _Optional[int] = ...) -> None: ...

class ListCopiesReply(_message.Message):
    __slots__ = ("error", "jobs")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    jobs: _containers.RepeatedCompositeFieldContainer[CopyJob]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., jobs: _Optional[_Iterable[_Union[CopyJob, _Mapping]]] = ...) -> None: ...

class CancelCopyRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "started_us")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    started_us: int
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., started_us: _Optional[int] = ...) -> None: ...

class CancelCopyReply(_message.Message):
    __slots__ = ("error", "job", "data_state")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    job: CopyJob
    data_state: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., job: _Optional[_Union[CopyJob, _Mapping]] = ..., data_state: _Optional[int] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("id", "name", "type", "nullable", "precision", "scale", "default_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_JSON_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    type: str
    nullable: bool
    precision: int
    scale: int
    default_json: bytes
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., type: _Optional[str] = ..., nullable: _Optional[bool] = ..., precision: _Optional[int] = ..., scale: _Optional[int] = ..., default_json: _Optional[bytes] = ...) -> None: ...

class TableSchema(_message.Message):
    __slots__ = ("schema_id", "columns", "key")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    key: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, schema_id: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., key: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionSpec(_message.Message):
    __slots__ = ("hash_columns", "buckets", "hash_version", "range_column", "range_splits_json")
    HASH_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    HASH_VERSION_FIELD_NUMBER: _ClassVar[int]
    RANGE_COLUMN_FIELD_NUMBER: _ClassVar[int]
    RANGE_SPLITS_JSON_FIELD_NUMBER: _ClassVar[int]
    hash_columns: _containers.RepeatedScalarFieldContainer[str]
    buckets: int
    hash_version: int
    range_column: str
    range_splits_json: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, hash_columns: _Optional[_Iterable[str]] = ..., buckets: _Optional[int] = ..., hash_version: _Optional[int] = ..., range_column: _Optional[str] = ..., range_splits_json: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SourceSpec(_message.Message):
    __slots__ = ("topic", "framing", "reader_schema")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FRAMING_FIELD_NUMBER: _ClassVar[int]
    READER_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    framing: str
    reader_schema: str
    def __init__(self, topic: _Optional[str] = ..., framing: _Optional[str] = ..., reader_schema: _Optional[str] = ...) -> None: ...

class WriterSchema(_message.Message):
    __slots__ = ("fingerprint", "registry_id", "avro_json")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_ID_FIELD_NUMBER: _ClassVar[int]
    AVRO_JSON_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    registry_id: int
    avro_json: str
    def __init__(self, fingerprint: _Optional[str] = ..., registry_id: _Optional[int] = ..., avro_json: _Optional[str] = ...) -> None: ...

class TableInfo(_message.Message):
    __slots__ = ("table_id", "name", "schema", "partition", "replication_factor", "history_retention_us", "source", "writer_schemas", "created_us", "older_schemas")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    HISTORY_RETENTION_US_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    WRITER_SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    OLDER_SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    table_id: str
    name: str
    schema: TableSchema
    partition: PartitionSpec
    replication_factor: int
    history_retention_us: int
    source: SourceSpec
    writer_schemas: _containers.RepeatedCompositeFieldContainer[WriterSchema]
    created_us: int
    older_schemas: _containers.RepeatedCompositeFieldContainer[TableSchema]
    def __init__(self, table_id: _Optional[str] = ..., name: _Optional[str] = ..., schema: _Optional[_Union[TableSchema, _Mapping]] = ..., partition: _Optional[_Union[PartitionSpec, _Mapping]] = ..., replication_factor: _Optional[int] = ..., history_retention_us: _Optional[int] = ..., source: _Optional[_Union[SourceSpec, _Mapping]] = ..., writer_schemas: _Optional[_Iterable[_Union[WriterSchema, _Mapping]]] = ..., created_us: _Optional[int] = ..., older_schemas: _Optional[_Iterable[_Union[TableSchema, _Mapping]]] = ...) -> None: ...

class TabletInfo(_message.Message):
    __slots__ = ("tablet_id", "table_id", "bucket", "range_pos", "config", "leader_uuid", "term", "running", "replication_factor", "own_replication_factor", "wish", "health", "wishes", "unproven")
    class HealthEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    RANGE_POS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    LEADER_UUID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    OWN_REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    WISHES_FIELD_NUMBER: _ClassVar[int]
    UNPROVEN_FIELD_NUMBER: _ClassVar[int]
    tablet_id: str
    table_id: str
    bucket: int
    range_pos: int
    config: RaftConfig
    leader_uuid: str
    term: int
    running: bool
    replication_factor: int
    own_replication_factor: bool
    wish: DesiredChangeInfo
    health: _containers.ScalarMap[str, str]
    wishes: int
    unproven: UnprovenConfig
    def __init__(self, tablet_id: _Optional[str] = ..., table_id: _Optional[str] = ..., bucket: _Optional[int] = ..., range_pos: _Optional[int] = ..., config: _Optional[_Union[RaftConfig, _Mapping]] = ..., leader_uuid: _Optional[str] = ..., term: _Optional[int] = ..., running: _Optional[bool] = ..., replication_factor: _Optional[int] = ..., own_replication_factor: _Optional[bool] = ..., wish: _Optional[_Union[DesiredChangeInfo, _Mapping]] = ..., health: _Optional[_Mapping[str, str]] = ..., wishes: _Optional[int] = ..., unproven: _Optional[_Union[UnprovenConfig, _Mapping]] = ...) -> None: ...

class UnprovenConfig(_message.Message):
    __slots__ = ("config", "known", "told_by", "since_us_ago", "believed", "known_voters")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    TOLD_BY_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_AGO_FIELD_NUMBER: _ClassVar[int]
    BELIEVED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VOTERS_FIELD_NUMBER: _ClassVar[int]
    config: RaftConfig
    known: OpId
    told_by: _containers.RepeatedScalarFieldContainer[str]
    since_us_ago: int
    believed: bool
    known_voters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, config: _Optional[_Union[RaftConfig, _Mapping]] = ..., known: _Optional[_Union[OpId, _Mapping]] = ..., told_by: _Optional[_Iterable[str]] = ..., since_us_ago: _Optional[int] = ..., believed: _Optional[bool] = ..., known_voters: _Optional[_Iterable[str]] = ...) -> None: ...

class TabletSeen(_message.Message):
    __slots__ = ("committed_config_id", "wishes")
    COMMITTED_CONFIG_ID_FIELD_NUMBER: _ClassVar[int]
    WISHES_FIELD_NUMBER: _ClassVar[int]
    committed_config_id: OpId
    wishes: int
    def __init__(self, committed_config_id: _Optional[_Union[OpId, _Mapping]] = ..., wishes: _Optional[int] = ...) -> None: ...

class DesiredChangeInfo(_message.Message):
    __slots__ = ("kind", "from_uuid", "to_uuid", "deadline_us", "reason", "plan_id", "cancelled")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FROM_UUID_FIELD_NUMBER: _ClassVar[int]
    TO_UUID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    from_uuid: str
    to_uuid: str
    deadline_us: int
    reason: str
    plan_id: str
    cancelled: bool
    def __init__(self, kind: _Optional[str] = ..., from_uuid: _Optional[str] = ..., to_uuid: _Optional[str] = ..., deadline_us: _Optional[int] = ..., reason: _Optional[str] = ..., plan_id: _Optional[str] = ..., cancelled: _Optional[bool] = ...) -> None: ...

class SourceKey(_message.Message):
    __slots__ = ("cluster_id", "topic_id", "kafka_partition")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    KAFKA_PARTITION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    topic_id: str
    kafka_partition: int
    def __init__(self, cluster_id: _Optional[str] = ..., topic_id: _Optional[str] = ..., kafka_partition: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "table_id", "schema_id", "column_ids", "payload", "payload_crc", "rows", "source", "generation", "has_after", "after", "done", "client_id", "sequence", "first_incomplete", "propagated_time", "ignore_null", "config_term")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMN_IDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CRC_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HAS_AFTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    PROPAGATED_TIME_FIELD_NUMBER: _ClassVar[int]
    IGNORE_NULL_FIELD_NUMBER: _ClassVar[int]
    CONFIG_TERM_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    table_id: str
    schema_id: int
    column_ids: _containers.RepeatedScalarFieldContainer[int]
    payload: bytes
    payload_crc: int
    rows: int
    source: SourceKey
    generation: int
    has_after: bool
    after: int
    done: int
    client_id: str
    sequence: int
    first_incomplete: int
    propagated_time: int
    ignore_null: bool
    config_term: int
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., table_id: _Optional[str] = ..., schema_id: _Optional[int] = ..., column_ids: _Optional[_Iterable[int]] = ..., payload: _Optional[bytes] = ..., payload_crc: _Optional[int] = ..., rows: _Optional[int] = ..., source: _Optional[_Union[SourceKey, _Mapping]] = ..., generation: _Optional[int] = ..., has_after: _Optional[bool] = ..., after: _Optional[int] = ..., done: _Optional[int] = ..., client_id: _Optional[str] = ..., sequence: _Optional[int] = ..., first_incomplete: _Optional[int] = ..., propagated_time: _Optional[int] = ..., ignore_null: _Optional[bool] = ..., config_term: _Optional[int] = ...) -> None: ...

class RowErrorPb(_message.Message):
    __slots__ = ("offset", "code", "column")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    offset: int
    code: int
    column: str
    def __init__(self, offset: _Optional[int] = ..., code: _Optional[int] = ..., column: _Optional[str] = ...) -> None: ...

class WriteReply(_message.Message):
    __slots__ = ("error", "row_errors", "hybrid_time", "last_offset", "rows_applied", "rows_replayed")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ROW_ERRORS_FIELD_NUMBER: _ClassVar[int]
    HYBRID_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_APPLIED_FIELD_NUMBER: _ClassVar[int]
    ROWS_REPLAYED_FIELD_NUMBER: _ClassVar[int]
    error: Error
    row_errors: _containers.RepeatedCompositeFieldContainer[RowErrorPb]
    hybrid_time: int
    last_offset: int
    rows_applied: int
    rows_replayed: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., row_errors: _Optional[_Iterable[_Union[RowErrorPb, _Mapping]]] = ..., hybrid_time: _Optional[int] = ..., last_offset: _Optional[int] = ..., rows_applied: _Optional[int] = ..., rows_replayed: _Optional[int] = ...) -> None: ...

class OpenWritesRequest(_message.Message):
    __slots__ = ("dest_uuid",)
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    def __init__(self, dest_uuid: _Optional[str] = ...) -> None: ...

class OpenWritesReply(_message.Message):
    __slots__ = ("error", "port", "ticket")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    error: Error
    port: int
    ticket: bytes
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., port: _Optional[int] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class NumberedWrite(_message.Message):
    __slots__ = ("number", "request")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    number: int
    request: WriteRequest
    def __init__(self, number: _Optional[int] = ..., request: _Optional[_Union[WriteRequest, _Mapping]] = ...) -> None: ...

class WriteBundle(_message.Message):
    __slots__ = ("writes",)
    WRITES_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[NumberedWrite]
    def __init__(self, writes: _Optional[_Iterable[_Union[NumberedWrite, _Mapping]]] = ...) -> None: ...

class NumberedReply(_message.Message):
    __slots__ = ("number", "reply")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    number: int
    reply: WriteReply
    def __init__(self, number: _Optional[int] = ..., reply: _Optional[_Union[WriteReply, _Mapping]] = ...) -> None: ...

class ReplyBundle(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[NumberedReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[NumberedReply, _Mapping]]] = ...) -> None: ...

class Predicate(_message.Message):
    __slots__ = ("column", "op", "values")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    column: str
    op: str
    values: bytes
    def __init__(self, column: _Optional[str] = ..., op: _Optional[str] = ..., values: _Optional[bytes] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "table_id", "columns", "predicates", "snapshot_time", "slice_pos", "slice_count", "limit", "count_only", "propagated_time", "all_columns", "timeout_us", "staleness_us", "by_link")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PREDICATES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    SLICE_POS_FIELD_NUMBER: _ClassVar[int]
    SLICE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    PROPAGATED_TIME_FIELD_NUMBER: _ClassVar[int]
    ALL_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    STALENESS_US_FIELD_NUMBER: _ClassVar[int]
    BY_LINK_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    table_id: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    predicates: _containers.RepeatedCompositeFieldContainer[Predicate]
    snapshot_time: int
    slice_pos: int
    slice_count: int
    limit: int
    count_only: bool
    propagated_time: int
    all_columns: bool
    timeout_us: int
    staleness_us: int
    by_link: bool
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., table_id: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., predicates: _Optional[_Iterable[_Union[Predicate, _Mapping]]] = ..., snapshot_time: _Optional[int] = ..., slice_pos: _Optional[int] = ..., slice_count: _Optional[int] = ..., limit: _Optional[int] = ..., count_only: _Optional[bool] = ..., propagated_time: _Optional[int] = ..., all_columns: _Optional[bool] = ..., timeout_us: _Optional[int] = ..., staleness_us: _Optional[int] = ..., by_link: _Optional[bool] = ...) -> None: ...

class ScanChunk(_message.Message):
    __slots__ = ("error", "arrow_schema", "arrow_batch", "snapshot_time", "rows", "last", "port", "ticket", "link_rows")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ARROW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ARROW_BATCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    LINK_ROWS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    arrow_schema: bytes
    arrow_batch: bytes
    snapshot_time: int
    rows: int
    last: bool
    port: int
    ticket: bytes
    link_rows: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., arrow_schema: _Optional[bytes] = ..., arrow_batch: _Optional[bytes] = ..., snapshot_time: _Optional[int] = ..., rows: _Optional[int] = ..., last: _Optional[bool] = ..., port: _Optional[int] = ..., ticket: _Optional[bytes] = ..., link_rows: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "table_id", "columns", "all_columns", "keys", "propagated_time", "timeout_us", "staleness_us", "count", "snapshot_time")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ALL_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPAGATED_TIME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    STALENESS_US_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    table_id: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    all_columns: bool
    keys: bytes
    propagated_time: int
    timeout_us: int
    staleness_us: int
    count: int
    snapshot_time: int
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., table_id: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., all_columns: _Optional[bool] = ..., keys: _Optional[bytes] = ..., propagated_time: _Optional[int] = ..., timeout_us: _Optional[int] = ..., staleness_us: _Optional[int] = ..., count: _Optional[int] = ..., snapshot_time: _Optional[int] = ...) -> None: ...

class GetReply(_message.Message):
    __slots__ = ("error", "arrow_schema", "arrow_batch", "found", "answered", "snapshot_time")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ARROW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ARROW_BATCH_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    error: Error
    arrow_schema: bytes
    arrow_batch: bytes
    found: _containers.RepeatedScalarFieldContainer[int]
    answered: int
    snapshot_time: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., arrow_schema: _Optional[bytes] = ..., arrow_batch: _Optional[bytes] = ..., found: _Optional[_Iterable[int]] = ..., answered: _Optional[int] = ..., snapshot_time: _Optional[int] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("tablet_id", "table_id", "uuid", "data_state", "phase", "role", "term", "leader_uuid", "last_logged", "commit_index", "applied_index", "committed_config", "pending_config", "rows", "bytes_on_disk", "memory_bytes", "error", "peers", "wal_bytes", "flush_index", "safe_time", "schema_id", "table_name", "quiet", "witness", "damaged", "commit_term", "withheld", "write_rows_per_s", "read_rows_per_s")
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_UUID_FIELD_NUMBER: _ClassVar[int]
    LAST_LOGGED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_CONFIG_FIELD_NUMBER: _ClassVar[int]
    PENDING_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_ON_DISK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    WAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_INDEX_FIELD_NUMBER: _ClassVar[int]
    SAFE_TIME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TERM_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_FIELD_NUMBER: _ClassVar[int]
    WRITE_ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    READ_ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    tablet_id: str
    table_id: str
    uuid: str
    data_state: int
    phase: str
    role: str
    term: int
    leader_uuid: str
    last_logged: OpId
    commit_index: int
    applied_index: int
    committed_config: RaftConfig
    pending_config: RaftConfig
    rows: int
    bytes_on_disk: int
    memory_bytes: int
    error: str
    peers: _containers.RepeatedCompositeFieldContainer[PeerHealth]
    wal_bytes: int
    flush_index: int
    safe_time: int
    schema_id: int
    table_name: str
    quiet: bool
    witness: bool
    damaged: bool
    commit_term: int
    withheld: OpId
    write_rows_per_s: int
    read_rows_per_s: int
    def __init__(self, tablet_id: _Optional[str] = ..., table_id: _Optional[str] = ..., uuid: _Optional[str] = ..., data_state: _Optional[int] = ..., phase: _Optional[str] = ..., role: _Optional[str] = ..., term: _Optional[int] = ..., leader_uuid: _Optional[str] = ..., last_logged: _Optional[_Union[OpId, _Mapping]] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., committed_config: _Optional[_Union[RaftConfig, _Mapping]] = ..., pending_config: _Optional[_Union[RaftConfig, _Mapping]] = ..., rows: _Optional[int] = ..., bytes_on_disk: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., error: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[PeerHealth, _Mapping]]] = ..., wal_bytes: _Optional[int] = ..., flush_index: _Optional[int] = ..., safe_time: _Optional[int] = ..., schema_id: _Optional[int] = ..., table_name: _Optional[str] = ..., quiet: _Optional[bool] = ..., witness: _Optional[bool] = ..., damaged: _Optional[bool] = ..., commit_term: _Optional[int] = ..., withheld: _Optional[_Union[OpId, _Mapping]] = ..., write_rows_per_s: _Optional[int] = ..., read_rows_per_s: _Optional[int] = ...) -> None: ...

class PeerHealth(_message.Message):
    __slots__ = ("uuid", "health", "match_index", "last_contact_us_ago", "data_state")
    UUID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_CONTACT_US_AGO_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    health: str
    match_index: int
    last_contact_us_ago: int
    data_state: int
    def __init__(self, uuid: _Optional[str] = ..., health: _Optional[str] = ..., match_index: _Optional[int] = ..., last_contact_us_ago: _Optional[int] = ..., data_state: _Optional[int] = ...) -> None: ...

class ListTabletsRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_ids", "after", "limit_bytes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_IDS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_ids: _containers.RepeatedScalarFieldContainer[str]
    after: str
    limit_bytes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_ids: _Optional[_Iterable[str]] = ..., after: _Optional[str] = ..., limit_bytes: _Optional[int] = ...) -> None: ...

class ListTabletsReply(_message.Message):
    __slots__ = ("error", "replicas", "next")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    error: Error
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    next: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class CreateTabletRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "table", "bucket", "range_pos", "config", "leader_hint")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    RANGE_POS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    table: TableInfo
    bucket: int
    range_pos: int
    config: RaftConfig
    leader_hint: str
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., table: _Optional[_Union[TableInfo, _Mapping]] = ..., bucket: _Optional[int] = ..., range_pos: _Optional[int] = ..., config: _Optional[_Union[RaftConfig, _Mapping]] = ..., leader_hint: _Optional[str] = ...) -> None: ...

class CreateTabletReply(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class DeleteTabletRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "committed_config_id", "has_cas", "reason", "committed")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_CONFIG_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_CAS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    committed_config_id: OpId
    has_cas: bool
    reason: str
    committed: OpId
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., committed_config_id: _Optional[_Union[OpId, _Mapping]] = ..., has_cas: _Optional[bool] = ..., reason: _Optional[str] = ..., committed: _Optional[_Union[OpId, _Mapping]] = ...) -> None: ...

class DeleteTabletReply(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ConfigEdit(_message.Message):
    __slots__ = ("kind", "member")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    member: Member
    def __init__(self, kind: _Optional[str] = ..., member: _Optional[_Union[Member, _Mapping]] = ...) -> None: ...

class ChangeConfigRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "edits", "committed_config_id", "has_cas", "decision_term", "decision_version", "deadline_us", "abort")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_CONFIG_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_CAS_FIELD_NUMBER: _ClassVar[int]
    DECISION_TERM_FIELD_NUMBER: _ClassVar[int]
    DECISION_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    edits: _containers.RepeatedCompositeFieldContainer[ConfigEdit]
    committed_config_id: OpId
    has_cas: bool
    decision_term: int
    decision_version: int
    deadline_us: int
    abort: bool
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., edits: _Optional[_Iterable[_Union[ConfigEdit, _Mapping]]] = ..., committed_config_id: _Optional[_Union[OpId, _Mapping]] = ..., has_cas: _Optional[bool] = ..., decision_term: _Optional[int] = ..., decision_version: _Optional[int] = ..., deadline_us: _Optional[int] = ..., abort: _Optional[bool] = ...) -> None: ...

class ChangeConfigReply(_message.Message):
    __slots__ = ("error", "config")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    error: Error
    config: RaftConfig
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., config: _Optional[_Union[RaftConfig, _Mapping]] = ...) -> None: ...

class TransferRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "target_uuid", "committed_config_id", "has_cas", "decision_term", "decision_version", "deadline_us")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_UUID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_CONFIG_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_CAS_FIELD_NUMBER: _ClassVar[int]
    DECISION_TERM_FIELD_NUMBER: _ClassVar[int]
    DECISION_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    target_uuid: str
    committed_config_id: OpId
    has_cas: bool
    decision_term: int
    decision_version: int
    deadline_us: int
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., target_uuid: _Optional[str] = ..., committed_config_id: _Optional[_Union[OpId, _Mapping]] = ..., has_cas: _Optional[bool] = ..., decision_term: _Optional[int] = ..., decision_version: _Optional[int] = ..., deadline_us: _Optional[int] = ...) -> None: ...

class TransferReply(_message.Message):
    __slots__ = ("error", "new_leader_uuid")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NEW_LEADER_UUID_FIELD_NUMBER: _ClassVar[int]
    error: Error
    new_leader_uuid: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., new_leader_uuid: _Optional[str] = ...) -> None: ...

class ChecksumRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "snapshot_time", "timeout_us", "definition")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    snapshot_time: int
    timeout_us: int
    definition: int
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., snapshot_time: _Optional[int] = ..., timeout_us: _Optional[int] = ..., definition: _Optional[int] = ...) -> None: ...

class ChecksumReply(_message.Message):
    __slots__ = ("error", "checksum", "rows", "snapshot_time", "checksum_high", "definition")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_HIGH_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    error: Error
    checksum: int
    rows: int
    snapshot_time: int
    checksum_high: int
    definition: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., checksum: _Optional[int] = ..., rows: _Optional[int] = ..., snapshot_time: _Optional[int] = ..., checksum_high: _Optional[int] = ..., definition: _Optional[int] = ...) -> None: ...

class ServerTimeRequest(_message.Message):
    __slots__ = ("dest_uuid", "propagated_time", "tablet_ids")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    PROPAGATED_TIME_FIELD_NUMBER: _ClassVar[int]
    TABLET_IDS_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    propagated_time: int
    tablet_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dest_uuid: _Optional[str] = ..., propagated_time: _Optional[int] = ..., tablet_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ServerTimeReply(_message.Message):
    __slots__ = ("error", "hybrid_time", "led")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HYBRID_TIME_FIELD_NUMBER: _ClassVar[int]
    LED_FIELD_NUMBER: _ClassVar[int]
    error: Error
    hybrid_time: int
    led: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., hybrid_time: _Optional[int] = ..., led: _Optional[_Iterable[str]] = ...) -> None: ...

class LatenessRequest(_message.Message):
    __slots__ = ("dest_uuid", "last_s")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    LAST_S_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    last_s: float
    def __init__(self, dest_uuid: _Optional[str] = ..., last_s: _Optional[float] = ...) -> None: ...

class LatenessReply(_message.Message):
    __slots__ = ("error", "loop_lag_ms", "gil_hold_ms")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    GIL_HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    loop_lag_ms: float
    gil_hold_ms: float
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., loop_lag_ms: _Optional[float] = ..., gil_hold_ms: _Optional[float] = ...) -> None: ...

class IdentityReply(_message.Message):
    __slots__ = ("uuid", "kind", "cluster_id", "version", "pid", "feature_level", "finalized_level", "joining", "takes_changes")
    UUID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    TAKES_CHANGES_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    kind: str
    cluster_id: str
    version: str
    pid: int
    feature_level: int
    finalized_level: int
    joining: Joining
    takes_changes: bool
    def __init__(self, uuid: _Optional[str] = ..., kind: _Optional[str] = ..., cluster_id: _Optional[str] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., feature_level: _Optional[int] = ..., finalized_level: _Optional[int] = ..., joining: _Optional[_Union[Joining, _Mapping]] = ..., takes_changes: _Optional[bool] = ...) -> None: ...

class Joining(_message.Message):
    __slots__ = ("cluster_id", "address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    address: Address
    def __init__(self, cluster_id: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class ProcessRequest(_message.Message):
    __slots__ = ("dest_uuid", "process", "from_uuid")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    FROM_UUID_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    process: int
    from_uuid: str
    def __init__(self, dest_uuid: _Optional[str] = ..., process: _Optional[int] = ..., from_uuid: _Optional[str] = ...) -> None: ...

class ProcessReply(_message.Message):
    __slots__ = ("error", "same")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SAME_FIELD_NUMBER: _ClassVar[int]
    error: Error
    same: bool
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., same: _Optional[bool] = ...) -> None: ...

class LedgerRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ...) -> None: ...

class LedgerSource(_message.Message):
    __slots__ = ("source", "generation", "last_offset", "has_last")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HAS_LAST_FIELD_NUMBER: _ClassVar[int]
    source: SourceKey
    generation: int
    last_offset: int
    has_last: bool
    def __init__(self, source: _Optional[_Union[SourceKey, _Mapping]] = ..., generation: _Optional[int] = ..., last_offset: _Optional[int] = ..., has_last: _Optional[bool] = ...) -> None: ...

class LedgerReply(_message.Message):
    __slots__ = ("error", "sources")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    error: Error
    sources: _containers.RepeatedCompositeFieldContainer[LedgerSource]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[LedgerSource, _Mapping]]] = ...) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "compact")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    compact: bool
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., compact: _Optional[bool] = ...) -> None: ...

class FlushReply(_message.Message):
    __slots__ = ("error", "flush_opid")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FLUSH_OPID_FIELD_NUMBER: _ClassVar[int]
    error: Error
    flush_opid: OpId
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., flush_opid: _Optional[_Union[OpId, _Mapping]] = ...) -> None: ...

class QuarantineRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "after", "limit_bytes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    after: str
    limit_bytes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., after: _Optional[str] = ..., limit_bytes: _Optional[int] = ...) -> None: ...

class QuarantineItem(_message.Message):
    __slots__ = ("path", "tablet_id", "table_name", "data_state", "wal_bytes", "block_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    WAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    tablet_id: str
    table_name: str
    data_state: int
    wal_bytes: int
    block_bytes: int
    def __init__(self, path: _Optional[str] = ..., tablet_id: _Optional[str] = ..., table_name: _Optional[str] = ..., data_state: _Optional[int] = ..., wal_bytes: _Optional[int] = ..., block_bytes: _Optional[int] = ...) -> None: ...

class ListQuarantineReply(_message.Message):
    __slots__ = ("error", "items", "next")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    error: Error
    items: _containers.RepeatedCompositeFieldContainer[QuarantineItem]
    next: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., items: _Optional[_Iterable[_Union[QuarantineItem, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class PurgeQuarantineReply(_message.Message):
    __slots__ = ("error", "removed", "bytes_freed", "remaining")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    error: Error
    removed: _containers.RepeatedScalarFieldContainer[str]
    bytes_freed: int
    remaining: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., removed: _Optional[_Iterable[str]] = ..., bytes_freed: _Optional[int] = ..., remaining: _Optional[int] = ...) -> None: ...

class QuiesceRequest(_message.Message):
    __slots__ = ("dest_uuid", "quiesce", "seen")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    QUIESCE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    quiesce: bool
    seen: int
    def __init__(self, dest_uuid: _Optional[str] = ..., quiesce: _Optional[bool] = ..., seen: _Optional[int] = ...) -> None: ...

class QuiesceReply(_message.Message):
    __slots__ = ("error", "quiescing", "leaders", "reads", "changes")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    QUIESCING_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    error: Error
    quiescing: bool
    leaders: int
    reads: int
    changes: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., quiescing: _Optional[bool] = ..., leaders: _Optional[int] = ..., reads: _Optional[int] = ..., changes: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("dest_uuid", "server_uuid", "addresses", "sequence", "full_report", "replicas", "booting", "location", "memory_bytes", "disk_bytes_free", "version", "cluster_id", "tablets_max", "loop_lag_ms_max", "gil_hold_ms_max", "seeking", "copies_failing", "open_files", "memory_maps", "process", "feature_level", "finalized_level", "quiescing", "slice_after", "slice_until")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    SERVER_UUID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FULL_REPORT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    BOOTING_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FREE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TABLETS_MAX_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    GIL_HOLD_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    SEEKING_FIELD_NUMBER: _ClassVar[int]
    COPIES_FAILING_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MAPS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    QUIESCING_FIELD_NUMBER: _ClassVar[int]
    SLICE_AFTER_FIELD_NUMBER: _ClassVar[int]
    SLICE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    server_uuid: str
    addresses: _containers.RepeatedCompositeFieldContainer[Address]
    sequence: int
    full_report: bool
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    booting: bool
    location: str
    memory_bytes: int
    disk_bytes_free: int
    version: str
    cluster_id: str
    tablets_max: int
    loop_lag_ms_max: float
    gil_hold_ms_max: float
    seeking: _containers.RepeatedScalarFieldContainer[str]
    copies_failing: _containers.RepeatedCompositeFieldContainer[FailingCopy]
    open_files: ResourceUse
    memory_maps: ResourceUse
    process: int
    feature_level: int
    finalized_level: int
    quiescing: bool
    slice_after: str
    slice_until: str
    def __init__(self, dest_uuid: _Optional[str] = ..., server_uuid: _Optional[str] = ..., addresses: _Optional[_Iterable[_Union[Address, _Mapping]]] = ..., sequence: _Optional[int] = ..., full_report: _Optional[bool] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., booting: _Optional[bool] = ..., location: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., disk_bytes_free: _Optional[int] = ..., version: _Optional[str] = ..., cluster_id: _Optional[str] = ..., tablets_max: _Optional[int] = ..., loop_lag_ms_max: _Optional[float] = ..., gil_hold_ms_max: _Optional[float] = ..., seeking: _Optional[_Iterable[str]] = ..., copies_failing: _Optional[_Iterable[_Union[FailingCopy, _Mapping]]] = ..., open_files: _Optional[_Union[ResourceUse, _Mapping]] = ..., memory_maps: _Optional[_Union[ResourceUse, _Mapping]] = ..., process: _Optional[int] = ..., feature_level: _Optional[int] = ..., finalized_level: _Optional[int] = ..., quiescing: _Optional[bool] = ..., slice_after: _Optional[str] = ..., slice_until: _Optional[str] = ...) -> None: ...

class ResourceUse(_message.Message):
    __slots__ = ("used", "limit")
    USED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    used: int
    limit: int
    def __init__(self, used: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class FailingCopy(_message.Message):
    __slots__ = ("tablet_id", "failures", "error")
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tablet_id: str
    failures: int
    error: str
    def __init__(self, tablet_id: _Optional[str] = ..., failures: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("error", "master_uuid", "catalog_term", "need_full_report", "cluster_id", "orders", "found", "masters", "finalized_level", "takes_slices", "heard_until", "full_report_waits")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MASTER_UUID_FIELD_NUMBER: _ClassVar[int]
    CATALOG_TERM_FIELD_NUMBER: _ClassVar[int]
    NEED_FULL_REPORT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    MASTERS_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TAKES_SLICES_FIELD_NUMBER: _ClassVar[int]
    HEARD_UNTIL_FIELD_NUMBER: _ClassVar[int]
    FULL_REPORT_WAITS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    master_uuid: str
    catalog_term: int
    need_full_report: bool
    cluster_id: str
    orders: _containers.RepeatedCompositeFieldContainer[TabletOrder]
    found: _containers.RepeatedCompositeFieldContainer[ServerPlace]
    masters: _containers.RepeatedCompositeFieldContainer[ServerPlace]
    finalized_level: int
    takes_slices: bool
    heard_until: str
    full_report_waits: bool
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., master_uuid: _Optional[str] = ..., catalog_term: _Optional[int] = ..., need_full_report: _Optional[bool] = ..., cluster_id: _Optional[str] = ..., orders: _Optional[_Iterable[_Union[TabletOrder, _Mapping]]] = ..., found: _Optional[_Iterable[_Union[ServerPlace, _Mapping]]] = ..., masters: _Optional[_Iterable[_Union[ServerPlace, _Mapping]]] = ..., finalized_level: _Optional[int] = ..., takes_slices: _Optional[bool] = ..., heard_until: _Optional[str] = ..., full_report_waits: _Optional[bool] = ...) -> None: ...

class ServerPlace(_message.Message):
    __slots__ = ("uuid", "addresses")
    UUID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    addresses: _containers.RepeatedCompositeFieldContainer[Address]
    def __init__(self, uuid: _Optional[str] = ..., addresses: _Optional[_Iterable[_Union[Address, _Mapping]]] = ...) -> None: ...

class TabletOrder(_message.Message):
    __slots__ = ("create", "delete", "renew")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    create: CreateTabletRequest
    delete: DeleteTabletRequest
    renew: DeleteTabletRequest
    def __init__(self, create: _Optional[_Union[CreateTabletRequest, _Mapping]] = ..., delete: _Optional[_Union[DeleteTabletRequest, _Mapping]] = ..., renew: _Optional[_Union[DeleteTabletRequest, _Mapping]] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("dest_uuid", "table", "request_id")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    table: TableInfo
    request_id: str
    def __init__(self, dest_uuid: _Optional[str] = ..., table: _Optional[_Union[TableInfo, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateTableReply(_message.Message):
    __slots__ = ("error", "table", "tablets")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLETS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    table: TableInfo
    tablets: _containers.RepeatedCompositeFieldContainer[TabletInfo]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., table: _Optional[_Union[TableInfo, _Mapping]] = ..., tablets: _Optional[_Iterable[_Union[TabletInfo, _Mapping]]] = ...) -> None: ...

class TableRequest(_message.Message):
    __slots__ = ("dest_uuid", "name", "table_id", "with_tablets", "after", "limit_bytes", "brief", "staleness_us")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_TABLETS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    STALENESS_US_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    name: str
    table_id: str
    with_tablets: bool
    after: str
    limit_bytes: int
    brief: bool
    staleness_us: int
    def __init__(self, dest_uuid: _Optional[str] = ..., name: _Optional[str] = ..., table_id: _Optional[str] = ..., with_tablets: _Optional[bool] = ..., after: _Optional[str] = ..., limit_bytes: _Optional[int] = ..., brief: _Optional[bool] = ..., staleness_us: _Optional[int] = ...) -> None: ...

class TableReply(_message.Message):
    __slots__ = ("error", "table", "tablets", "servers", "next", "cluster_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLETS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    error: Error
    table: TableInfo
    tablets: _containers.RepeatedCompositeFieldContainer[TabletInfo]
    servers: _containers.RepeatedCompositeFieldContainer[ServerInfo]
    next: str
    cluster_id: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., table: _Optional[_Union[TableInfo, _Mapping]] = ..., tablets: _Optional[_Iterable[_Union[TabletInfo, _Mapping]]] = ..., servers: _Optional[_Iterable[_Union[ServerInfo, _Mapping]]] = ..., next: _Optional[str] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class ListTablesReply(_message.Message):
    __slots__ = ("error", "tables", "next")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    error: Error
    tables: _containers.RepeatedCompositeFieldContainer[TableInfo]
    next: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[TableInfo, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class ListServersRequest(_message.Message):
    __slots__ = ("dest_uuid", "after", "limit_bytes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    after: str
    limit_bytes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., after: _Optional[str] = ..., limit_bytes: _Optional[int] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("uuid", "addresses", "last_heartbeat_us_ago", "alive", "location", "replicas", "leaders", "bytes_on_disk", "memory_bytes", "version", "cluster_id", "draining", "drained", "tablets_left", "tablets_at_first", "tablets_unreported", "drain_reason", "loop_lag_ms_max", "gil_hold_ms_max", "tablets_max", "copies_failing", "avoided", "open_files", "memory_maps", "feature_level", "finalized_level", "maintenance_until_us", "maintenance_owner", "maintenance_reason", "quiescing", "doubts", "not_counted")
    UUID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_US_AGO_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    BYTES_ON_DISK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    TABLETS_LEFT_FIELD_NUMBER: _ClassVar[int]
    TABLETS_AT_FIRST_FIELD_NUMBER: _ClassVar[int]
    TABLETS_UNREPORTED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_REASON_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    GIL_HOLD_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    TABLETS_MAX_FIELD_NUMBER: _ClassVar[int]
    COPIES_FAILING_FIELD_NUMBER: _ClassVar[int]
    AVOIDED_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MAPS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_OWNER_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_REASON_FIELD_NUMBER: _ClassVar[int]
    QUIESCING_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    NOT_COUNTED_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    addresses: _containers.RepeatedCompositeFieldContainer[Address]
    last_heartbeat_us_ago: int
    alive: bool
    location: str
    replicas: int
    leaders: int
    bytes_on_disk: int
    memory_bytes: int
    version: str
    cluster_id: str
    draining: bool
    drained: bool
    tablets_left: int
    tablets_at_first: int
    tablets_unreported: int
    drain_reason: str
    loop_lag_ms_max: float
    gil_hold_ms_max: float
    tablets_max: int
    copies_failing: _containers.RepeatedCompositeFieldContainer[FailingCopy]
    avoided: bool
    open_files: ResourceUse
    memory_maps: ResourceUse
    feature_level: int
    finalized_level: int
    maintenance_until_us: int
    maintenance_owner: str
    maintenance_reason: str
    quiescing: bool
    doubts: _containers.RepeatedScalarFieldContainer[str]
    not_counted: str
    def __init__(self, uuid: _Optional[str] = ..., addresses: _Optional[_Iterable[_Union[Address, _Mapping]]] = ..., last_heartbeat_us_ago: _Optional[int] = ..., alive: _Optional[bool] = ..., location: _Optional[str] = ..., replicas: _Optional[int] = ..., leaders: _Optional[int] = ..., bytes_on_disk: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., version: _Optional[str] = ..., cluster_id: _Optional[str] = ..., draining: _Optional[bool] = ..., drained: _Optional[bool] = ..., tablets_left: _Optional[int] = ..., tablets_at_first: _Optional[int] = ..., tablets_unreported: _Optional[int] = ..., drain_reason: _Optional[str] = ..., loop_lag_ms_max: _Optional[float] = ..., gil_hold_ms_max: _Optional[float] = ..., tablets_max: _Optional[int] = ..., copies_failing: _Optional[_Iterable[_Union[FailingCopy, _Mapping]]] = ..., avoided: _Optional[bool] = ..., open_files: _Optional[_Union[ResourceUse, _Mapping]] = ..., memory_maps: _Optional[_Union[ResourceUse, _Mapping]] = ..., feature_level: _Optional[int] = ..., finalized_level: _Optional[int] = ..., maintenance_until_us: _Optional[int] = ..., maintenance_owner: _Optional[str] = ..., maintenance_reason: _Optional[str] = ..., quiescing: _Optional[bool] = ..., doubts: _Optional[_Iterable[str]] = ..., not_counted: _Optional[str] = ...) -> None: ...

class ListServersReply(_message.Message):
    __slots__ = ("error", "servers", "masters", "cluster_id", "foreign", "desired_changes", "finalized_level", "candidates", "candidates_total", "next")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    MASTERS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    DESIRED_CHANGES_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    error: Error
    servers: _containers.RepeatedCompositeFieldContainer[ServerInfo]
    masters: _containers.RepeatedCompositeFieldContainer[ServerInfo]
    cluster_id: str
    foreign: _containers.RepeatedCompositeFieldContainer[ServerInfo]
    desired_changes: int
    finalized_level: int
    candidates: _containers.RepeatedCompositeFieldContainer[ServerInfo]
    candidates_total: int
    next: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., servers: _Optional[_Iterable[_Union[ServerInfo, _Mapping]]] = ..., masters: _Optional[_Iterable[_Union[ServerInfo, _Mapping]]] = ..., cluster_id: _Optional[str] = ..., foreign: _Optional[_Iterable[_Union[ServerInfo, _Mapping]]] = ..., desired_changes: _Optional[int] = ..., finalized_level: _Optional[int] = ..., candidates: _Optional[_Iterable[_Union[ServerInfo, _Mapping]]] = ..., candidates_total: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class AddWriterSchemaRequest(_message.Message):
    __slots__ = ("dest_uuid", "table", "schema", "forget")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    table: str
    schema: WriterSchema
    forget: str
    def __init__(self, dest_uuid: _Optional[str] = ..., table: _Optional[str] = ..., schema: _Optional[_Union[WriterSchema, _Mapping]] = ..., forget: _Optional[str] = ...) -> None: ...

class AddWriterSchemaReply(_message.Message):
    __slots__ = ("error", "table")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    table: TableInfo
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., table: _Optional[_Union[TableInfo, _Mapping]] = ...) -> None: ...

class SourcePosition(_message.Message):
    __slots__ = ("table_id", "source", "generation", "start", "done", "owner_run", "owner_deadline_us", "topic", "table")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    OWNER_RUN_FIELD_NUMBER: _ClassVar[int]
    OWNER_DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table_id: str
    source: SourceKey
    generation: int
    start: int
    done: int
    owner_run: str
    owner_deadline_us: int
    topic: str
    table: str
    def __init__(self, table_id: _Optional[str] = ..., source: _Optional[_Union[SourceKey, _Mapping]] = ..., generation: _Optional[int] = ..., start: _Optional[int] = ..., done: _Optional[int] = ..., owner_run: _Optional[str] = ..., owner_deadline_us: _Optional[int] = ..., topic: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class OpenSourcesRequest(_message.Message):
    __slots__ = ("dest_uuid", "table", "checkpoint_table_id", "opens", "owner_run", "lease_us")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    OWNER_RUN_FIELD_NUMBER: _ClassVar[int]
    LEASE_US_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    table: str
    checkpoint_table_id: str
    opens: _containers.RepeatedCompositeFieldContainer[SourceOpen]
    owner_run: str
    lease_us: int
    def __init__(self, dest_uuid: _Optional[str] = ..., table: _Optional[str] = ..., checkpoint_table_id: _Optional[str] = ..., opens: _Optional[_Iterable[_Union[SourceOpen, _Mapping]]] = ..., owner_run: _Optional[str] = ..., lease_us: _Optional[int] = ...) -> None: ...

class SourceOpen(_message.Message):
    __slots__ = ("source", "topic", "has_checkpoint", "checkpoint_offset", "initial_start")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HAS_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INITIAL_START_FIELD_NUMBER: _ClassVar[int]
    source: SourceKey
    topic: str
    has_checkpoint: bool
    checkpoint_offset: int
    initial_start: int
    def __init__(self, source: _Optional[_Union[SourceKey, _Mapping]] = ..., topic: _Optional[str] = ..., has_checkpoint: _Optional[bool] = ..., checkpoint_offset: _Optional[int] = ..., initial_start: _Optional[int] = ...) -> None: ...

class OpenSourcesReply(_message.Message):
    __slots__ = ("error", "table_id", "positions")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    table_id: str
    positions: _containers.RepeatedCompositeFieldContainer[SourcePosition]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., table_id: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[SourcePosition, _Mapping]]] = ...) -> None: ...

class AdvanceSourcesRequest(_message.Message):
    __slots__ = ("dest_uuid", "table_id", "owner_run", "lease_us", "advances", "release")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_RUN_FIELD_NUMBER: _ClassVar[int]
    LEASE_US_FIELD_NUMBER: _ClassVar[int]
    ADVANCES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    table_id: str
    owner_run: str
    lease_us: int
    advances: _containers.RepeatedCompositeFieldContainer[SourceAdvance]
    release: bool
    def __init__(self, dest_uuid: _Optional[str] = ..., table_id: _Optional[str] = ..., owner_run: _Optional[str] = ..., lease_us: _Optional[int] = ..., advances: _Optional[_Iterable[_Union[SourceAdvance, _Mapping]]] = ..., release: _Optional[bool] = ...) -> None: ...

class SourceAdvance(_message.Message):
    __slots__ = ("source", "generation", "done")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    source: SourceKey
    generation: int
    done: int
    def __init__(self, source: _Optional[_Union[SourceKey, _Mapping]] = ..., generation: _Optional[int] = ..., done: _Optional[int] = ...) -> None: ...

class AdvanceSourcesReply(_message.Message):
    __slots__ = ("error", "positions")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    positions: _containers.RepeatedCompositeFieldContainer[SourcePosition]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., positions: _Optional[_Iterable[_Union[SourcePosition, _Mapping]]] = ...) -> None: ...

class ListSourcesRequest(_message.Message):
    __slots__ = ("dest_uuid", "table", "after", "limit_bytes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    table: str
    after: str
    limit_bytes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., table: _Optional[str] = ..., after: _Optional[str] = ..., limit_bytes: _Optional[int] = ...) -> None: ...

class ListSourcesReply(_message.Message):
    __slots__ = ("error", "positions", "next")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    error: Error
    positions: _containers.RepeatedCompositeFieldContainer[SourcePosition]
    next: str
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., positions: _Optional[_Iterable[_Union[SourcePosition, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class ResetSourceRequest(_message.Message):
    __slots__ = ("dest_uuid", "table", "source", "to_offset", "force", "topic", "keep_generation", "generation")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEEP_GENERATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    table: str
    source: SourceKey
    to_offset: int
    force: bool
    topic: str
    keep_generation: bool
    generation: int
    def __init__(self, dest_uuid: _Optional[str] = ..., table: _Optional[str] = ..., source: _Optional[_Union[SourceKey, _Mapping]] = ..., to_offset: _Optional[int] = ..., force: _Optional[bool] = ..., topic: _Optional[str] = ..., keep_generation: _Optional[bool] = ..., generation: _Optional[int] = ...) -> None: ...

class ResetSourceReply(_message.Message):
    __slots__ = ("error", "position")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    error: Error
    position: SourcePosition
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., position: _Optional[_Union[SourcePosition, _Mapping]] = ...) -> None: ...

class MoveReplicaRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "from_uuid", "to_uuid", "plan_id", "deadline_us", "reason", "seen")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_UUID_FIELD_NUMBER: _ClassVar[int]
    TO_UUID_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    from_uuid: str
    to_uuid: str
    plan_id: str
    deadline_us: int
    reason: str
    seen: TabletSeen
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., from_uuid: _Optional[str] = ..., to_uuid: _Optional[str] = ..., plan_id: _Optional[str] = ..., deadline_us: _Optional[int] = ..., reason: _Optional[str] = ..., seen: _Optional[_Union[TabletSeen, _Mapping]] = ...) -> None: ...

class ReplicaRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "server_uuid", "role", "seen")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_UUID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    server_uuid: str
    role: str
    seen: TabletSeen
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., server_uuid: _Optional[str] = ..., role: _Optional[str] = ..., seen: _Optional[_Union[TabletSeen, _Mapping]] = ...) -> None: ...

class SimpleReply(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class SetReplicationRequest(_message.Message):
    __slots__ = ("dest_uuid", "table", "tablet_id", "replicas", "seen_changes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SEEN_CHANGES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    table: str
    tablet_id: str
    replicas: int
    seen_changes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., table: _Optional[str] = ..., tablet_id: _Optional[str] = ..., replicas: _Optional[int] = ..., seen_changes: _Optional[int] = ...) -> None: ...

class RetireServerRequest(_message.Message):
    __slots__ = ("dest_uuid", "server_uuid", "undo", "reason", "seen_changes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    SERVER_UUID_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SEEN_CHANGES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    server_uuid: str
    undo: bool
    reason: str
    seen_changes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., server_uuid: _Optional[str] = ..., undo: _Optional[bool] = ..., reason: _Optional[str] = ..., seen_changes: _Optional[int] = ...) -> None: ...

class MaintainServerRequest(_message.Message):
    __slots__ = ("dest_uuid", "server_uuid", "seconds", "owner", "reason", "seen_changes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    SERVER_UUID_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SEEN_CHANGES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    server_uuid: str
    seconds: int
    owner: str
    reason: str
    seen_changes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., server_uuid: _Optional[str] = ..., seconds: _Optional[int] = ..., owner: _Optional[str] = ..., reason: _Optional[str] = ..., seen_changes: _Optional[int] = ...) -> None: ...

class ForgetServerRequest(_message.Message):
    __slots__ = ("dest_uuid", "server_uuid", "seen_changes")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    SERVER_UUID_FIELD_NUMBER: _ClassVar[int]
    SEEN_CHANGES_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    server_uuid: str
    seen_changes: int
    def __init__(self, dest_uuid: _Optional[str] = ..., server_uuid: _Optional[str] = ..., seen_changes: _Optional[int] = ...) -> None: ...

class ReplaceTabletsRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_ids", "floors", "despite_replicas")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_IDS_FIELD_NUMBER: _ClassVar[int]
    FLOORS_FIELD_NUMBER: _ClassVar[int]
    DESPITE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_ids: _containers.RepeatedScalarFieldContainer[str]
    floors: _containers.RepeatedCompositeFieldContainer[SourceFloor]
    despite_replicas: bool
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_ids: _Optional[_Iterable[str]] = ..., floors: _Optional[_Iterable[_Union[SourceFloor, _Mapping]]] = ..., despite_replicas: _Optional[bool] = ...) -> None: ...

class SourceFloor(_message.Message):
    __slots__ = ("source", "offset")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    source: SourceKey
    offset: int
    def __init__(self, source: _Optional[_Union[SourceKey, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class Replacement(_message.Message):
    __slots__ = ("tablet_id", "new_tablet_id")
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    tablet_id: str
    new_tablet_id: str
    def __init__(self, tablet_id: _Optional[str] = ..., new_tablet_id: _Optional[str] = ...) -> None: ...

class ReplaceTabletsReply(_message.Message):
    __slots__ = ("error", "replacements", "lowered")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    LOWERED_FIELD_NUMBER: _ClassVar[int]
    error: Error
    replacements: _containers.RepeatedCompositeFieldContainer[Replacement]
    lowered: _containers.RepeatedCompositeFieldContainer[SourcePosition]
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., replacements: _Optional[_Iterable[_Union[Replacement, _Mapping]]] = ..., lowered: _Optional[_Iterable[_Union[SourcePosition, _Mapping]]] = ...) -> None: ...

class FinalizeUpgradeRequest(_message.Message):
    __slots__ = ("dest_uuid", "level", "without")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    level: int
    without: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dest_uuid: _Optional[str] = ..., level: _Optional[int] = ..., without: _Optional[_Iterable[str]] = ...) -> None: ...

class FinalizeUpgradeReply(_message.Message):
    __slots__ = ("error", "level", "before")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    level: int
    before: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., level: _Optional[int] = ..., before: _Optional[int] = ...) -> None: ...

class ConfirmConfigRequest(_message.Message):
    __slots__ = ("dest_uuid", "tablet_id", "config")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    TABLET_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    tablet_id: str
    config: RaftConfig
    def __init__(self, dest_uuid: _Optional[str] = ..., tablet_id: _Optional[str] = ..., config: _Optional[_Union[RaftConfig, _Mapping]] = ...) -> None: ...

class AgreeReadTimeRequest(_message.Message):
    __slots__ = ("dest_uuid", "application", "load_id", "made", "query", "snapshot_time")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    LOAD_ID_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    application: str
    load_id: str
    made: OpId
    query: int
    snapshot_time: int
    def __init__(self, dest_uuid: _Optional[str] = ..., application: _Optional[str] = ..., load_id: _Optional[str] = ..., made: _Optional[_Union[OpId, _Mapping]] = ..., query: _Optional[int] = ..., snapshot_time: _Optional[int] = ...) -> None: ...

class AgreeReadTimeReply(_message.Message):
    __slots__ = ("error", "snapshot_time", "position")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TIME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    error: Error
    snapshot_time: int
    position: OpId
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., snapshot_time: _Optional[int] = ..., position: _Optional[_Union[OpId, _Mapping]] = ...) -> None: ...

class MasterStatusReply(_message.Message):
    __slots__ = ("error", "uuid", "leader_uuid", "catalog_term", "replica", "decisions_published", "moves_active", "kafka_connected", "kafka_named", "kafka", "skipped", "kafka_dropped", "kafka_bootstrap", "refused_ticks")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    LEADER_UUID_FIELD_NUMBER: _ClassVar[int]
    CATALOG_TERM_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    MOVES_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    KAFKA_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    KAFKA_NAMED_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    KAFKA_DROPPED_FIELD_NUMBER: _ClassVar[int]
    KAFKA_BOOTSTRAP_FIELD_NUMBER: _ClassVar[int]
    REFUSED_TICKS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    uuid: str
    leader_uuid: str
    catalog_term: int
    replica: ReplicaStatus
    decisions_published: int
    moves_active: int
    kafka_connected: bool
    kafka_named: bool
    kafka: _containers.RepeatedCompositeFieldContainer[KafkaChannel]
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedRecords]
    kafka_dropped: int
    kafka_bootstrap: str
    refused_ticks: RefusedTicks
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., uuid: _Optional[str] = ..., leader_uuid: _Optional[str] = ..., catalog_term: _Optional[int] = ..., replica: _Optional[_Union[ReplicaStatus, _Mapping]] = ..., decisions_published: _Optional[int] = ..., moves_active: _Optional[int] = ..., kafka_connected: _Optional[bool] = ..., kafka_named: _Optional[bool] = ..., kafka: _Optional[_Iterable[_Union[KafkaChannel, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[SkippedRecords, _Mapping]]] = ..., kafka_dropped: _Optional[int] = ..., kafka_bootstrap: _Optional[str] = ..., refused_ticks: _Optional[_Union[RefusedTicks, _Mapping]] = ...) -> None: ...

class RefusedTicks(_message.Message):
    __slots__ = ("count", "since_us_ago", "why")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_AGO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    count: int
    since_us_ago: int
    why: str
    def __init__(self, count: _Optional[int] = ..., since_us_ago: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class KafkaChannel(_message.Message):
    __slots__ = ("topic", "doing", "link", "last_success_us_ago", "last_error", "last_error_us_ago", "failures")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LAST_SUCCESS_US_AGO_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_US_AGO_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    doing: str
    link: str
    last_success_us_ago: int
    last_error: str
    last_error_us_ago: int
    failures: int
    def __init__(self, topic: _Optional[str] = ..., doing: _Optional[str] = ..., link: _Optional[str] = ..., last_success_us_ago: _Optional[int] = ..., last_error: _Optional[str] = ..., last_error_us_ago: _Optional[int] = ..., failures: _Optional[int] = ...) -> None: ...

class SkippedRecords(_message.Message):
    __slots__ = ("topic", "fault", "count", "last_place", "last_reason", "last_us_ago")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_PLACE_FIELD_NUMBER: _ClassVar[int]
    LAST_REASON_FIELD_NUMBER: _ClassVar[int]
    LAST_US_AGO_FIELD_NUMBER: _ClassVar[int]
    topic: str
    fault: str
    count: int
    last_place: str
    last_reason: str
    last_us_ago: int
    def __init__(self, topic: _Optional[str] = ..., fault: _Optional[str] = ..., count: _Optional[int] = ..., last_place: _Optional[str] = ..., last_reason: _Optional[str] = ..., last_us_ago: _Optional[int] = ...) -> None: ...

class TakeOverRequest(_message.Message):
    __slots__ = ("dest_uuid", "uuid", "seen")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    uuid: str
    seen: int
    def __init__(self, dest_uuid: _Optional[str] = ..., uuid: _Optional[str] = ..., seen: _Optional[int] = ...) -> None: ...

class TakeOverReply(_message.Message):
    __slots__ = ("error", "number", "index")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    error: Error
    number: int
    index: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., number: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class ChangeMastersRequest(_message.Message):
    __slots__ = ("dest_uuid", "add", "remove", "seen")
    DEST_UUID_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    dest_uuid: str
    add: Address
    remove: str
    seen: OpId
    def __init__(self, dest_uuid: _Optional[str] = ..., add: _Optional[_Union[Address, _Mapping]] = ..., remove: _Optional[str] = ..., seen: _Optional[_Union[OpId, _Mapping]] = ...) -> None: ...

class ChangeMastersReply(_message.Message):
    __slots__ = ("error", "config", "uuid", "already")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    error: Error
    config: RaftConfig
    uuid: str
    already: bool
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., config: _Optional[_Union[RaftConfig, _Mapping]] = ..., uuid: _Optional[str] = ..., already: _Optional[bool] = ...) -> None: ...
