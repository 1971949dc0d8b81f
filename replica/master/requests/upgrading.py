"""Raises the cluster's feature level, once every process runs a build that knows it.

Before that, each process can go back to its former build. Afterwards the masters refuse a process of a lower level.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from nyala.replica.types import Address, Code, Refused
from nyala.schemas import FIRST_VERSIONS, build_level

from ..catalog.catalog import Catalog
from ..catalog.records import FINALIZED, TABLET, Finalized
from ..catalog.tables import Change
from ..group.forming import MasterBuild
from ..state import MasterState
from ..tablets.view import server_view

SHOWN_MAX = 10
"""The most processes that a refusal names."""
_TABLETS_AT_ONCE = 1_000
"""The number of tablets whose members are collected before other work of the loop runs."""


class Build(NamedTuple):
    """The build of one process; `level` is None if the process did not answer."""

    level: int | None
    version: str = ""


def finalized_level(catalog: Catalog) -> int:
    """The cluster's feature level."""
    found = catalog.get(FINALIZED)
    return found.level if found is not None else 1


def check_server(catalog: Catalog, feature_level: int, version: str) -> None:
    """Raise Refused(ILLEGAL_STATE) for a heartbeat of a server whose build does not know the cluster's level."""
    level = finalized_level(catalog)
    if feature_level < level:
        what = (
            "the cluster was upgraded for good, and this server's build is too old for it: install the version named "
            "here, or a later one. Its tablets are kept, but it does not count until then"
        )
        install = FIRST_VERSIONS.get(level, "that of the masters")
        found = {"cluster_level": level, "build_level": feature_level, "version": version, "install": install}
        raise Refused(Code.ILLEGAL_STATE, what, found)


def missing(
    level: int, masters: Mapping[str, Build], servers: Mapping[str, Build], without: Collection[str]
) -> list[str]:
    """The reasons why the level cannot be raised, one line for each process. Servers in `without` need not answer, but
    if they do, they must know the level."""
    lines = []
    for kind, builds in (("master", masters), ("tablet server", servers)):
        for uuid, build in builds.items():
            if build.level is None:
                if kind == "master" or uuid not in without:
                    lines.append(f"{kind} {uuid} does not answer")
            elif build.level < level:
                lines.append(
                    f"{kind} {uuid} runs {build.version or 'an earlier version'}, which knows level {build.level}"
                )
    return lines


def finalize(catalog: Catalog, level: int, now_us: int) -> Change:
    """The change that raises the level; its result is the level before. If the cluster has that level already, nothing
    changes."""
    before = finalized_level(catalog)
    if level <= before:
        return {}, [], "", before
    return {FINALIZED: Finalized(level=level, since_us=now_us)}, [], "", before


async def finalize_upgrade(
    state: MasterState, level: int, without: Sequence[str], ask_master: Callable[[Address], Awaitable[MasterBuild]]
) -> tuple[int, int]:
    """Raise the cluster's level, to that of this build if `level` is 0; returns it and the level before.

    Refused: INVALID_ARGUMENT for a level that this build does not know, or that is below the cluster's; ILLEGAL_STATE
    if a process does not know it or could not be asked, with their names.
    """
    level, now = level or build_level(), finalized_level(state.catalog)
    if not now <= level <= build_level():
        what = (
            "the level is between the cluster's and the one that the leading master's build knows; nothing was changed"
        )
        raise Refused(Code.INVALID_ARGUMENT, what, got=level, cluster_level=now, build_level=build_level())
    if level == now:
        return level, now
    against = missing(level, await _masters(state, ask_master), await _servers(state), without)
    if against:
        what = (
            "not every process is known to run a build of that level: upgrade the processes, start those that are "
            "away, or name lost tablet servers with --without; nothing was changed"
        )
        more = f" and {len(against) - SHOWN_MAX} more" if len(against) > SHOWN_MAX else ""
        raise Refused(Code.ILLEGAL_STATE, what, level=level, against="; ".join(against[:SHOWN_MAX]) + more)
    await state.lead()
    before: int = await state.group.change(lambda: finalize(state.catalog, level, state.clock.wall_us()))
    return level, before


async def _masters(state: MasterState, ask: Callable[[Address], Awaitable[MasterBuild]]) -> dict[str, Build]:
    """The builds of the other masters; each is asked for its own."""

    async def build(uuid: str, addresses: Sequence[Address]) -> Build:
        for address in addresses:
            try:
                found = await ask(address)
            except Refused:
                continue
            if found.uuid == uuid:
                return Build(found.feature_level, found.version)
        return Build(None)

    others = [m for m in state.group.masters if m.uuid != state.uuid]
    builds = await asyncio.gather(*(build(m.uuid, m.addresses) for m in others))
    return dict(zip((m.uuid for m in others), builds, strict=True))


async def _servers(state: MasterState) -> dict[str, Build]:
    """The builds of all tablet servers that are alive or members of a tablet, as of their last heartbeat."""
    needed: set[str] = set()
    for number, (_, tablet) in enumerate(state.catalog.walk(TABLET)):
        if not tablet.dropped:
            needed.update(m.uuid for m in tablet.known_config.members)
        if number % _TABLETS_AT_ONCE == 0:
            await asyncio.sleep(0)
    builds = dict.fromkeys(sorted(needed), Build(None))
    for uuid, server in sorted(state.soft.servers.items()):
        if server_view(state.soft, server, state.options, state.mono_us).alive:
            builds[uuid] = Build(server.last_report.feature_level, server.last_report.version)
    return builds
