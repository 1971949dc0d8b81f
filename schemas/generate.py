"""Regenerate the gRPC stubs in replica/rpc from nyala.proto: `python schemas/generate.py`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto
from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
PACKAGE = "nyala/replica/rpc"
_HEAD = """from collections.abc import AsyncIterator as _AsyncIterator, Awaitable as _Awaitable
from typing import Any as _Any

from grpc import aio as _aio

from . import nyala_pb2 as _pb
"""


def main() -> int:
    """Write nyala_pb2.py and nyala_pb2_grpc.py, each with its .pyi; returns protoc's exit status."""
    with tempfile.TemporaryDirectory() as tree:
        source = Path(tree) / PACKAGE
        source.mkdir(parents=True)
        shutil.copy(HERE / "nyala.proto", source / "nyala.proto")
        flags = [f"--{kind}={tree}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
        described = Path(tree) / "described"
        flags.append(f"--descriptor_set_out={described}")
        status = protoc.main(["protoc", f"-I{tree}", *flags, f"{PACKAGE}/nyala.proto"])
        if status == 0:
            (file,) = FileDescriptorSet.FromString(described.read_bytes()).file
            (source / "nyala_pb2_grpc.pyi").write_text(_HEAD + "".join(map(_stubs, file.service)))
        for made in sorted(source.glob("nyala_pb2*")):
            shutil.copy(made, HERE.parent / "replica" / "rpc" / made.name)
    return int(status)


def _stubs(service: ServiceDescriptorProto) -> str:
    """Return the types of one service, which protoc leaves out. A stub serves both kinds of channel: its calls are not
    typed."""
    lines = [f"class {service.name}Stub:", "    def __init__(self, channel: _Any) -> None: ..."]
    lines += [f"    {method.name}: _Any" for method in service.method]
    lines += ["", f"class {service.name}Servicer:", *map(_handler, service.method), ""]
    added = f"servicer: {service.name}Servicer, server: _aio.Server"
    lines.append(f"def add_{service.name}Servicer_to_server({added}) -> None: ...")
    return "\n" + "\n".join(lines) + "\n"


def _handler(method: MethodDescriptorProto) -> str:
    request, reply = (f"_pb.{name.rpartition('.')[2]}" for name in (method.input_type, method.output_type))
    context = "_aio.ServicerContext[_Any, _Any]"
    answer = f"{'_AsyncIterator' if method.server_streaming else '_Awaitable'}[{reply}]"
    return f"    def {method.name}(self, request: {request}, context: {context}, /) -> {answer}: ..."


if __name__ == "__main__":
    sys.exit(main())
