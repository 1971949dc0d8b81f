"""Finds out whether a Kafka broker listens, before a Kafka client is made."""

from __future__ import annotations

import socket

from .arguments import as_given, check_kind
from .errors import Code, Refused
from .ids import Address

CONNECT_TIMEOUT_S = 5.0


def kafka_addresses(bootstrap: object) -> list[tuple[str, int]]:
    """Return the (host, port) of each address in `host:port[,host:port]`; Refused INVALID_ARGUMENT if one is none."""
    try:
        places = map(Address.given, map(str.strip, check_kind(bootstrap, str, "kafka=").split(",")))
        return [(place.host.strip("[]"), place.port) for place in places]
    except ValueError as error:
        what = f"Kafka is at host:port[,host:port], not at {as_given(bootstrap)}; {error}"
        raise Refused(Code.INVALID_ARGUMENT, what) from error


def reach_kafka(bootstrap: str) -> None:
    """Return if a broker listens at one of these addresses. Refused UNAVAILABLE if none does, INVALID_ARGUMENT if one
    is no address.

    It is called before a kafka-python client is made, because the client's thread stays if its constructor fails.
    """
    trouble: Exception | None = None
    for host, port in kafka_addresses(bootstrap):
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            return
        except (OSError, UnicodeError) as error:  # The latter for a part of a host's name that is too long.
            trouble = error
    raise Refused(Code.UNAVAILABLE, f"Kafka at {bootstrap} does not answer: {trouble}") from trouble
