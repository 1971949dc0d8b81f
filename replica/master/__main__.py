"""`python -m nyala.replica.master`: one master process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

import nyala.replica.types.quiet_grpc  # noqa: F401  before gRPC is imported
from nyala.replica.policy import Caps
from nyala.replica.types import Address, KafkaSecurity, ReplicaError, kafka_security
from nyala.replica.types.process import add_options, log_to_stderr, raise_open_files_limit

from .options import MasterOptions
from .process import serve

HELPS = {
    "listen": "host:port; port 0 takes a free one",
    "advertise": "host:port that others are told",
    "tls": "directory of this process's certificate, of `nyala security issue`; without it, all connections are open",
    "peer_port": "for other masters' links, on the same host; 0: a free one",
    "ready_file": "written when the master listens",
    "parent_fd": "end when this pipe closes",
    "metrics_port": "Prometheus metrics; 0 takes a free port",
    "kafka": "bootstrap servers; empty: no Kafka",
    "topic_prefix": "of the masters' topics",
    "server_dead_ms": "a tablet server silent for so long is shown as dead and gets no new replicas",
    "rereplicate_after_ms": "a replica silent for so long gets a replacement",
    "policy_ms": "how often the masters decide what is to change",
    "dropped_retention_ms": "a dropped tablet is forgotten so long after the last of its replicas was gone",
    "abandoned_copy_grace_ms": "a copy on a server that was in no config is deleted after so long; a day at most",
}


def _options(argv: list[str]) -> MasterOptions:
    parser = argparse.ArgumentParser(prog="nyala-master", description="One master of a Nyala cluster.")
    parser.add_argument("--root", required=True, help="directory of this master alone")
    parser.add_argument("--peers", default="", help="addresses of all masters, comma separated")
    parser.add_argument("--join", default="", help="addresses of running masters, which add this new one")
    parser.add_argument("--kafka-properties", default="", help="file of Java client properties that say how to log in")
    parser.add_argument("--execute-decisions", choices=("master", "none"), default="none")
    parser.add_argument(
        "--heal-by-witness",
        action="store_true",
        help="a replica that logs and votes takes a lost one's place at once, and gets its data while it votes",
    )
    add_options(parser, MasterOptions, HELPS)
    parser.add_argument("--insecure", action="store_true", help="listen beyond loopback without --tls")
    add_options(parser, Caps, {"moves_max": "moves at once", "moves_per_server_max": "those of one server at once"})
    args = vars(parser.parse_args(argv))
    for several in ("peers", "join"):
        args[several] = tuple(Address.given(a) for a in args[several].split(",") if a)
    caps = Caps(moves_max=args.pop("moves_max"), moves_per_server_max=args.pop("moves_per_server_max"))
    properties = kafka_security.properties_of(args["kafka_properties"]) if args["kafka_properties"] else {}
    args["kafka_security"] = KafkaSecurity(tuple(sorted(properties.items())))
    del args["kafka_properties"]
    return MasterOptions(**args, caps=caps)


def main(argv: list[str] | None = None) -> int:
    """Run one master; returns the exit code."""
    log_to_stderr(os.environ.get("NYALA_LOG_LEVEL", "INFO"), names=True)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # KafkaLink logs the important errors, once
    try:
        options = _options(sys.argv[1:] if argv is None else argv)
        raise_open_files_limit()
        return asyncio.run(serve(options))
    except (ReplicaError, ValueError) as error:
        print(f"nyala-master: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
