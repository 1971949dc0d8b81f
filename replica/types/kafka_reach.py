"""Finds out whether a Kafka broker listens, before a Kafka client is made."""

from __future__ import annotations

import socket

from .errors import Code, Refused

CONNECT_TIMEOUT_S = 5.0


def reach_kafka(bootstrap: str) -> None:
    """Return if a broker listens at one of these addresses. Refused UNAVAILABLE if none does, INVALID_ARGUMENT if one
    is no address.

    It is called before a kafka-python client is made, because the client's thread stays if its constructor fails.
    """
    trouble: OSError | None = None
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise Refused(Code.INVALID_ARGUMENT, f"Kafka is at host:port[,host:port], not at {bootstrap!r}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            trouble = error
    raise Refused(Code.UNAVAILABLE, f"Kafka at {bootstrap} does not answer: {trouble}") from trouble
