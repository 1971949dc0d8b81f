"""Generated stubs (`pb`, `pb_grpc`), and conversion between the wire and the value types of base, rows and raft."""

from . import nyala_pb2 as pb
from . import nyala_pb2_grpc as pb_grpc
from .channel import CHANNEL_OPTIONS, COPY_CHANNEL_OPTIONS, SERVER_OPTIONS, listen_on, tend
from .errors import error_from_pb, error_to_pb, raise_if_error
from .frames import HEAD_BYTES, body_length, frame, frame_parts
from .messages import message_from_pb, message_to_pb
from .refusals import as_refusal, check_name, check_tablet_id
from .tables import (
    column_from_pb,
    column_to_pb,
    partition_from_pb,
    partition_to_pb,
    predicate_from_pb,
    predicate_to_pb,
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
    entry_from_pb,
    entry_to_pb,
    member_from_pb,
    member_to_pb,
    opid_from_pb,
    opid_to_pb,
    place_to_pb,
)

__all__ = [
    "CHANNEL_OPTIONS",
    "COPY_CHANNEL_OPTIONS",
    "HEAD_BYTES",
    "SERVER_OPTIONS",
    "address_from_pb",
    "address_to_pb",
    "addresses_from_pb",
    "as_refusal",
    "body_length",
    "check_name",
    "check_tablet_id",
    "column_from_pb",
    "column_to_pb",
    "config_from_pb",
    "config_to_pb",
    "entry_from_pb",
    "entry_to_pb",
    "error_from_pb",
    "error_to_pb",
    "frame",
    "frame_parts",
    "listen_on",
    "member_from_pb",
    "member_to_pb",
    "message_from_pb",
    "message_to_pb",
    "opid_from_pb",
    "opid_to_pb",
    "partition_from_pb",
    "partition_to_pb",
    "pb",
    "pb_grpc",
    "place_to_pb",
    "predicate_from_pb",
    "predicate_to_pb",
    "raise_if_error",
    "row_errors_from_pb",
    "row_errors_to_pb",
    "schema_from_pb",
    "schema_to_pb",
    "source_from_pb",
    "source_to_pb",
    "tend",
]
