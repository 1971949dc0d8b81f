"""Regenerate the gRPC stubs in replica/rpc from nyala.proto: `python schemas/generate.py`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
PACKAGE = "nyala/replica/rpc"


def main() -> int:
    """Write nyala_pb2.py, nyala_pb2.pyi and nyala_pb2_grpc.py; returns protoc's exit status."""
    with tempfile.TemporaryDirectory() as tree:
        source = Path(tree) / PACKAGE
        source.mkdir(parents=True)
        shutil.copy(HERE / "nyala.proto", source / "nyala.proto")
        flags = [f"--{kind}={tree}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
        status = protoc.main(["protoc", f"-I{tree}", *flags, f"{PACKAGE}/nyala.proto"])
        for made in sorted(source.glob("nyala_pb2*")):
            shutil.copy(made, HERE.parent / "replica" / "rpc" / made.name)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
