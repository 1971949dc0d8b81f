"""Tables of the answers to a call that comes to the wrong server, from another time, twice, or after others that it
should have preceded; one row for every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from nyala.replica.rpc import pb
from nyala.replica.types import Code, new_uuid

State = dict[str, Any]


class World(Protocol):
    """The servers of one process that calls are made to. `state` waits until what is under way has settled."""

    uuid: str
    """The uuid of the server that the row's requests are meant for."""

    async def call(self, service: str, method: str, request: Any) -> Any: ...

    async def state(self) -> State: ...


Ask = Callable[[Any], Any]
"""Makes a request for a world."""
Do = Callable[[Any], Awaitable[None]]


class Stale(NamedTuple):
    """A request from another time, or about what does not exist, and how it is refused; `code` 0: it finds nothing."""

    what: str
    request: Ask
    code: int


class Late(NamedTuple):
    """A request that overtook the good one, and the answer to the good one then."""

    what: str
    meanwhile: Do
    code: int


async def nothing(world: Any) -> None:
    """Prepare nothing."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One call. A text in the place of requests is the reason why there can be none."""

    call: str
    """Service.Method"""
    good: Ask
    prepare: Do = nothing
    at: str = ""
    """The server of the world, if not its first."""
    reads: bool = False
    """Whether it changes nothing: neither the good request, nor the same again."""
    unnamed: str = ""
    """The reason why a request without a uuid is accepted here; empty: it is refused."""
    stale: Sequence[Stale] | str = ()
    again: int = 0
    """The answer to the same request the second time."""
    again_leaves: tuple[str, ...] = ()
    """Parts of the state that the second request may change, such as the log's end."""
    late: Sequence[Late] | str = ()

    def __str__(self) -> str:
        return self.call

    @property
    def names(self) -> tuple[str, str]:
        service, _, method = self.call.partition(".")
        return service, method


def calls_of(services: Iterable[str]) -> list[str]:
    """Return every call of these services, by the descriptors."""
    return [f"{s}.{m.name}" for s in services for m in pb.DESCRIPTOR.services_by_name[s].methods]


def names_its_server(row: Row) -> bool:
    """Return whether the call's request has a field for the uuid of the server that is meant."""
    service, method = row.names
    request = pb.DESCRIPTOR.services_by_name[service].methods_by_name[method].input_type
    return "dest_uuid" in request.fields_by_name


def check_table(rows: Sequence[Row], services: Iterable[str]) -> None:
    """Check that there is one row for every call, and no empty cell: a call that changes something states what stale
    and late requests find."""
    assert sorted(r.call for r in rows) == sorted(calls_of(services))
    for row in rows:
        assert row.reads or (row.stale and row.late), f"{row}: a cell is empty"
        assert not (row.reads and row.late), f"{row}: nothing overtakes what changes nothing"


async def _told(world: World, row: Row, request: Any, code: int, what: str) -> Any:
    reply = await world.call(*row.names, request)
    if "error" in reply.DESCRIPTOR.fields_by_name:
        error = reply.error
        assert error.code == code, f"{row}, {what}: {Code(error.code).name} instead of {Code(code).name}: {error}"
        assert bool(error.message) == bool(code), f"{row}, {what}: {error}"
        assert not (code and error.outcome_unknown), f"{row}, {what}: it says that it may have been carried out"
    return reply


async def _same(world: World, before: State, what: str, leaving: Sequence[str] = ()) -> None:
    after = await world.state()
    for part in before.keys() - set(leaving):
        assert after[part] == before[part], f"{what} has changed {part}"


def misnamed(row: Row, world: World, uuid: str) -> Any:
    """Return the good request, for the server `uuid`."""
    request = row.good(world)
    request.dest_uuid = uuid
    return request


async def play(row: Row, world: World, strangers: Sequence[str]) -> None:
    """Send misaddressed requests, then stale ones, then the good one and the same again: a refused request leaves
    everything as it was, and so does one that was carried out before. `strangers`: uuids of other servers that
    exist."""
    await row.prepare(world)
    before = await world.state()
    if names_its_server(row):
        for uuid in (new_uuid(), *strangers, *([] if row.unnamed else [""])):
            await _told(world, row, misnamed(row, world, uuid), Code.INVALID_NAME, f"meant for {uuid or '(nobody)'}")
            await _same(world, before, f"{row}, meant for {uuid or '(nobody)'},")
    for stale in row.stale if not isinstance(row.stale, str) else ():
        await _told(world, row, stale.request(world), stale.code, stale.what)
        await _same(world, before, f"{row}, {stale.what},")
    good = row.good(world)
    await _told(world, row, good, 0, "as it should be")
    after = await world.state()
    effect = [part for part in before if after[part] != before[part]]
    assert bool(effect) is not row.reads, f"{row}: the good request changes {effect or 'nothing'}"
    await _told(world, row, good, row.again, "the same again")
    await _same(world, after, f"{row}, the same again,", row.again_leaves)


async def play_late(row: Row, late: Late, world: World) -> None:
    """Send the good request after one that it should have preceded; it leaves everything as it is."""
    await row.prepare(world)
    request = row.good(world)
    await late.meanwhile(world)
    before = await world.state()
    await _told(world, row, request, late.code, late.what)
    await _same(world, before, f"{row}, {late.what},", row.again_leaves)


def late_cases(rows: Sequence[Row]) -> list[tuple[Row, Late]]:
    """Return every row with each of its late requests."""
    return [(row, late) for row in rows if not isinstance(row.late, str) for late in row.late]


def case_id(case: Row | Late) -> str:
    """Return either half of such a case, as the test's name has it."""
    return case.call if isinstance(case, Row) else case.what.replace(" ", "_")
