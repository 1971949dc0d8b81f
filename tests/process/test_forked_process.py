"""The processes that tests start servers with: one forked from a template ends as one of its own does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.cluster import PATIENCE_S, wait_until
from tests.harness.forked import TemplateLink, fork
from tests.harness.processes import is_gone

pytestmark = pytest.mark.process

LASTING = ("http.server", ["--bind", "127.0.0.1", "0"])


def test_forked_process_has_its_arguments_its_log_and_the_end_of_a_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    told = fork("platform", ["terse"], os.environ, log)
    assert told.wait(PATIENCE_S) == 0
    assert log.read_text().startswith("Linux-")
    refused = fork("json.tool", [str(tmp_path / "missing")], os.environ, log)
    assert refused.wait(PATIENCE_S) != 0
    assert "missing" in log.read_text()
    lasting = fork(*LASTING, {**os.environ, "NYALA_LOG_LEVEL": "DEBUG"}, log)
    assert b"NYALA_LOG_LEVEL=DEBUG" not in Path(f"/proc/{os.getpid()}/environ").read_bytes()
    assert lasting.poll() is None
    lasting.kill()
    assert lasting.wait(PATIENCE_S) == -9
    lasting.kill()  # nobody's number any more
    assert lasting.poll() == -9


def test_forked_processes_end_with_the_link_to_their_template(tmp_path: Path) -> None:
    link = TemplateLink()
    request = {"module": LASTING[0], "arguments": LASTING[1], "environment": dict(os.environ)}
    processes = [link.start({**request, "log": str(tmp_path / str(n))}) for n in range(2)]
    link.close()
    for process in processes:
        wait_until(lambda pid=process.pid: is_gone(pid), "it is gone")  # type: ignore[misc]


def test_environment_that_comes_too_late_for_a_fork_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="too late for a fork"):
        fork(*LASTING, {**os.environ, "PYTHONHASHSEED": "7"}, tmp_path / "log")
