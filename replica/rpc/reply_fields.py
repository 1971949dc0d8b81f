"""The allowed values of every field of the replies that a server acts on, as `request_fields.py` has those of requests.

A copy source is any process that a caller of StartTabletCopy names, a master any process at a configured address, and a
tablet server any process that sends heartbeats.
So nothing of their replies is used before it has passed this table. Pure.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TypeVar

from google.protobuf.descriptor import Descriptor

from nyala.replica.types import Code, Refused, limits
from nyala.replica.types.names import check_length, refused

from . import request_fields
from .request_fields import Plan, Rule, check_fields, plan_of, rule_of

_Reply = TypeVar("_Reply")
_TEXT = partial(check_length, length_max=limits.TEXT_LENGTH_MAX)


def _ticket(value: bytes, what: str) -> object:
    if len(value) > limits.TICKET_BYTES_MAX:
        raise refused(f"{what}: at most {limits.TICKET_BYTES_MAX} bytes", len(value))
    return value


AS: dict[str, str] = {
    "master_uuid": "uuid",
    "heard_until": "slice_until",
    "catalog_term": "term",
    "first_retained_index": "index",
    "ttl_us": "timeout_us",
    "pid": "index",
    "ListTabletsReply.next": "ListTabletsRequest.after",
    "CopyFile.kind": "FetchRequest.kind",
    "CopyFile.name": "FetchRequest.name",
    "current_term": "term",
    "decisions_published": "index",
    "moves_active": "index",
    "kafka_dropped": "index",
    "last_success_us_ago": "timeout_us",
    "last_error_us_ago": "timeout_us",
    "last_us_ago": "timeout_us",
    "since_us_ago": "timeout_us",
    "RefusedTicks.count": "index",
    "KafkaChannel.failures": "index",
    "SkippedRecords.count": "index",
    "ScanChunk.rows": "index",
    "link_rows": "index",
    "last_offset": "after",
    # Any checksum is possible, and an unknown code of an error is that of a newer build.
    "crc": "payload_crc",
    "code": "number",
    # Bytes that `tablet_copy/offer.py` checks when it reads them.
    "superblock": "payload",
    "cmeta": "payload",
    # Rows of which only the caller that asked for them makes any use.
    "arrow_schema": "payload",
    "arrow_batch": "payload",
}
"""Fields of replies, each with the field of a request that has the same rule."""
RULES: dict[str, Rule] = {
    **request_fields.RULES,
    **{name: request_fields.RULES[same] for name, same in AS.items()},
    **request_fields.of(_TEXT, "message detail doing link fault last_error last_place last_reason why kafka_bootstrap"),
    "ticket": _ticket,
}
"""Rules by a field's name, or by `Message.field`. A message that requests have, too, has the rules of requests."""
APART = frozenset({"TabletOrder"})
"""Messages whose parts are requests. A server checks each order as a request before it carries it out, so that a wrong
one does not keep it from the others."""


@cache
def _plan(descriptor: Descriptor) -> Plan:
    if descriptor.name in APART:
        return Plan([], [], [], [], [])
    return plan_of(descriptor, lambda field: rule_of(field, RULES), {**limits.REPEATED, **limits.REPEATED_IN_REPLIES})


def check_reply(reply: _Reply, sender: str) -> _Reply:
    """Return the reply; Refused(CORRUPTION), which names the field, if no honest `sender` sends it. Then none of it may
    be used."""
    try:
        check_fields(reply, _plan)
    except Refused as error:
        what = f"{sender} sent what no server of this system sends, none of it was used, look at that server"
        values = {"reply": type(reply).__name__, "why": error.what, **error.values}
        raise Refused(Code.CORRUPTION, what, values) from error
    return reply
