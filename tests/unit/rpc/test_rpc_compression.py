"""Compressed messages of gRPC, in both directions."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from nyala.replica.rpc import CHANNEL_OPTIONS, COPY_CHANNEL_OPTIONS, ONCE_CHANNEL_OPTIONS, pb, pb_grpc
from nyala.replica.rpc.connections import async_channel_to
from tests.harness.hostile_fields import Served
from tests.harness.patience import patience_s

LONG_S = patience_s(60.0)
ALGORITHMS = (grpc.Compression.Gzip, grpc.Compression.Deflate)
CHANNELS = {"channel": CHANNEL_OPTIONS, "once": ONCE_CHANNEL_OPTIONS, "copy": COPY_CHANNEL_OPTIONS}


class Answering(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Answers with a text that compresses well, and counts."""

    answered = 0

    async def ListTablets(self, request: Any, context: Any) -> Any:
        self.answered += 1
        return pb.ListTabletsReply(next="x" * 100_000)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_server_refuses_a_compressed_request_and_takes_others_beside_it(algorithm: grpc.Compression) -> None:
    """IN-60. Goal: a server expands no request, so the bytes that it measures are those that came. Method: a caller of
    each algorithm of gRPC is refused before the handler runs; a caller that does not compress is answered, with options
    of ours and with those of gRPC, as any other build has them."""

    async def scenario() -> None:
        servicer, request = Answering(), pb.ListTabletsRequest(tablet_ids=["t"] * 1000)
        async with Served({"TabletService": servicer}) as served:
            async with grpc.aio.insecure_channel(served.address, compression=algorithm) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await pb_grpc.TabletServiceStub(channel).ListTablets(request, timeout=LONG_S)
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED and not servicer.answered
            async with grpc.aio.insecure_channel(served.address) as channel:
                assert (await pb_grpc.TabletServiceStub(channel).ListTablets(request, timeout=LONG_S)).next
            assert (await served.call("TabletService", "ListTablets", request)).next and servicer.answered == 2

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


@pytest.mark.parametrize("options", CHANNELS)
@pytest.mark.parametrize("algorithm", (None, *ALGORITHMS), ids=lambda a: a and a.name)
def test_caller_refuses_a_compressed_reply(algorithm: grpc.Compression | None, options: str) -> None:
    """IN-60. Goal: clients, masters and servers expand no reply. Method: a server that compresses its replies, in spite
    of what callers accept, is called over a channel of every kind that we make: each call fails, or has the compressed
    bytes as its reply (gRPC does the one or the other, as it happens). Without compression it is answered."""

    async def scenario() -> None:
        server, long = grpc.aio.server(compression=algorithm), 100_000
        pb_grpc.add_TabletServiceServicer_to_server(Answering(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with async_channel_to(f"127.0.0.1:{port}", CHANNELS[options]) as channel:
                call = channel.unary_unary("/nyala.v1.TabletService/ListTablets")
                for _ in range(20):
                    try:
                        size = len(await call(b"", timeout=LONG_S))
                    except grpc.aio.AioRpcError as error:
                        assert "ompression algorithm" in str(error.details())
                        size = 0
                    assert (size < long / 10) if algorithm else (size > long)
        finally:
            await server.stop(None)

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))
