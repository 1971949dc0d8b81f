"""Keeps gRPC's own lines out of the log of this process, which imports this module before gRPC.

gRPC writes a line to stderr for each call that it refuses, so any caller could fill the disk with them. It reads the
variable when it is imported. `GRPC_VERBOSITY=error` in the environment shows the lines. The programs of users that
import the client keep gRPC's default.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
