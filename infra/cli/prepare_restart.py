"""`nyala server prepare-restart`: after it, the end of a server's process interrupts no request."""

from __future__ import annotations

import time
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from nyala.replica import tools
from nyala.replica.types import Code, Refused

from .changes import Timeout, waited
from .completion import ServerUuid
from .context import Json, Masters, client, find_server, say
from .quiesce import is_over, words

if TYPE_CHECKING:
    from nyala.replica.client import Client
    from nyala.replica.rpc import pb

NAMED_MAX = 3
"""The most tablets that a refusal names; it gives the number of all."""


def prepare_restart(
    server: ServerUuid,
    minutes: Annotated[float, typer.Option(help="how long the restart may take; in maintenance until then")] = 15,
    timeout_s: Timeout = 300,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Prepare the restart of a server's process, so that no request fails and nothing is replaced.

    It waits until every tablet of the server goes on without it, enters maintenance, lets the server quiesce, and waits
    until it leads nothing and no read is under way. A longer maintenance that it is in stays as it is. If all this
    takes longer than --timeout-s, what was begun is taken back. Then stop and start the process, and end with `nyala
    server exit-maintenance`.
    """
    if not minutes * 60 >= 1:
        raise Refused(Code.INVALID_ARGUMENT, "a restart takes a second at least: nothing was changed", minutes=minutes)
    end = time.monotonic() + timeout_s
    with client(masters) as connected:
        found = find_server(connected, server)
        risks = _wait_safe(connected, found.uuid, end)
        if risks:
            raise _unsafe(found.uuid, risks, "nothing was changed")
        before = connected.quiesce_server(found).quiescing  # a build that does not know it refuses here
        if not holds(found, minutes):
            connected.maintain_server(found.uuid, round(minutes * 60), owner=getuser(), reason="restart")
        connected.quiesce_server(found, True)

        def ready() -> bool:
            return is_over(connected.quiesce_server(found))

        left_s = max(0.0, end - time.monotonic())
        done = waited(ready, lambda: words(connected.quiesce_server(found)), left_s)
        risks = _wait_safe(connected, found.uuid, end)
        if not done or risks:
            state = words(connected.quiesce_server(found))
            _take_back(connected, found, quiesced_before=before)
            if risks:
                raise _unsafe(found.uuid, risks, "maintenance and quiescing were taken back")
            what = f"the server {state}, for longer than --timeout-s: maintenance and quiescing were taken back"
            raise Refused(Code.TIMED_OUT, what, server=found.uuid, timeout_s=timeout_s)
        shown = find_server(connected, found.uuid)
    short = found.uuid[:8]
    text = (
        f"{short} leads nothing, and is {tools.maintenance_words(shown)}. Restart its process now, then run "
        f"`nyala server exit-maintenance {short}`"
    )
    say(as_json, {"uuid": found.uuid, "maintenance": tools.maintenance_json(shown), "ready": True}, text)


def _wait_safe(connected: Client, uuid: str, end: float) -> list[str]:
    """Wait until the server may end, until the time is over; returns the reasons against it then."""
    risks: list[str] = []

    def safe() -> bool:
        risks[:] = tools.at_risk(_tablets(connected), connected.list_servers().servers, uuid)
        return not risks

    waited(safe, lambda: f"{len(risks)} tablets need the server", max(0.0, end - time.monotonic()))
    return risks


def _tablets(connected: Client) -> list[pb.TabletInfo]:
    return [t for table in connected.list_tables() for t in connected.tablet_infos(table.name)]


def _take_back(connected: Client, server: pb.ServerInfo, *, quiesced_before: bool) -> None:
    if not quiesced_before:
        connected.quiesce_server(server, False)
    left_s = _seconds_left(server)
    owner, reason = (server.maintenance_owner, server.maintenance_reason) if left_s else ("", "")
    connected.maintain_server(server.uuid, left_s, owner=owner, reason=reason)


def holds(server: pb.ServerInfo, minutes: float) -> bool:
    """Return whether the maintenance that the server is in lasts for so many minutes."""
    return _seconds_left(server) >= minutes * 60


def _seconds_left(server: pb.ServerInfo) -> int:
    """Return the whole seconds of the maintenance that the server is in; 0 if it is in none."""
    return max(0, server.maintenance_until_us // 1_000_000 - round(time.time()))


def _unsafe(uuid: str, risks: list[str], done: str) -> Refused:
    what = f"tablets would be interrupted: {'; '.join(risks[:NAMED_MAX])}. {done[0].upper()}{done[1:]}; look at "
    return Refused(Code.ILLEGAL_STATE, f"{what}`nyala cluster check`", server=uuid, tablets=len(risks))
