"""Generated stubs (`pb`, `pb_grpc`), and conversion between the wire and the values of `types`, `rows` and `raft`."""

from . import nyala_pb2 as pb
from . import nyala_pb2_grpc as pb_grpc
from .calls_in_flight import Call, CallBounds, CallsInFlight
from .checked_server import Context, RequestChecks, caller_of, checked_request, host_of_caller, new_server
from .connection_bound import ConnectionBound
from .connection_options import (
    ANSWER_CHANNEL_OPTIONS,
    CHANNEL_OPTIONS,
    CLIENT_SILENCE_MS,
    COPY_CHANNEL_OPTIONS,
    ONCE_CHANNEL_OPTIONS,
    SERVER_OPTIONS,
    set_keep_alive,
)
from .connections import (
    HEAD_BYTES,
    accept_on,
    async_channel_to,
    async_connection_to,
    body_length,
    channel_for_one_call,
    channel_to,
    connection_to,
    failed_call,
    frame,
    frame_parts,
    listen_on,
    secure_accepted,
    secured,
    tls_problem,
)
from .credentials import (
    ANY_MEMBER,
    CA,
    CERTIFICATE,
    CLIENT_ROLE,
    HANDSHAKE_S_MAX,
    KEY,
    MASTER_ROLE,
    OPERATOR_ROLE,
    REFRESH_S,
    SERVER_ROLE,
    Credentials,
    Named,
    certificate_uris,
    check_directory_uuid,
    credentials_of_process,
    first_named,
    load_credentials,
    speak_as,
    start_as,
)
from .errors import TooLong, error_from_pb, error_to_pb, raise_if_error, too_long
from .heartbeats import Reports, check_status, heartbeat_from_pb
from .hosts import counted_host
from .messages import fill_message, message_from_pb, message_to_pb
from .page_writer import page_bytes, page_of
from .reply_fields import check_reply
from .report_state import Report, ReportState
from .reported_replicas import reported_replica_from_pb
from .request_bounds import count_fields
from .request_errors import NamedRequest, as_refusal, check_name, check_tablet_id
from .request_fields import check_fields
from .rights import may_speak
from .table_descriptions import (
    check_description,
    check_numbers,
    check_replicas,
    description_from_pb,
    description_to_json,
    description_to_pb,
    info_from_json,
    writer_schema_from_pb,
    writer_schema_to_pb,
)
from .tables import (
    column_from_pb,
    partition_from_pb,
    partition_to_pb,
    predicate_from_pb,
    predicate_to_pb,
    predicates_from_pb,
    row_errors_from_pb,
    row_errors_to_pb,
    schema_from_pb,
    schema_to_pb,
    source_from_pb,
    source_to_pb,
)
from .values import (
    address_from_pb,
    address_to_pb,
    addresses_from_pb,
    config_from_pb,
    config_to_pb,
    decision_to_pb,
    edit_from_pb,
    edit_to_pb,
    entry_from_pb,
    feature_level_from_pb,
    member_from_pb,
    member_to_pb,
    opid_from_pb,
    opid_to_pb,
    place_to_pb,
    proposal_from_pb,
)
from .wire_fields import wire_fields
