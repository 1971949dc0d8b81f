"""The demo as typed, with few events: its verdict, when it killed, where replicas went, what it says to try next."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nyala.infra.local import read_state
from nyala.replica.client import Client, parse_masters
from tests.harness.cluster import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.deep]
EVENTS = 20_000
WAIT_S = 1500.0
NYALA = Path(sys.executable).with_name("nyala")


class Shown:
    """`nyala demo --keep` in a process of its own, and its output so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._said = folder / "said"
        ours = {k: v for k, v in os.environ.items() if k != "COLUMNS" and not k.startswith("NYALA_")}
        self._environment = ours | {k: v for k, v in os.environ.items() if k == "NYALA_CACHE"}
        command = [NYALA, "demo", "--events", str(EVENTS), "--keep", "--dir", str(self.stack)]
        with self._said.open("w") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env=self._environment
            )

    @property
    def stack(self) -> Path:
        return self.folder / "stack"

    def text(self) -> str:
        return self._said.read_text()

    def commands(self) -> list[str]:
        """Return the commands that it suggests, once it has printed all of them."""

        def all_said() -> list[str] | None:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.text()}"
            lines = self.text().partition("In another terminal try:\n")[2].splitlines()
            return lines if lines and lines[-1] == "  nyala down" else None

        return [line.strip() for line in wait_until(all_said, "the demo says what to try next", WAIT_S)]

    def typed(self, lines: list[str]) -> str:
        """Return what a shell in another folder prints for the lines, all of which succeed."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        ran = subprocess.run(
            ["bash", "-euc", "\n".join(lines)], cwd=elsewhere, env=self._environment, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{lines} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def end(self) -> None:
        """Send Ctrl-C, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    demo = Shown(tmp_path)
    yield demo
    demo.end()


def members(masters: str) -> Counter[str]:
    """Return the voting replicas of the flights by server, as the catalog has them."""
    with Client(parse_masters(masters)) as client:
        tablets = client.tablet_infos("flights")
        return Counter(m.uuid for t in tablets for m in t.config.members if m.votes)


def test_demo_of_few_events_shows_what_it_says_and_its_commands_work_as_typed(shown: Shown) -> None:
    """Goal: what the demo claims has happened. Method: 20,000 events, `--keep`; when it has said its last word, its
    numbers, the job's log, the stack's state and the catalog are held against each other; then a shell in another
    folder gets the lines that it printed, as they are, `nyala down` last."""
    *lines, down = shown.commands()
    said = shown.text()
    assert "VERDICT: the table equals the source" in said, said
    assert "WRONG" not in said and "cluster check: every replica of a tablet holds the same rows" in said, said

    way = r"with ([\d,]+) of 20,000 events in the table"
    name, *ways = re.findall(
        rf"kill -9 (server-\d), .*{way}: another.*\n(?:.*\n)*?kill -9 the streaming driver {way}", said
    )[0]
    at_leader, at_driver = (int(each.replace(",", "")) for each in ways)
    assert EVENTS // 5 <= at_leader <= at_driver < EVENTS, said
    state = read_state(shown.stack)
    assert state is not None
    children = {child["name"]: child for child in state["children"]}
    assert children[name]["last_exit"] == -signal.SIGKILL
    before, after = driver_runs(shown.stack / "logs" / "ingest.log")
    assert max(batch["records"] for batch in before + after) <= EVENTS // 8
    stored = [sum(batch["records"] for batch in each) for each in (before, after)]
    assert 0 < stored[0] <= at_driver and stored[1] >= EVENTS - at_driver, "the second run had rows to bring"

    newcomer = children["server-4"]["uuid"]
    held = members(state["masters"])
    assert sorted(held.values()) == [2, 2, 2, 3] and f"the new server holds {held[newcomer]} of 9 replicas" in said

    assert [line.split()[:3] for line in lines if line.startswith("nyala")] == [
        ["nyala", "cluster", "check"], ["nyala", "table", "scan"], ["nyala", "tablet", "list"],
        ["nyala", "source", "list"], ["nyala", "tablet", "move"],
    ]  # fmt: skip
    printed = shown.typed(lines)
    assert "all replicas of a tablet hold the same rows" in printed and "writes.flights" in printed, printed
    assert members(state["masters"]) != held, "the last of them moved a replica"
    assert "stopped" in shown.typed([lines[0], down])
    assert shown.process.wait(WAIT_S) == 0, shown.text()


def driver_runs(log: Path) -> list[list[dict[str, Any]]]:
    """Return the micro-batches that each run of the ingest job reported."""
    runs: list[list[dict[str, Any]]] = []
    for line in log.read_text().splitlines():
        with suppress(ValueError):  # what else stands in the log, and a line that the kill cut off
            event = json.loads(line)["event"]
            if event == "query_starts":
                runs.append([])
            elif event == "micro_batch":
                runs[-1].append(json.loads(line))
    return runs
