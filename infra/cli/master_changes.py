"""`nyala master add | remove | replace`: changes the group of running masters, one member at a time.

Each step is one committed change of the masters' config. What a command leaves behind when it is cut off is a config in
which the group goes on, and the same command carries on from there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from nyala.replica.types import Address, Code, Member, RaftConfig, Refused

from .context import Json, Masters, client, console, say
from .offline import address_of

if TYPE_CHECKING:
    from nyala.replica.client import Client

POLL_S = 0.2
CHANGES_AGAIN_MAX = 20
"""A change is asked for again so often if the config has changed since it was looked at."""

New = Annotated[str, typer.Argument(metavar="ADDRESS", help="host:port at which the new master waits (--join)")]
Old = Annotated[str, typer.Argument(metavar="OLD", help="uuid or its beginning, or host:port, of a master")]
Timeout = Annotated[float, typer.Option(help="how long to wait")]


def add(address: New, timeout_s: Timeout = 300, masters: Masters = "", as_json: Json = False) -> None:
    """Add a master to the running group; wait until it has the catalog and votes.

    Start it first, on an empty directory: `python -m nyala.replica.master --root DIR --listen ADDRESS --join MASTERS`.
    A command that was cut off may be repeated.
    """
    with client(masters) as connected:
        uuid, already = _add(connected, address_of(address), time.monotonic() + timeout_s)
        config = _config(connected)
    words = f"{uuid} at {address} is a voting master already" if already else f"done: {uuid} at {address} votes"
    say(as_json, {"added": uuid, "already": already, **_document(config)}, words + _odd(config))


def remove(master: Old, timeout_s: Timeout = 60, masters: Masters = "", as_json: Json = False) -> None:
    """Remove a master from the running group; a leading one hands over first.

    Refused if the masters that answer would be no majority afterwards. The removed process ends by itself.
    """
    with client(masters) as connected:
        uuid, already = _remove(connected, master, time.monotonic() + timeout_s)
        config = _config(connected)
    words = f"{uuid} is no master of this group; nothing was changed" if already else f"done: {uuid} was removed"
    say(as_json, {"removed": uuid, "already": already, **_document(config)}, words + _odd(config))


def replace(
    old: Old,
    new: New,
    timeout_s: Timeout = 300,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Add a new master, wait until it votes, and remove an old one. Both steps are repeatable, and so is this."""
    deadline = time.monotonic() + timeout_s
    with client(masters) as connected:
        leaving = _find(_config(connected), old)
        if leaving is not None and address_of(new) in leaving.addresses:
            what = "the new master has the old one's address: remove the old one, then add the new one"
            raise Refused(Code.INVALID_ARGUMENT, what, address=new, uuid=leaving.uuid)
        uuid, already = _add(connected, address_of(new), deadline)
        gone, was_gone = _remove(connected, old if leaving is None else leaving.uuid, deadline)
        config = _config(connected)
    words = f"done: {uuid} at {new} votes, {gone} is no master of this group"
    done = {"added": uuid, "removed": gone, "already": already and was_gone}
    say(as_json, {**done, **_document(config)}, words + _odd(config))


def _add(connected: Client, address: Address, deadline: float) -> tuple[str, bool]:
    """(uuid, whether it voted already) of the new master, once it votes."""
    voted = {m.uuid for m in _config(connected).members if m.votes and address in m.addresses}
    uuid = _change(connected, deadline, add=address)[0]
    with console.status("added, copies the catalog") as line:
        while uuid not in _config(connected).voters:
            if time.monotonic() > deadline:
                what = (
                    "the new master was added and does not vote yet: look at its log, and whether its --join names "
                    "these masters. Repeat the command to wait on, or take it back with `nyala master remove`"
                )
                raise Refused(Code.TIMED_OUT, what, uuid=uuid, address=address)
            line.update(_progress(connected, address))
            time.sleep(POLL_S)
    return uuid, uuid in voted


def _progress(connected: Client, address: Address) -> str:
    """What a new master does, for a person who waits."""
    try:
        there = connected.status_of_master(address).replica
    except Refused:
        return f"{address} does not answer"
    if not there.phase:
        return f"{address} waits for the copy of the catalog"
    return f"{address} has applied {there.applied_index} of {connected.masters_status().replica.commit_index} entries"


def _remove(connected: Client, master: str, deadline: float) -> tuple[str, bool]:
    """(uuid, whether it was no member already) of the master that was removed."""
    member = _find(_config(connected), master)
    if member is None:
        return master, True
    return _change(connected, deadline, remove=member.uuid)


def _change(connected: Client, deadline: float, *, add: Address | None = None, remove: str = "") -> tuple[str, bool]:
    """Ask for one change until it is made for the present config; (uuid, whether it held already)."""
    for _ in range(CHANGES_AGAIN_MAX):
        seen = _config(connected).opid
        try:
            left_s = max(1.0, deadline - time.monotonic())
            reply = connected.change_masters(seen, add=add, remove=remove, timeout_s=left_s)
            return reply.uuid, reply.already
        except Refused as error:
            if error.code is not Code.CAS_FAILED or time.monotonic() > deadline:
                raise
    raise Refused(Code.CAS_FAILED, "the masters' config keeps changing; repeat the command", seen=seen)


def _find(config: RaftConfig, master: str) -> Member | None:
    """The member of that uuid (or its beginning) or address. None for a whole uuid that is not a member; Refused
    NOT_FOUND for anything else that names none, or more than one."""
    found = [m for m in config.members if master and (m.uuid.startswith(master) or master in map(str, m.addresses))]
    if len(found) == 1:
        return found[0]
    if not found and len(master) == len(config.members[0].uuid) and ":" not in master:
        return None
    members = ", ".join(f"{m.uuid} at {','.join(map(str, m.addresses))}" for m in config.members)
    what = "this names no master, or several; nothing was changed"
    raise Refused(Code.NOT_FOUND, what, given=master, masters=members)


def _config(connected: Client) -> RaftConfig:
    from nyala.replica.rpc import config_from_pb

    return config_from_pb(connected.masters_status().replica.committed_config)


def _document(config: RaftConfig) -> dict[str, object]:
    members = [{"uuid": m.uuid, "address": ",".join(map(str, m.addresses)), "votes": m.votes} for m in config.members]
    return {"config": str(config.opid), "masters": members}


def _odd(config: RaftConfig) -> str:
    """What to say of a number of masters that survives no more failures than one fewer."""
    count = len(config.voters)
    return f"; {count} masters vote, which survives no more failures than {count - 1}" if count % 2 == 0 else ""
