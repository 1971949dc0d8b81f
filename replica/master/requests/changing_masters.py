"""Adds a master to the running group, or removes one. Each request is one change of the group's Raft config."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from nyala.replica.types import Address, Code, ConfigEdit, EditKind, OpId, RaftConfig, Refused

from ..group.changing_members import MembersSilent, addition, refuse_older, removal
from ..group.forming import MasterBuild
from ..state import MasterState

ASKED_TIMES = 3
ASK_PAUSE_S = 1.0
"""A member that is busy, or has not answered a new leader yet, counts as living if it answers one of so many checks."""

Ask = Callable[[Address], Awaitable[MasterBuild]]
"""Asks for the build of the master at an address; Refused if none answers."""


class Done(NamedTuple):
    """The group's config after a request, and what the request changed."""

    config: RaftConfig
    uuid: str
    changed: bool
    words: str = ""


async def add_master(state: MasterState, address: Address, seen: OpId, ask: Ask) -> Done:
    """Add the master that waits at `address`, which votes once it has caught up. Refused as `addition`; NOT_FOUND if no
    master answers there; CAS_FAILED if another config than `seen` is in force."""
    config = _config(state)
    try:
        found = await ask(address)
    except Refused as error:
        what = "no master answers at this address: start it with --join and the addresses of these masters, and repeat"
        raise Refused(Code.NOT_FOUND, what, address=address, why=str(error)) from error
    edit = addition(config, state.cluster_id, address, found)
    if edit is None:
        return Done(config, found.uuid, changed=False)
    refuse_older(await _builds(state, config, ask))
    own = config.member(state.uuid)
    if own is not None and state.address not in own.addresses:
        # A single master's config has the address of its first start, to which no other process has connected. It may
        # have another address now.
        here = ConfigEdit(EditKind.CHANGE, replace(own, addresses=(state.address,)))
        seen = (await state.group.edit_members(here, seen)).opid
    config = await state.group.edit_members(edit, seen)
    return Done(config, found.uuid, changed=True, words=f"{found.uuid} at {address} was added")


async def remove_master(state: MasterState, uuid: str, seen: OpId, ask: Ask) -> Done:
    """Remove a member. Refused as `removal`, but MembersSilent only after ASKED_TIMES checks. CAS_FAILED if another
    config than `seen` is in force. STEPPING_DOWN if the member leads: it hands over, and the next leader carries out
    the repeated request."""
    for turn in range(1, ASKED_TIMES + 1):
        config = _config(state)
        builds = await _builds(state, config, ask)
        living = {state.uuid, *(u for u, build in builds.items() if build is not None)}
        try:
            edit = removal(config, uuid, living & _heard(state))
            break
        except MembersSilent:
            if turn == ASKED_TIMES:
                raise
        await asyncio.sleep(ASK_PAUSE_S)
    if edit is None:
        return Done(config, uuid, changed=False)
    refuse_older({u: build for u, build in builds.items() if u != uuid})
    config = await state.group.edit_members(edit, seen)
    return Done(config, uuid, changed=True, words=f"{uuid} was removed")


def _config(state: MasterState) -> RaftConfig:
    return state.group.replica.committed_config


def _heard(state: MasterState) -> set[str]:
    """The members that have answered this leader's messages lately, itself included."""
    peers = state.group.replica.status().peers
    return {state.uuid, *(peer.uuid for peer in peers if peer.health in ("OK", "LAGGING"))}


async def _builds(state: MasterState, config: RaftConfig, ask: Ask) -> dict[str, MasterBuild | None]:
    """The builds of the other members; None for one that does not answer."""

    async def build(address: Address) -> MasterBuild | None:
        try:
            return await ask(address)
        except Refused:
            return None

    others = [m for m in config.members if m.uuid != state.uuid and m.addresses]
    found = await asyncio.gather(*(build(m.addresses[0]) for m in others))
    return {m.uuid: b if b is not None and b.uuid == m.uuid else None for m, b in zip(others, found, strict=True)}
