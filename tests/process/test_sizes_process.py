"""A real server derives its sizes from what its process may use."""

from __future__ import annotations

import sys

import pytest

from tests.harness.cluster import SERVER, ServerProcess, local_cluster

pytestmark = pytest.mark.process

ON_ONE_PROCESSOR = (
    sys.executable,
    "-c",
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execv(sys.argv[1], sys.argv[1:])",
)


def test_server_on_one_processor_has_half_the_threads_and_says_so() -> None:
    """Goal: a server that may use less than the measured machine takes less, keeps what an operator gives it, and logs
    both. Method: a server that is bound to one processor, with a soft limit of more memory than any machine has."""
    with local_cluster() as cluster:
        server = ServerProcess("ts1", SERVER, cluster.folder / "ts1", ("--memory-soft-bytes", str(1 << 60)))
        server.prefix, server.address = ON_ONE_PROCESSOR, cluster.ports.free_address()
        cluster.servers.append(server)
        server.start()
        log = server.log_path.read_text()
        assert f"P {server.uuid} may use 1 processors (the processors of this process) and " in log
        assert "heavy_threads 3 (derived), scan_threads 2 (derived), open_threads 2 (derived)" in log
        assert f"memory_soft_bytes {1 << 60} (given)" in log and "the kernel would end it" in log
        assert server.stop() == 0
