"""Avro schemas of everything durable or published, and their small loader.

`record(name)` is the parsed schema of `avro/<name>.avsc`; `encode` and `decode` turn one dict into bare Avro and back.
`decode_bounded` does so for bytes of an untrusted writer, `parse_writer_schema` reads a schema of one.
"""

from .bounded import NoDatum, decode_bounded
from .feature_level import FIRST_VERSIONS, build_level, feature_of
from .loader import (
    UnsupportedFrame,
    decode,
    encode,
    fingerprint64,
    frame,
    parse_json,
    parse_writer_schema,
    record,
    unframe,
)
from .records import TopicRecord, config_from_avro, config_to_avro, encode_record, from_avro, schema_of, to_avro
