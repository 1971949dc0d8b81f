"""The probes of real servers and masters: live from the beginning, ready when they can serve."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nyala.replica.rpc import pb
from tests.harness.certificates import CLUSTER, directory_for
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.patience import patience_s

pytestmark = pytest.mark.process


def asked(address: str, path: str) -> tuple[int, str]:
    """Return (status, body) of a page; (0, "") if nothing listens."""
    try:
        with urlopen(f"http://{address}{path}", timeout=patience_s(30)) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as answer:
        return answer.code, answer.read().decode()
    except URLError:
        return 0, ""


class Probed:
    """A process with a page, asked as by a probe."""

    def __init__(self, cluster: LocalCluster) -> None:
        _, _, self.port = cluster.ports.free_address().rpartition(":")
        self.option = f"--metrics-port={self.port}"

    def ask(self, path: str) -> tuple[int, str]:
        """Return (status, body); (0, "") if nothing listens."""
        return asked(f"127.0.0.1:{self.port}", path)

    def is_ready(self) -> bool:
        return self.ask("/readyz")[0] == 200


def check(process: ServerProcess, service: str = "") -> str:
    """Return the status by gRPC."""
    return status_at(process.channel, service)


def status_at(channel: grpc.Channel, service: str = "") -> str:
    """Return the status by gRPC; grpc.RpcError if the channel brings no answer."""
    stub = health_pb2_grpc.HealthStub(channel)
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


def by_certificate(process: ServerProcess, directory: Path) -> grpc.Channel:
    """A channel of any gRPC client, with the PEM files of a directory of credentials and the name of the page."""
    ca, key, certificate = ((directory / name).read_bytes() for name in ("ca.pem", "key.pem", "certificate.pem"))
    options = [("grpc.ssl_target_name_override", f"member.{CLUSTER}.nyala")]
    return grpc.secure_channel(process.address, grpc.ssl_channel_credentials(ca, key, certificate), options)


def test_probes_of_a_cluster_with_tls() -> None:
    """Goal: with TLS, the page answers without it, and gRPC's service answers standard clients that hold a certificate
    of the cluster, and nobody else. Method: a master and a server with TLS; a certificate for a client, one of another
    CA, and none."""
    with local_cluster() as cluster:
        pages = Probed(cluster), Probed(cluster)
        processes = (
            cluster.add_master("--tls", str(directory_for("master", "d" * 32)), pages[0].option),
            cluster.add_server("--tls", str(directory_for("server", "a" * 32)), pages[1].option),
        )
        for process, page in zip(processes, pages, strict=True):
            wait_until(page.is_ready, "it is ready")
            assert page.ask("/healthz") == (200, "ok\n") and "nyala_" in page.ask("/metrics")[1]
            with by_certificate(process, directory_for("client", "probe")) as channel:
                assert status_at(channel) == status_at(channel, "live") == "SERVING"
            with by_certificate(process, directory_for("client", "probe", "other-ca")) as channel:
                with pytest.raises(grpc.RpcError) as refused:
                    status_at(channel)
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            with grpc.insecure_channel(process.address) as channel:
                with pytest.raises(grpc.RpcError) as refused:
                    status_at(channel)
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


PAGE = re.compile(r"metrics and health at (\S+) port (\d+)")


@pytest.mark.parametrize(
    ("host", "answers", "silent"),
    [
        ("::1", "[::1]", "127.0.0.1"),
        ("[::1]", "[::1]", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.3", "[::1]"),
    ],
)
def test_page_is_at_the_address_that_is_asked_for(host: str, answers: str, silent: str) -> None:
    """Goal: a probe reaches the page at the address of `--metrics-host`, of IPv6 too, and no other address shows it.
    Method: a server on `::1` with a free port; the page, gRPC's service, and an address that must be silent."""
    with local_cluster() as cluster:
        server = cluster.add_server(f"--metrics-host={host}", "--metrics-port=0", start=False)
        server.host, server.address = "[::1]", ""
        server.start()
        found = PAGE.search(server.log_path.read_text())
        assert found and found[1] == host
        assert asked(f"{answers}:{found[2]}", "/healthz") == (200, "ok\n")
        wait_until(lambda: asked(f"{answers}:{found[2]}", "/readyz") == (200, "ok\n"), "it is ready")
        assert "nyala_server_" in asked(f"{answers}:{found[2]}", "/metrics")[1]
        assert asked(f"{silent}:{found[2]}", "/healthz") == (0, "")
        assert server.address.startswith("[::1]:") and check(server) == check(server, "live") == "SERVING"


def test_page_at_an_address_of_another_machine_starts_nothing() -> None:
    """Goal: a wrong `--metrics-host` is one line that says what to write. Method: an address of documentation, which no
    machine has, and a name that no resolver knows."""
    with local_cluster() as cluster:
        for host in ("192.0.2.1", "2001:db8::1", "no-such-host.invalid"):
            server = cluster.add_server(f"--metrics-host={host}", "--metrics-port=0", start=False)
            said = server.fails()
            assert "another address of this machine by --metrics-host" in said and host in said
