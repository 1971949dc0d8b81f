"""The probes of real servers and masters: live from the beginning, ready when they can serve."""

from __future__ import annotations

import json
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nyala.replica.rpc import pb
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.patience import patience_s

pytestmark = pytest.mark.process


class Probed:
    """A process with a page, asked as by a probe."""

    def __init__(self, cluster: LocalCluster) -> None:
        _, _, self.port = cluster.ports.free_address().rpartition(":")
        self.option = f"--metrics-port={self.port}"

    def ask(self, path: str) -> tuple[int, str]:
        """Return (status, body); (0, "") if nothing listens."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=patience_s(30)) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as answer:
            return answer.code, answer.read().decode()
        except URLError:
            return 0, ""

    def is_ready(self) -> bool:
        return self.ask("/readyz")[0] == 200


def check(process: ServerProcess, service: str = "") -> str:
    """Return the status by gRPC."""
    stub = health_pb2_grpc.HealthStub(process.channel)
    status = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=patience_s(30)).status
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


def test_server_is_ready_once_registered_and_stays_so_without_its_master() -> None:
    """Goal: traffic comes to a server that can serve, and the loss of the masters takes no server away from its
    clients; the process lives all the time. Method: a server before its master runs, with it, after the master was
    killed, and while it quiesces; the page and gRPC say the same."""
    with local_cluster() as cluster:
        page, masters_page = Probed(cluster), Probed(cluster)
        master = cluster.add_master(masters_page.option, start=False)
        server = cluster.add_server(page.option)
        assert page.ask("/healthz") == (200, "ok\n")
        status, text = page.ask("/readyz")
        assert status == 503 and "no leading master has registered this server yet" in text
        assert (check(server), check(server, "live")) == ("NOT_SERVING", "SERVING")
        master.start()
        wait_until(masters_page.is_ready, "the master is ready")
        wait_until(page.is_ready, "the server is ready")
        assert check(server) == check(server, "nyala.v1.TabletService") == "SERVING"
        assert check(master) == check(master, "nyala.v1.MasterService") == "SERVING"
        master.kill()
        wait_until(lambda: "does not answer" in server.log_path.read_text(), "the server misses its master")
        assert page.is_ready() and check(server) == "SERVING"
        assert not server.tablets.Quiesce(pb.QuiesceRequest(dest_uuid=server.uuid, quiesce=True)).error.code
        status, text = page.ask("/readyz?json")
        assert status == 503 and json.loads(text)["reasons"] == ["the server quiesces: its process is about to end"]
        assert check(server) == "NOT_SERVING" and page.ask("/healthz")[0] == 200


def test_master_lives_before_its_group_is_whole_and_is_ready_with_it() -> None:
    """Goal: a service manager does not kill a master that waits for the others, and knows when it can serve. Method:
    one of three masters of a new group alone, then all."""
    with local_cluster() as cluster:
        addresses = [cluster.ports.free_address() for _ in range(3)]
        pages = [Probed(cluster) for _ in addresses]
        for address, page in zip(addresses, pages, strict=True):
            made = cluster.add_master(page.option, f"--peers={','.join(addresses)}", start=False)
            made.address = address
        first, *others = cluster.masters
        first.start(wait=False)
        wait_until(lambda: pages[0].ask("/healthz") == (200, "ok\n"), "the first master lives")
        status, text = pages[0].ask("/readyz")
        assert status == 503 and "no catalog yet" in text
        wait_until(lambda: check(first, "live") == "SERVING", "its port answers")
        assert check(first) == "NOT_SERVING"
        for other in others:
            other.start(wait=False)
        wait_until(lambda: all(page.is_ready() for page in pages), "all are ready")
