"""The shipped units of systemd, and the files of options that they name."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nyala.replica.decision_executor.executor import CLOSE_WITHIN_S
from nyala.replica.master import MasterOptions
from nyala.replica.master.process import REMOVED_EXIT_CODE
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.process import HAND_OVER_S, STOP_S
from nyala.replica.types.options import read_file
from tests.harness.cluster import PATIENCE_S, wait_until
from tests.harness.documents import ROOT
from tests.harness.unit_files import settings_of

pytestmark = pytest.mark.process

CONFIG, SYSTEMD = ROOT / "infra" / "deploy" / "config", ROOT / "infra" / "deploy" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
PROGRAM = "/opt/nyala/bin/nyala"
HERE = Path(sys.executable).with_name("nyala")
KAFKA_CLOSE_S = 30.0
"""Three threads of a master's Kafka link, of which each may take 10 s."""
OPTIONS = {"server": ServerOptions, "master": MasterOptions}
HARDENED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces": "yes",
    "User": "nyala",
    "UMask": "0077",
}


def one_of(unit: Path) -> dict[str, str]:
    """The last value of each setting of a unit."""
    return {key: values[-1] for key, values in settings_of(unit).items()}


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text[:-1])


def test_units_are_units_of_systemd(tmp_path: Path) -> None:
    """Goal: systemd takes each unit as it stands. Method: `systemd-analyze verify`, which names keys and values that it
    does not know, where it is installed; the program is this environment's. A misspelt key is named."""
    assert [unit.name for unit in UNITS] == ["nyala-ingest@.service", "nyala-master.service", "nyala-server.service"]
    analyze = shutil.which("systemd-analyze")
    for unit in UNITS:
        lines = [line for line in unit.read_text().splitlines() if line and not line.startswith(("#", "["))]
        assert all(line.partition("=")[0].isalpha() for line in lines), "each line is a setting"
        assert HARDENED.items() <= one_of(unit).items()
        if analyze:
            copy = tmp_path / unit.name
            copy.write_text(unit.read_text().replace(PROGRAM, str(HERE)))
            assert verified(analyze, copy) == ""
            copy.write_text(copy.read_text().replace("Restart=", "Restat="))
            assert "Restat" in verified(analyze, copy)


def verified(analyze: str, unit: Path) -> str:
    """The complaints about a unit."""
    ended = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    return "".join(line for line in ended.stderr.splitlines() if unit.name.partition("@")[0] in line)


def test_unit_gives_its_process_more_time_to_end_than_it_takes() -> None:
    """Goal: systemd kills no process that ends in order, and starts no process again that must not run. Method: the
    bounds of the steps in which a server and a master end, added; statuses after which a restart is of no use."""
    server, master = (one_of(SYSTEMD / f"nyala-{name}.service") for name in ("server", "master"))
    assert seconds(server["TimeoutStopSec"]) > HAND_OVER_S + 2 * STOP_S + 5
    assert seconds(master["TimeoutStopSec"]) > KAFKA_CLOSE_S + CLOSE_WITHIN_S + 5
    assert server["RestartPreventExitStatus"].split() == ["2"]
    assert master["RestartPreventExitStatus"].split() == ["2", str(REMOVED_EXIT_CODE)]


@pytest.mark.parametrize("name", ["server", "master"])
def test_command_of_a_unit_starts_its_process_with_the_file_of_options_and_ends_it_in_order(
    name: str, tmp_path: Path
) -> None:
    """Goal: the unit's command takes the file that is shipped, and its process, not a child of it, gets the signal that
    ends it. Method: the words of ExecStart with this environment's program, and the file of which only what belongs to
    a machine is changed: directories, addresses, ports; the process is ready, has that id, and ends with status 0."""
    unit = one_of(SYSTEMD / f"nyala-{name}.service")
    words = shlex.split(unit["ExecStart"])
    assert words == [PROGRAM, name, "run", "--config", f"/etc/nyala/{name}.toml"]
    shipped = read_file(OPTIONS[name], str(CONFIG / f"{name}.toml"))
    assert shipped["root"] == f"/var/lib/{unit['StateDirectory']}", "the unit makes the directory"
    assert shipped["tls"] == f"/etc/nyala/tls/{name}"
    assert f'log_file = "/var/log/{unit["LogsDirectory"]}/{name}.log"' in (CONFIG / f"{name}.toml").read_text()
    lines = (CONFIG / f"{name}.toml").read_text().splitlines()
    kept = [line for line in lines if line.partition(" = ")[0] not in ("listen", "advertise", "tls", "peers", "kafka")]
    text = "\n".join(kept).replace("/var/lib", str(tmp_path)).replace(f"port = {shipped['peer_port']}", "port = 0")
    file = tmp_path / f"{name}.toml"
    file.write_text(text.replace(f"port = {shipped['metrics_port']}", "port = 0"))
    ready = tmp_path / "ready"
    (tmp_path / "nyala" / name).mkdir(parents=True)
    with (tmp_path / "log").open("wb") as log:
        command = [str(HERE), *words[1:-1], str(file), "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, "it is ready, or has ended")
        assert process.poll() is None and f'"pid": {process.pid}' in ready.read_text(), (tmp_path / "log").read_text()
        process.send_signal(getattr(signal, unit["KillSignal"]))
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
