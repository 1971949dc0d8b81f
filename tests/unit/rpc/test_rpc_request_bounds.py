"""Requests that are too large, or have too many parts, are refused before anything is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2

from nyala.replica.rpc import check_fields, checked_request, count_fields, pb
from nyala.replica.rpc.request_bounds import check_size, many_fields
from nyala.replica.types import Code, Refused, limits

SERVICES = {**pb.DESCRIPTOR.services_by_name, **health_pb2.DESCRIPTOR.services_by_name}


def message_of(method: str) -> Any:
    """The class of a method's requests."""
    if "." not in method:
        return getattr(pb, method)
    service, _, name = method.partition(".")
    return message_factory.GetMessageClass(SERVICES[service].methods_by_name[name].input_type)


def unknown(length: int) -> bytes:
    """A field that no build knows, with so many bytes: it is kept, and means nothing."""
    return b"\xfa\x7f" + varint(length) + bytes(length)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def nested(field: Any, count: int) -> bytes:
    """Return so many empty items of a repeated field: two or three bytes each."""
    return (varint(field.number << 3 | 2) + b"\0") * count


@pytest.mark.parametrize("method", limits.REQUESTS)
def test_request_that_is_too_large_is_refused_unread(method: str) -> None:
    """IN-60. Goal: what a request costs is known before it is parsed. Method: of every call, a byte more than it may
    have, which is no message at all, and so would be refused otherwise if it were read."""
    with pytest.raises(Refused, match="too large") as caught:
        checked_request(method, b"\xff" * (limits.REQUESTS[method].bytes_max + 1), message_of(method))
    assert caught.value.code is Code.TOO_LARGE


@pytest.mark.parametrize("method", limits.REQUESTS)
def test_request_of_too_many_parts_is_refused_unparsed(method: str) -> None:
    """IN-60. Goal: two bytes do not become a hundred, a million times over. Method: of every call, as many fields of
    two bytes as fit, known and unknown ones: what is long is refused at the bound, by count; what is short cannot have
    many. Looking ends at the bound: so the look is bounded as well."""
    message = message_of(method)
    bound = limits.REQUESTS[method]
    bombs = [b"\x98\x7f\x00" * (bound.bytes_max // 3)]  # field 2035, a number
    bombs += [nested(f, bound.bytes_max // 4) for f in message.DESCRIPTOR.fields if f.is_repeated]
    for bomb in bombs:
        if not check_size(method, bomb):
            assert len(bomb) <= limits.REQUEST_SMALL_BYTES
            continue
        with pytest.raises(Refused) as caught:
            checked_request(method, bomb, message)
        assert caught.value.code in (Code.TOO_LARGE, Code.INVALID_ARGUMENT)
        if not many_fields(method):
            assert bound.fields_max <= limits.REQUEST_FIELDS_INLINE_MAX


@pytest.mark.parametrize("path", limits.REPEATED)
def test_repeated_field_has_its_bound_and_not_one_more(path: str) -> None:
    """IN-60. Goal: each list has the length that is stated. Method: of every repeated field, the most items, as they
    may be, and one more, parsed; and before it is parsed."""
    name, _, field_name = path.partition(".")
    message = getattr(pb, name)()
    field = message.DESCRIPTOR.fields_by_name[field_name]
    items = getattr(message, field_name)
    most = limits.REPEATED[path]
    good: Any = {field.TYPE_INT32: 1, field.TYPE_BYTES: b"1"}.get(field.type, "x")
    for _ in range(most):
        if field.message_type is not None:
            items.add()
        else:
            items.append(good)
    check_fields(message)
    items.extend([items[0]])
    with pytest.raises(Refused, match=f"{field_name}: at most {most}"):
        check_fields(message)
    if field.cpp_type != field.CPPTYPE_INT32:
        with pytest.raises(Refused, match=f"{field_name}: at most {most}"):
            count_fields("MasterService.Heartbeat", nested(field, most + 1), message.DESCRIPTOR)


@pytest.mark.deep
def test_fields_are_counted_at_every_depth_where_they_may_repeat() -> None:
    """IN-60. Goal: a list within a list is counted too. Method: replicas with members with addresses, one more than a
    heartbeat may have in all, though no list is too long; the count of a small one is told."""
    config = pb.RaftConfig(members=[pb.Member(addresses=[pb.Address(port=1)] * 16) for _ in range(64)])
    replica = pb.ReplicaStatus(committed_config=config)
    one = pb.HeartbeatRequest(replicas=[replica]).SerializeToString()
    each = count_fields("MasterService.Heartbeat", one, pb.HeartbeatRequest.DESCRIPTOR)
    assert each == 1 + 1 + 64 + 64 * 16
    fits = limits.REQUESTS["MasterService.Heartbeat"].fields_max // each
    count_fields("MasterService.Heartbeat", one * fits, pb.HeartbeatRequest.DESCRIPTOR)
    with pytest.raises(Refused, match="too many parts"):
        count_fields("MasterService.Heartbeat", one * (fits + 1), pb.HeartbeatRequest.DESCRIPTOR)


@pytest.mark.parametrize("bad", [b"\xff" * 20, b"\x0a\xff\xff\xff\x7f", b"\x0b", b"\x0a\x05ab", b"\x80", b"\x09\x01"])
def test_bytes_that_are_no_message_are_refused(bad: bytes) -> None:
    """IN-60. Goal: never a raw exception. Method: cut, overlong and group fields, short, and behind a large field, so
    that they are counted."""
    for data in (bad, unknown(100_000) + bad):
        with pytest.raises(Refused, match="no message") as caught:
            checked_request("MasterService.Heartbeat", data, pb.HeartbeatRequest)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_method_without_a_row_is_refused() -> None:
    """IN-60. Goal: what states no bound takes nothing. Method: a method that the table does not have."""
    with pytest.raises(Refused, match="states no bound"):
        checked_request("TabletService.Later", b"", pb.Empty)


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("this host does not tell")


@pytest.mark.deep
def test_parsed_request_takes_no_more_memory_than_is_stated() -> None:
    """IN-60. Goal: REQUEST_FIELD_BYTES is true. Method: the resident memory of as many empty parts as a heartbeat may
    have, parsed."""
    method = "MasterService.Heartbeat"
    replica = pb.ReplicaStatus(peers=[pb.PeerHealth()] * 64)
    data = pb.HeartbeatRequest(replicas=[replica] * 6000).SerializeToString()
    count = count_fields(method, data, pb.HeartbeatRequest.DESCRIPTOR)
    assert count > 0.9 * limits.REQUESTS[method].fields_max
    before = _anonymous_bytes()
    request = pb.HeartbeatRequest.FromString(data)
    taken = _anonymous_bytes() - before
    assert len(request.replicas) == 6000
    assert taken <= count * limits.REQUEST_FIELD_BYTES
