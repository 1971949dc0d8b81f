"""`python -m nyala.replica.server`, which is `nyala server run`: start one tablet server."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import nyala.replica.types.quiet_grpc  # noqa: F401  before gRPC is imported
from nyala.replica.types.options import read_options

from .options import ServerOptions
from .process import main


def parse(arguments: Sequence[str]) -> ServerOptions:
    """Return the options, from the command line, the environment and a file. On an error, the process prints one line
    and ends."""
    return read_options(ServerOptions, "nyala server run", "NYALA_SERVER", arguments, about="One Nyala tablet server.")


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
