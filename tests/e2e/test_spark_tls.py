"""Spark and a cluster with TLS: the jobs and the data source take the directory of a certificate as an option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import nyala
from nyala.pipeline import (
    DecisionsOptions,
    DecisionsProgress,
    DecisionsQuery,
    IngestOptions,
    IngestQuery,
    RowPublisher,
    read_checksums,
)
from nyala.replica.client import SourceFormat
from nyala.replica.rows import PartitionSpec
from tests.harness.certificates import directory_for
from tests.harness.cluster import LocalCluster, local_cluster, wait_until
from tests.harness.documents import ROOT, blocks
from tests.harness.road import RESTARTS, SCHEMA, Road, RunningQuery, row

pytestmark = [pytest.mark.e2e, pytest.mark.deep]
TABLE = "tls_rows"


@pytest.fixture
def cluster(road: Road) -> Iterator[LocalCluster]:
    """A master, which publishes its decisions, and two servers, all with TLS."""
    with local_cluster() as made:
        tls = str(directory_for("master", "d" * 32))
        made.add_master("--tls", tls, f"--kafka={road.kafka}", "--topic-prefix=tls.", "--policy-ms", "200")
        for letter in "ab":
            made.add_server("--tls", str(directory_for("server", letter * 32)))
        yield made


def test_jobs_and_data_source_take_a_certificate_as_an_option(
    road: Road, cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: ingest, decisions, verify, reads and writes of Spark reach a cluster with TLS by an option alone, on the
    driver and in the tasks; the decisions need an operator's certificate; no key is shown. Method: the page's block,
    and more; NYALA_TLS is not set. Rows of a topic are ingested, read, written and compared with a client's
    certificate; a move is not carried out with it, and is with an operator's. A directory that is not there is named.
    """
    monkeypatch.delenv("NYALA_TLS", raising=False)
    masters, tls = cluster.masters[0].address, {r: str(directory_for(r, "ops")) for r in ("client", "operator")}
    road.make_topic("writes.tls")
    with nyala.connect(masters, tls=tls["operator"]) as connected:
        client = connected.client
        wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 2, "two servers are alive")
        source = SourceFormat("writes.tls")
        client.create_table(TABLE, SCHEMA, PartitionSpec(("k",), 2), replication_factor=1, source=source)
        with RowPublisher(road.kafka, "writes.tls", SCHEMA) as publisher:
            for k in range(200):
                publisher.publish(row(k))
        common: dict[str, Any] = {"masters": masters, "bootstrap": road.kafka, "available_now": True}
        ingest = IngestOptions(
            table=TABLE, checkpoint=str(road.folder / "checkpoint-tls"), tls=tls["client"], owner_wait_s=0.0, **common
        )
        IngestQuery(road.spark, ingest).run()
        assert connected.table(TABLE).scan().count() == 200

        named = {"masters": masters, "table": TABLE, "tls": tls["client"]}
        [page] = [block.text for block in blocks(ROOT / "docs/operate/security.md") if block.kind == "python"]
        for shown, here in (("readings", TABLE), ("/etc/nyala/anna", tls["client"])):
            page = page.replace(f'"{shown}"', f'"{here}"')
        read = eval(page, {"spark": road.spark, "masters": masters})
        assert read.count() == 200
        more = road.spark.createDataFrame([(k, "more", 1, k) for k in range(200, 250)], read.schema)
        more.write.format("nyala").options(**named).mode("append").save()
        assert read.where("k >= 190").count() == 60
        for wrong, told in (("", "takes connections with TLS only"), ("/nowhere", "/nowhere")):
            with pytest.raises(Exception, match=told):
                road.spark.read.format("nyala").options(**named | {"tls": wrong}).load()

        table = client.get_table(TABLE)
        at = client.snapshot_time(table)
        [moving, _] = [tablet.tablet_id for tablet in table.tablets]

        def homes() -> list[str]:
            info = next(tablet for tablet in client.tablet_infos(TABLE) if tablet.tablet_id == moving)
            return [str(member.uuid) for member in info.config.members]

        servers = {server.uuid: server for server in client.list_servers().servers}
        [before] = homes()
        [(_, _, found, error)] = read_checksums(
            road.spark, masters, [(servers[before], moving, 60.0)], at, tls["client"]
        )
        assert found is not None and found.rows and not error

        target = next(uuid for uuid in servers if uuid != before)
        client.move_replica(moving, before, target)
        told_so: list[DecisionsProgress] = []

        def deciding(role: str) -> DecisionsQuery:
            checkpoint = str(road.folder / f"checkpoint-tls-{role}")
            common["available_now"] = role == "client"
            options = DecisionsOptions(checkpoint=checkpoint, topic_prefix="tls.", tls=tls[role], **common)
            return DecisionsQuery(road.spark, options, told_so.append)

        def refused() -> bool:
            deciding("client").run()
            return any("NOT_AUTHORIZED" in example for each in told_so for example in each.examples)

        wait_until(refused, "a decision has come, and was refused to a client")
        assert homes() == [before]
        running = RunningQuery("decisions", lambda: deciding("operator"), RESTARTS)
        try:
            wait_until(lambda: homes() == [target], "the replica has moved")
        finally:
            running.stop()
        assert read.count() == 250
    printed = "".join(capfd.readouterr())
    for role in tls:
        assert (directory_for(role, "ops") / "key.pem").read_text().splitlines()[1] not in printed
