"""`python -m nyala.replica.server`: start one tablet server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nyala.replica.types import Address, InvariantViolation

from .options import ServerOptions
from .process import main


def parse(arguments: Sequence[str]) -> ServerOptions:
    """Options of a command line; argparse ends the process with a clear line on anything wrong."""
    parser = argparse.ArgumentParser(prog="nyala.replica.server", description="One Nyala tablet server.")
    parser.add_argument("--root", required=True, help="directory of this server; formatted at the first start")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument(
        "--advertise",
        default="",
        help="host:port that others are told, if not the listening one; masters call it before this server counts",
    )
    parser.add_argument(
        "--peer-port",
        type=int,
        default=0,
        help="for links of other servers and clients, on the same host; 0: a free one",
    )
    parser.add_argument("--masters", default="", help="host:port,host:port of all masters")
    parser.add_argument("--ready-file", default="", help="written as JSON once the server listens")
    parser.add_argument("--parent-fd", type=int, default=-1, help="pipe whose end means: stop")
    parser.add_argument("--location", default="", help="where this server stands, as /zone/rack")
    parser.add_argument("--metrics-port", type=int, default=-1, help="Prometheus metrics; 0 takes a free port")
    usual = ServerOptions(root="-")
    parser.add_argument(
        "--copy-jobs-max", type=int, default=usual.copy_jobs_max, help="tablet copies into this server at once"
    )
    parser.add_argument(
        "--copy-rate-bytes-per-s",
        type=int,
        default=usual.copy_rate_bytes_per_s,
        help="limit of all tablet copies into and out of this server together; 0: none",
    )
    parser.add_argument(
        "--copy-busy-rate-bytes-per-s",
        type=int,
        default=usual.copy_busy_rate_bytes_per_s,
        help="the same while clients write to this server, and for a second after; 0: no other limit",
    )
    parser.add_argument(
        "--scrub-mb-per-s",
        type=int,
        default=usual.scrub_mb_per_s,
        help="how fast blocks and closed log segments are read again to find damage, in 10^6 bytes; 0: never",
    )
    parser.add_argument(
        "--scrub-interval-s", type=float, default=usual.scrub_interval_s, help="each of them at most once in this time"
    )
    parser.add_argument("--memory-soft-bytes", type=int, default=usual.memory_soft_bytes)
    parser.add_argument(
        "--wal-segment-size-bytes-max",
        type=int,
        default=usual.wal_segment_size_bytes_max,
        help="longest segment of a tablet's log, preallocated; they begin small and double",
    )
    parser.add_argument("--log-retain-bytes", type=int, default=usual.log_retain_bytes)
    parser.add_argument("--log-retain-entries", type=int, default=usual.log_retain_entries)
    parser.add_argument("--tablets-max", type=int, default=usual.tablets_max, help="replicas that this server holds")
    parser.add_argument(
        "--unsafe-no-wal-sync", action="store_true", help="unsafe: a power loss forgets acknowledged writes"
    )
    given = parser.parse_args(arguments)
    try:
        if min(given.copy_rate_bytes_per_s, given.copy_busy_rate_bytes_per_s) < 0 or given.copy_jobs_max < 1:
            raise ValueError("limits of tablet copies: a rate is 0 or more, and at least one copy may run")
        masters = tuple(Address.parse(m.strip()) for m in given.masters.split(",") if m.strip())
        host, colon, port = given.listen.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise ValueError(f"{given.listen!r} is not an address of the form host:port")
        return ServerOptions(
            root=given.root,
            listen=given.listen,
            advertise=given.advertise,
            peer_port=given.peer_port,
            masters=masters,
            ready_file=given.ready_file,
            parent_fd=given.parent_fd,
            location=given.location,
            metrics_port=given.metrics_port,
            copy_jobs_max=given.copy_jobs_max,
            copy_rate_bytes_per_s=given.copy_rate_bytes_per_s,
            copy_busy_rate_bytes_per_s=given.copy_busy_rate_bytes_per_s,
            scrub_mb_per_s=given.scrub_mb_per_s,
            scrub_interval_s=given.scrub_interval_s,
            memory_soft_bytes=given.memory_soft_bytes,
            tablets_max=given.tablets_max,
            log_retain_bytes=given.log_retain_bytes,
            log_retain_entries=given.log_retain_entries,
            wal_sync=not given.unsafe_no_wal_sync,
            wal_segment_size_bytes_max=given.wal_segment_size_bytes_max,
        )
    except (ValueError, InvariantViolation) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
