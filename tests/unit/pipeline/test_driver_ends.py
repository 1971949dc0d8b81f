"""A driver's end: once, in order, with its parent, within a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.cluster import wait_until
from tests.harness.processes import is_gone, kill

DRIVER = """
import os, signal, sys, threading
from pathlib import Path
from nyala.pipeline.driver import end_in_order
end_in_order(within_s=float(sys.argv[2]))
said = Path(sys.argv[1])
try:
    said.write_text(str(os.getpid()))
    threading.Event().wait(900)
finally:
    os.kill(os.getpid(), signal.SIGTERM)
    said.with_suffix(".released").touch()
    if sys.argv[3] == "hang":
        threading.Event().wait(900)
"""
CUT = """
import os, signal, sys
from pathlib import Path
from nyala.pipeline.driver import end_in_order, run_uninterrupted
end_in_order(within_s=900)
begun = []
def release():
    begun.append(True)
    os.kill(os.getpid(), signal.SIGTERM)
    Path(sys.argv[1]).write_text(str(len(begun)))
try:
    raise SystemExit(7)
finally:
    run_uninterrupted(release)
"""
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]).wait()"


def started(said: Path) -> int:
    """Pid of the driver, once it waits."""
    return wait_until(lambda: int(said.read_text() or 0) if said.exists() else 0, "the driver has started")


def test_driver_ends_in_order_once_however_often_it_is_told(tmp_path: Path) -> None:
    """Goal: a driver gives its leases back on SIGTERM, even though its JVM dies too. Method: SIGTERM, twice."""
    said = tmp_path / "said"
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(said), "900", "end"])
    started(said)
    process.terminate()
    assert process.wait(90) == 0
    assert said.with_suffix(".released").exists()


def test_driver_that_is_told_while_it_gives_back_gives_back(tmp_path: Path) -> None:
    """Goal: a driver whose JVM died gives its leases back, even if SIGTERM arrives meanwhile. Method: SIGTERM in the
    midst of it, and once more when it is done again."""
    said = tmp_path / "said"
    assert subprocess.run([sys.executable, "-c", CUT, str(said)], timeout=120, check=False).returncode == 0
    assert said.read_text() == "2"


def test_driver_that_cannot_end_is_cut_off(tmp_path: Path) -> None:
    """Goal: the time for a stop is bounded. Method: a driver that waits for minutes on its way out."""
    said = tmp_path / "said"
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(said), "1", "hang"], stderr=subprocess.PIPE, text=True
    )
    started(said)
    process.terminate()
    assert "did not end within 1 s" in process.communicate(timeout=120)[1]
    assert process.returncode == 1 and said.with_suffix(".released").exists()


@pytest.mark.parametrize("spark", [True, False])
def test_driver_ends_with_its_jvm_and_with_no_other_parent(tmp_path: Path, *, spark: bool) -> None:
    """Goal: a driver ends when its JVM dies, and not when the shell that started it does. Method: kill -9 the
    parent."""
    said = tmp_path / "said"
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_GATEWAY_PORT"}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, DRIVER, str(said), "900", "end"],
        env=environment | ({"PYSPARK_GATEWAY_PORT": "1"} if spark else {}),
    )
    driver = started(said)
    parent.kill()
    parent.wait()
    if not spark:
        assert not is_gone(driver) and not said.with_suffix(".released").exists()
        os.kill(driver, signal.SIGTERM)
    try:
        wait_until(lambda: is_gone(driver), "the driver has ended")
        assert said.with_suffix(".released").exists()
    finally:
        if not is_gone(driver):
            kill(driver)
