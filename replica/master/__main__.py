"""`python -m nyala.replica.master`, which is `nyala master run`: one master process."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

import nyala.replica.types.quiet_grpc  # noqa: F401  before gRPC is imported
from nyala.replica.types import ReplicaError
from nyala.replica.types.logs import begin_to_log, say_why_it_ends
from nyala.replica.types.options import read_options
from nyala.replica.types.process import raise_open_files_limit

from .options import MasterOptions
from .process import serve


def parse(arguments: Sequence[str]) -> MasterOptions:
    """Return the options, from the command line, the environment and a file. On an error, the process prints one line
    and ends."""
    return read_options(
        MasterOptions, "nyala master run", "NYALA_MASTER", arguments, about="One master of a Nyala cluster."
    )


def main(argv: list[str] | None = None) -> int:
    """Run one master; returns the exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    try:
        begin_to_log(options.process, "master", names=True)
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # KafkaLink logs the important errors, once
        raise_open_files_limit()
        return asyncio.run(serve(options))
    except (ReplicaError, ValueError) as error:
        say_why_it_ends("nyala-master", str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
