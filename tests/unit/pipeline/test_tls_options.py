"""The option `tls` of jobs and of the data source: whose certificate a client shows, and what Spark carries along."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from types import SimpleNamespace
from typing import Any

import pytest

from nyala.jobs import decisions as decisions_job
from nyala.jobs import ingest as ingest_job
from nyala.jobs import verify as verify_job
from nyala.pipeline import DecisionsOptions, IngestOptions, worker
from nyala.pipeline.arguments import options_of, parsed
from nyala.pipeline.errors import TaskFailed, of_spark
from nyala.pipeline.source.reader import ReadOptions
from nyala.pipeline.source.writer import WriteOptions
from nyala.replica.client import Client, shared_client
from nyala.replica.rpc import Named, caller_of, listen_on, new_server, pb, pb_grpc
from tests.harness.certificates import CLUSTER, credentials_for, directory_for, speaking_as
from tests.harness.patience import patience_s

ANNA, OPS = str(directory_for("client", "anna")), str(directory_for("operator", "ops"))


class Master(pb_grpc.MasterServiceServicer):  # type: ignore[misc]
    """Notes whose certificate each call of `check_masters` shows."""

    def __init__(self) -> None:
        self.callers: list[Named | None] = []

    async def ListTables(self, request: Any, context: Any) -> Any:
        self.callers.append(caller_of(context))
        return pb.ListTablesReply()

    async def Status(self, request: Any, context: Any) -> Any:
        return pb.MasterStatusReply()


def callers_of(*made: Callable[[str], Client]) -> list[Named | None]:
    """The holders of the certificates that the clients show; each function makes one of a master's address."""

    async def scenario() -> list[Named | None]:
        master = Master()
        with speaking_as(credentials_for("master", "d" * 32)):
            server = new_server()
            pb_grpc.add_MasterServiceServicer_to_server(master, server)  # type: ignore[no-untyped-call]
            address = f"127.0.0.1:{listen_on(server, '127.0.0.1:0')}"
            await server.start()
        try:
            for make in made:
                await asyncio.to_thread(lambda made_by: made_by(address).check_masters(), make)
        finally:
            await server.stop(0)
        return master.callers

    with speaking_as(credentials_for("client", "environment")):
        return asyncio.run(asyncio.wait_for(scenario(), patience_s(60)))


def test_client_shows_the_certificate_that_the_option_names() -> None:
    """Goal: two jobs, or two DataFrames, in one process reach a cluster with certificates of their own; without the
    option it is that of the process. Method: the clients that tasks and the data source use, each for two directories
    and for none."""
    anna, ops = Named(CLUSTER, "client", "anna"), Named(CLUSTER, "operator", "ops")
    own = Named(CLUSTER, "client", "environment")
    shown = callers_of(
        lambda address: worker.client_for(address, tls=ANNA),
        lambda address: worker.client_for(address, tls=OPS),
        worker.client_for,
        lambda address: shared_client(address, ANNA),
        lambda address: shared_client(address, OPS),
        shared_client,
    )
    assert shown == [anna, ops, own, anna, ops, own]


def test_directory_that_an_executor_lacks_is_named_with_its_host(tmp_path: Path) -> None:
    """Goal: an operator learns on which machine the files are missing, and the query goes on when they are there: a
    directory may just be replaced. Method: a task's client with a directory that is not there."""
    with pytest.raises(TaskFailed) as failed:
        worker.client_for("h:1", tls=str(tmp_path / "absent"))
    text = str(failed.value)
    assert gethostname() in text and "absent" in text and "same directory there as on the driver" in text
    assert type(of_spark(Exception(text))).__name__ == "QueryInterrupted"


def test_options_carry_the_directory_and_nothing_of_its_files() -> None:
    """Goal: each job and the data source take the option, and what Spark sends to executors has the path alone. Method:
    command lines, and options of reads and writes; no part of the key is in what is pickled."""
    line = ["--masters", "m:1", "--kafka", "k:1", "--checkpoint", "c", "--tls", OPS]
    ingest = options_of(IngestOptions, parsed(ingest_job.options_parser(), [*line, "--table", "t"]))
    given = parsed(decisions_job.options_parser(), line)
    beside = ingest_job.decisions_options(SimpleNamespace(decisions_checkpoint="d", topic_prefix=""), ingest)  # type: ignore[arg-type]
    decisions = options_of(DecisionsOptions, given)
    verify = parsed(verify_job.options_parser(), ["--masters", "m:1", "--tls", OPS])
    options = {"masters": "m:1", "table": "t", "tls": OPS}
    read, write = ReadOptions.of(options), WriteOptions.of(options)
    assert {each.tls for each in (ingest, decisions, beside, verify, read, write)} == {OPS}
    assert IngestOptions(table="t", masters="m:1", bootstrap="k:1", checkpoint="c").tls == ""

    sent = pickle.dumps((ingest, decisions, read, write))
    key = (Path(OPS) / "key.pem").read_bytes().splitlines()[1]
    assert sent.count(OPS.encode()) >= 1 and key not in sent
