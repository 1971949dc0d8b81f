"""Reads checksums of many replicas, as of one time, in Spark tasks. The servers compute; the tasks only call them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from nyala.replica.rows import CHECKSUM_DEFINITION, RowSum
from nyala.replica.rpc import pb
from nyala.replica.types import Refused

from . import worker
from .errors import QueryInterrupted

Sum = tuple[str, str, RowSum | None, str]
"""(server uuid, tablet id, checksum, error): an error, or a checksum."""


def read_checksums(
    spark: Any, masters: str, replicas: Sequence[tuple[pb.ServerInfo, str, float]], at: int, tls: str = ""
) -> list[Sum]:
    """Return the checksum of each (server, tablet id, seconds) at hybrid time `at`, or an error after its seconds.
    `tls`: as of `IngestOptions`.

    As many calls run at a time as Spark runs tasks. Neighbours in the list go to different tasks, so that they do not
    all call one server. QueryInterrupted if Spark itself fails; the call may be repeated.
    """
    if not replicas:
        return []
    context = spark.sparkContext
    tasks = min(len(replicas), context.defaultParallelism * 4)
    asked = [(server.SerializeToString(), tablet_id, timeout_s) for server, tablet_id, timeout_s in replicas]
    dealt = [asked[first::tasks] for first in range(tasks)]
    try:
        # The driver names the definition, because a worker may run another build, with another default.
        read = partial(_read_share, masters, tls, at, CHECKSUM_DEFINITION)
        return list(context.parallelize(dealt, tasks).flatMap(read).collect())
    except Exception as error:
        raise QueryInterrupted(f"Spark could not run the tasks: {str(error).splitlines()[0]}") from error


def _read_share(
    masters: str, tls: str, at: int, definition: int, share: Sequence[tuple[bytes, str, float]]
) -> Iterator[Sum]:
    client = worker.client_for(masters, tls=tls)
    for encoded, tablet_id, timeout_s in share:
        server = pb.ServerInfo.FromString(encoded)
        try:
            found = client.checksum(server, tablet_id, at, definition=definition, timeout_s=timeout_s)
        except Refused as error:
            yield server.uuid, tablet_id, None, str(error)
        else:
            yield server.uuid, tablet_id, found, ""
