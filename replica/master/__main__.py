"""`python -m nyala.replica.master`: one master process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from nyala.replica.policy import Caps
from nyala.replica.types import Address, KafkaSecurity, ReplicaError, kafka_security
from nyala.replica.types.process import log_to_stderr, raise_open_files_limit

from .options import MasterOptions
from .process import serve


def _options(argv: list[str]) -> MasterOptions:
    parser = argparse.ArgumentParser(prog="nyala-master", description="One master of a Nyala cluster.")
    parser.add_argument("--root", required=True, help="directory of this master alone")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--advertise", default="", help="host:port that others are told")
    parser.add_argument(
        "--peer-port", type=int, default=0, help="for other masters' links, on the same host; 0: a free one"
    )
    parser.add_argument("--peers", default="", help="addresses of all masters, comma separated")
    parser.add_argument("--ready-file", default="", help="written when the master listens")
    parser.add_argument("--parent-fd", type=int, default=-1, help="end when this pipe closes")
    parser.add_argument("--metrics-port", type=int, default=-1, help="Prometheus metrics; 0 takes a free port")
    parser.add_argument("--kafka", default="", help="bootstrap servers; empty: no Kafka")
    parser.add_argument("--kafka-properties", default="", help="file of Java client properties that say how to log in")
    parser.add_argument("--topic-prefix", default="")
    parser.add_argument("--execute-decisions", choices=("master", "none"), default="none")
    parser.add_argument("--server-dead-ms", type=int, default=3_000)
    parser.add_argument("--rereplicate-after-ms", type=int, default=30_000)
    parser.add_argument(
        "--heal-by-witness",
        action="store_true",
        help="a replica that logs and votes takes a lost one's place at once, and gets its data while it votes",
    )
    parser.add_argument("--policy-ms", type=int, default=500)
    parser.add_argument("--dropped-retention-ms", type=int, default=24 * 3600 * 1000)
    parser.add_argument(
        "--abandoned-copy-grace-ms",
        type=int,
        default=600_000,
        help="a copy on a server that is in no config, and never was, is deleted after so long; a day at most",
    )
    parser.add_argument("--moves-max", type=int, default=10)
    parser.add_argument("--moves-per-server-max", type=int, default=2)
    args = vars(parser.parse_args(argv))
    args["peers"] = tuple(Address.parse(a) for a in args["peers"].split(",") if a)
    caps = Caps(moves_max=args.pop("moves_max"), moves_per_server_max=args.pop("moves_per_server_max"))
    properties = kafka_security.properties_of(args["kafka_properties"]) if args["kafka_properties"] else {}
    args["kafka_security"] = KafkaSecurity(tuple(sorted(properties.items())))
    del args["kafka_properties"]
    return MasterOptions(**args, caps=caps)


def main(argv: list[str] | None = None) -> int:
    """Run one master; the exit code."""
    log_to_stderr(os.environ.get("NYALA_LOG_LEVEL", "INFO"), names=True)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # KafkaLink says what matters, once
    try:
        options = _options(sys.argv[1:] if argv is None else argv)
        raise_open_files_limit()
        return asyncio.run(serve(options))
    except (ReplicaError, ValueError) as error:
        print(f"nyala-master: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
