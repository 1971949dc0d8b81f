"""`python -m nyala.replica.server`: start one tablet server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import nyala.replica.types.quiet_grpc  # noqa: F401  before gRPC is imported
from nyala.replica.types import Address, InvariantViolation, place_to_listen
from nyala.replica.types.process import add_options

from .options import ServerOptions
from .process import main

HELPS = {
    "listen": "host:port; port 0 takes a free one",
    "advertise": "host:port that others are told, if not the listening one; masters call it before this server counts",
    "tls": "directory of this process's certificate, of `nyala security issue`; without it, all connections are open",
    "peer_port": "for links of other servers and clients, on the same host; 0: a free one",
    "ready_file": "written as JSON once the server listens",
    "parent_fd": "pipe whose end means: stop",
    "location": "where this server stands, as /zone/rack",
    "metrics_port": "Prometheus metrics; 0 takes a free port",
    "copy_jobs_max": "tablet copies into this server at once",
    "copy_rate_bytes_per_s": "limit of all tablet copies into and out of this server together; 0: none",
    "copy_busy_rate_bytes_per_s": "the same while clients write here, and for a second after; 0: no other limit",
    "scrub_mb_per_s": "how fast blocks and closed log segments are read again to find damage, in 10^6 bytes; 0: never",
    "scrub_interval_s": "each of them at most once in this time",
    "memory_soft_bytes": "above this much memory, writes are refused",
    "wal_segment_size_bytes_max": "longest segment of a tablet's log, preallocated; they begin small and double",
    "log_retain_bytes": "log that a tablet keeps for followers that lag",
    "log_retain_entries": "entries that a tablet keeps for followers that lag",
    "tablets_max": "replicas that this server holds",
}


def parse(arguments: Sequence[str]) -> ServerOptions:
    """The options of a command line; on an error, argparse ends the process with a clear line."""
    parser = argparse.ArgumentParser(prog="nyala.replica.server", description="One Nyala tablet server.")
    parser.add_argument("--root", required=True, help="directory of this server; formatted at the first start")
    parser.add_argument("--masters", default="", help="host:port,host:port of all masters")
    add_options(parser, ServerOptions, HELPS)
    parser.add_argument("--insecure", action="store_true", help="listen beyond loopback without --tls")
    parser.add_argument(
        "--unsafe-no-wal-sync", action="store_true", help="unsafe: a power loss forgets acknowledged writes"
    )
    given = vars(parser.parse_args(arguments))
    try:
        if min(given["copy_rate_bytes_per_s"], given["copy_busy_rate_bytes_per_s"]) < 0 or given["copy_jobs_max"] < 1:
            raise ValueError("limits of tablet copies: a rate is 0 or more, and at least one copy may run")
        masters = tuple(Address.given(m.strip()) for m in given.pop("masters").split(",") if m.strip())
        place_to_listen(given["listen"])
        if given["advertise"]:
            Address.given(given["advertise"])
        wal_sync = not given.pop("unsafe_no_wal_sync")
        return ServerOptions(**given, masters=masters, wal_sync=wal_sync)
    except (ValueError, InvariantViolation) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
