"""Measures outages of the catalog: a master restarts, one becomes three, the leader of three is killed, and
replaced."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path

from nyala.infra.local import Supervisor
from nyala.infra.local.children import python_module
from nyala.replica import tools
from nyala.replica.client import Client, ScanSpec, parse_masters
from nyala.replica.types import Code, Refused, ReplicaError

from . import work
from .failover import RowWriter
from .options import BenchmarkError
from .report import Figures
from .sides import check_count, fresh_table
from .target import local_stack, own_target

FORMER = "master-1"
CALM_CHANGES = 5
"""The tables made before each operation and after it."""
PAUSE_S = 0.02
"""The pause between two tables."""
WAIT_S = 120.0
COMMAND_WAIT_S = 60.0


def longest_pause(acknowledged: Sequence[float], since: float) -> float:
    """The longest pause in seconds between two of these times, in order, that ended after `since`; 0 without one."""
    return max((b - a for a, b in pairwise(acknowledged) if b > since), default=0.0)


class TableMaker(threading.Thread):
    """Makes and drops table after table, and notes when each existed: that needs a leading master."""

    def __init__(self, masters: str, prefix: str) -> None:
        super().__init__(name="table-maker", daemon=True)
        self._masters, self._prefix = masters, prefix
        self._ended = threading.Event()
        self.acknowledged: list[float] = []

    def run(self) -> None:
        """Work until `stop`. A refused call is repeated; if it turns out to have been done, it counts as done."""
        with Client(parse_masters(self._masters)) as client:
            for number in count():
                name = f"{self._prefix}_{number}"
                if not self._done(lambda name=name: work.new_table(client, name, 1), Code.ALREADY_EXISTS):  # type: ignore[misc]
                    return
                self.acknowledged.append(time.monotonic())
                if not self._done(lambda name=name: client.drop_table(name), Code.NOT_FOUND):  # type: ignore[misc]
                    return

    def _done(self, ask: Callable[[], object], already: Code) -> bool:
        """Repeat a call until it is done; returns whether that was before `stop`."""
        while not self._ended.wait(PAUSE_S):
            try:
                ask()
                return True
            except Refused as error:
                if error.code is already:
                    return True
            except ReplicaError:
                continue
        return False

    def wait_for(self, more: int) -> None:
        """Return when it has made that many more tables; BenchmarkError if that takes too long."""
        wanted, deadline = len(self.acknowledged) + more, time.monotonic() + WAIT_S
        while len(self.acknowledged) < wanted:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"no {more} tables could be made in {WAIT_S:.0f} s")
            time.sleep(PAUSE_S)

    def stop(self) -> None:
        """End after the present table."""
        self._ended.set()
        self.join(WAIT_S)


def masters_round(number: int, note: Callable[[str], None]) -> Figures:
    """Every outage once, on a fresh stack with one master; rows are written meanwhile, and counted.

    The steps are the operator's commands of `docs/operate/repair.md`, their start included. Steps that are possible
    before an outage are done before it.
    """
    with local_stack(note) as first:
        stack = first.own
        with fresh_table(first, f"bench_masters_{number}", 1) as handle:
            writer = RowWriter(first, handle, 0)
            writer.start()
            figures: Figures = {}

            def outage(name: str, operation: Callable[[], None]) -> None:
                note(f"masters: {name}")
                figures[f"masters_{name}_s"], pause = _outage(stack, writer, f"m{number}_{name}", operation)
                figures["masters_writes_pause_s"] = max(figures.get("masters_writes_pause_s", 0.0), pause)

            outage("restart", lambda: _restart(stack))
            added = stack.prepare_masters(2)
            peers = _formatted(stack, added)
            outage("one_to_three", lambda: _become_three(stack, added, peers))
            figures["masters_one_to_three_ratio"] = figures["masters_one_to_three_s"] / figures["masters_restart_s"]
            rows = _ended(writer)
            check_count(
                "one-row writes beside masters that came and went", first.client.count(handle, ScanSpec()), rows
            )
        with Client(parse_masters(stack.masters)) as client:
            target = own_target(stack, client)
            with fresh_table(target, f"bench_masters_{number}", 1) as handle:
                writer = RowWriter(target, handle, 0)
                writer.start()
                lost = _leading(stack, client)
                outage("leader_killed", lambda: stack.kill_for_good(lost))
                outage("replaced", lambda: _replace(stack, client, lost))
                rows = _ended(writer)
                check_count("one-row writes beside a master that was lost", client.count(handle, ScanSpec()), rows)
        return figures


def _outage(stack: Supervisor, writer: RowWriter, prefix: str, operation: Callable[[], None]) -> tuple[float, float]:
    """(longest time without a new table, longest time without a written row) of an operation, from before it to well
    after it."""
    maker = TableMaker(stack.masters, prefix)
    maker.start()
    try:
        maker.wait_for(CALM_CHANGES)
        began = time.monotonic()
        operation()
        maker.wait_for(CALM_CHANGES)
    finally:
        maker.stop()
    (written,) = writer.acknowledged.values()
    # A row that is still under way has waited until now.
    return longest_pause(maker.acknowledged, began), longest_pause([*written, time.monotonic()], began)


def _ended(writer: RowWriter) -> int:
    """The number of written rows, all of them acknowledged."""
    rows = writer.stop()
    if writer.error is not None:
        raise BenchmarkError(f"a write failed: {writer.error}")
    return rows


def _restart(stack: Supervisor) -> None:
    stack.stop_child(FORMER)
    stack.start_child(FORMER)


def _formatted(stack: Supervisor, names: Sequence[str]) -> list[str]:
    """Format directories for the new masters; returns the arguments of `cmeta rewrite`, the first master included."""
    for name in names:
        _nyala("fs", "format", stack.folder / name, "--kind", "master")
    uuids = [_nyala("fs", "uuid", stack.folder / name) for name in (FORMER, *names)]
    return [f"--peer={u}={at}" for u, at in zip(uuids, stack.masters.split(","), strict=True)]


def _become_three(stack: Supervisor, added: Sequence[str], peers: Sequence[str]) -> None:
    stack.stop_child(FORMER)
    _nyala("cmeta", "rewrite", stack.folder / FORMER, "catalog", *peers, "--yes")
    stack.start_child(FORMER)
    source = stack.children[FORMER].address

    def join(name: str) -> None:
        _nyala("master", "copy-from", stack.folder / name, source, "--allow-leaderless", "--yes")
        stack.start_child(name)

    with ThreadPoolExecutor(len(added)) as pool:
        list(pool.map(join, added))


def _leading(stack: Supervisor, client: Client) -> str:
    """The name of the leading master."""
    views = tools.ask_masters(client, client.list_servers())
    uuids = [v.uuid for v in views if v.status is not None and v.status.replica.role == "LEADER"]
    found = [n for n, child in stack.children.items() if child.ready.get("uuid") in uuids]
    if not found:
        raise BenchmarkError("no master leads")
    return found[0]


def _replace(stack: Supervisor, client: Client, lost: str) -> None:
    """Replace a master whose disk is lost, too: the same uuid and name, an empty directory, the leader's catalog."""
    uuid = str(stack.children[lost].ready["uuid"])
    shutil.rmtree(stack.folder / lost)
    _nyala("fs", "format", stack.folder / lost, "--kind", "master", "--uuid", uuid)
    source = stack.children[_leading(stack, client)].address
    _nyala("master", "copy-from", stack.folder / lost, source, "--yes")
    stack.start_child(lost)


def _nyala(*arguments: str | Path) -> str:
    """The output of an operator's command; BenchmarkError with its last line if it fails."""
    command = python_module("nyala.infra.cli.app", *map(str, arguments))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_WAIT_S, check=False)
    if ended.returncode:
        raise BenchmarkError(
            f"nyala {arguments[0]} {arguments[1]} failed: {(ended.stderr.strip() or '?').splitlines()[-1]}"
        )
    return ended.stdout.strip()
