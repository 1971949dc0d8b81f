"""Avro schemas of everything durable or published, and the tiny loader of them.

`record(name)` is the parsed schema of `avro/<name>.avsc`; `encode` and `decode` turn one dict into bare Avro and back.
"""

from .loader import NewerFormat, decode, encode, fingerprint64, frame, parse_json, record, unframe

__all__ = ["NewerFormat", "decode", "encode", "fingerprint64", "frame", "parse_json", "record", "unframe"]
