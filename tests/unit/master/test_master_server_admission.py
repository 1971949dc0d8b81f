"""Which senders of heartbeats count as tablet servers, and what forged heartbeats can do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.fs import MASTER, TABLET_SERVER
from nyala.replica.master.heartbeats.applicants import FORGET_US, PAUSE_US_FIRST
from nyala.replica.master.heartbeats.heartbeat_checks import check_sender, why_not
from nyala.replica.master.heartbeats.server_admission import ServerAdmission
from nyala.replica.master.heartbeats.soft_state import SERVER_SILENT_US, ServerState, SoftState, TabletState
from nyala.replica.rpc import address_to_pb, heartbeat_from_pb, pb
from nyala.replica.types import Address, Code, Member, OpId, RaftConfig, Refused, limits
from tests.harness.leading_master import FixedClock
from tests.harness.reachable import ReachableServers

A, B, L = "a" * 32, "b" * 32, "f" * 32
CLUSTER = "c" * 32
HOME, OTHER, THIRD = Address("h", 1), Address("h", 2), Address("h", 3)


def beat(uuid: str, *where: Address, **fields: object) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(server_uuid=uuid, addresses=map(address_to_pb, where), **fields)  # type: ignore[arg-type]


class World:
    """The admission of servers, its soft state, and servers that listen or do not."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.servers = ReachableServers()
        self.soft = SoftState(self.clock.now_us, lambda tablet_id: None)
        self.sequence = count(1)
        self.catalog: dict[str, list[Address]] = {}
        """The addresses of servers in the catalog's configs."""
        self.admission = ServerAdmission(
            self.servers, lambda: self.soft, self.clock, lambda uuid: self.catalog.get(uuid, ())
        )

    async def said(self, uuid: str, *where: Address, peer: str = "ipv4:10.0.0.1", process: int = 0) -> Code:
        """Return the answer to the sender: OK if its heartbeat counts."""
        request = beat(uuid, *where, process=process, sequence=next(self.sequence))
        try:
            await self.admission.admit(heartbeat_from_pb(request)[0], peer, CLUSTER)
        except Refused as refused:
            return refused.code
        self.soft.heartbeat(*heartbeat_from_pb(request), self.clock.now_us)
        return Code.OK


async def turns(count: int = 9) -> None:
    """Let everything go on that waits for nothing."""
    for _ in range(count):
        await asyncio.sleep(0)


async def at_once(said: Coroutine[Any, Any, Code]) -> Code:
    """Return the answer that comes without waiting for anything but the loop."""
    task = asyncio.create_task(said)
    await turns()
    assert task.done(), "it is kept waiting"
    return task.result()


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await scenario(World())

    asyncio.run(all_of_it())


def test_server_counts_once_it_answered_at_its_address() -> None:
    """IN-43. Goal: a server is accepted with its first heartbeat after it answered at its address, and no other sender
    is. Method: a server that listens; then addresses where no process listens, or another server, a master or a server
    of another cluster. Each is an applicant with its reason, is called again only after a pause, and is accepted as
    soon as it answers."""

    async def scenario(w: World) -> None:
        w.servers.listen(A, HOME)
        assert await w.said(A, HOME) is Code.OK and w.soft.servers[A].addresses == (HOME,)
        assert await w.said(A, HOME) is Code.OK and w.servers.calls == [HOME], "called once"
        w.servers.listen(L, Address("h", 4), kind=MASTER)
        w.servers.listen(L, Address("h", 5), cluster_id="another")
        reasons = {
            3: "nobody answers",
            1: "another one answers there",
            4: "no tablet server but a MASTER",
            5: "belongs to cluster another",
        }
        for port, reason in reasons.items():
            w.clock.now_us += PAUSE_US_FIRST
            assert await w.said(L, Address("h", port)) is Code.NOT_READY
            (told,) = w.admission.shown()
            assert reason in told.not_counted and told.uuid == L
        calls = len(w.servers.calls)
        w.servers.listen(L, Address("h", 5), cluster_id=CLUSTER)
        assert await w.said(L, Address("h", 5)) is Code.NOT_READY and len(w.servers.calls) == calls, "not due yet"
        assert list(w.soft.servers) == [A]
        w.clock.now_us += PAUSE_US_FIRST
        assert await w.said(L, Address("h", 5)) is Code.OK and w.admission.shown() == []

    run(scenario)


def test_changed_address_counts_only_if_the_former_one_is_gone() -> None:
    """IN-43. Goal: another process cannot change a server's address. Method: a heartbeat gives a new address, where no
    server or another one listens, or where a copy of its directory runs, while the server still answers at the former
    one: refused and logged. When the server is no longer at the former address, the new one counts."""

    async def scenario(w: World) -> None:
        w.servers.listen(A, HOME)
        await w.said(A, HOME)
        assert await w.said(A, OTHER) is Code.NOT_READY
        w.clock.now_us += PAUSE_US_FIRST
        w.servers.listen(A, OTHER)
        assert await w.said(A, OTHER) is Code.ILLEGAL_STATE
        assert "still answers at h:1" in w.admission.shown()[0].not_counted
        assert w.soft.servers[A].addresses == (HOME,) and await w.said(A, HOME) is Code.OK
        w.servers.listen(B, HOME)
        w.clock.now_us += 4 * PAUSE_US_FIRST
        assert await w.said(A, OTHER) is Code.OK and w.soft.servers[A].addresses == (OTHER,)
        assert await w.said(B, HOME) is Code.OK, "two servers changed places"

    run(scenario)


def test_heartbeat_counts_only_if_the_server_sent_it() -> None:
    """IN-43, IN-41. Goal: a heartbeat under another server's uuid is refused. Method: a heartbeat with a server's uuid
    and address, before and after the server's own, whose number only it knows; the same from a listener elsewhere that
    answers by the uuid; the server starts again, and is then told to be reached by another address, which leads to the
    same process."""

    async def scenario(w: World) -> None:
        w.servers.listen(A, HOME)
        w.servers.processes[HOME] = 7
        for _ in range(2):
            assert await w.said(A, HOME, process=6) is Code.NOT_READY
            assert "did not send" in w.admission.shown()[0].not_counted
            assert await w.said(A, HOME, process=7) is Code.OK
            w.clock.now_us += PAUSE_US_FIRST
        w.servers.listen(A, OTHER)
        w.servers.processes[OTHER] = 6
        assert await w.said(A, OTHER, process=6) is Code.ILLEGAL_STATE
        assert (w.soft.servers[A].addresses, w.soft.servers[A].process) == ((HOME,), 7)
        w.servers.processes[HOME] = w.servers.processes[OTHER] = 8
        assert await w.said(A, HOME, process=8) is Code.OK
        assert await w.said(A, OTHER, process=8) is Code.OK, "a server with another --advertise"
        assert w.soft.servers[A].addresses == (OTHER,)

    run(scenario)


def test_new_leader_asks_where_the_catalog_says_that_a_server_listens() -> None:
    """IN-43. Goal: a new leading master calls a server where the catalog lists it, before it believes another address.
    Method: a server of which only a config of the catalog tells; somebody answers elsewhere by its uuid, while it
    answers there too, and when it is gone."""

    async def scenario(w: World) -> None:
        w.catalog[A] = [HOME]
        for place, process in ((HOME, 7), (OTHER, 6)):
            w.servers.listen(A, place)
            w.servers.processes[place] = process
        elsewhere = beat(A, OTHER, process=6)
        with pytest.raises(Refused) as caught:
            await w.admission.admit(heartbeat_from_pb(elsewhere)[0], "", CLUSTER)
        assert caught.value.code is Code.ILLEGAL_STATE and not w.soft.servers
        del w.servers.listening[HOME]
        w.clock.now_us += PAUSE_US_FIRST
        await w.admission.admit(heartbeat_from_pb(elsewhere)[0], "", CLUSTER)
        assert w.soft.servers[A].addresses == (OTHER,)

    run(scenario)


AGO = limits.SERVER_ADDRESS_PROVEN_US


@pytest.mark.parametrize(
    ("catalog", "steps"),
    [
        pytest.param([HOME], [(OTHER, 6, 0, "unproven"), (HOME, 7, 0, "proven"), (OTHER, 6, 0, "refused")], id="back"),
        pytest.param([HOME], [(OTHER, 6, 0, "unproven"), (THIRD, 7, 0, "refused")], id="back elsewhere"),
        pytest.param(
            [HOME], [(OTHER, 6, 0, "unproven"), (OTHER, 6, AGO - 1, "unproven"), (HOME, 7, 0, "proven")], id="late"
        ),
        pytest.param([HOME], [(OTHER, 7, 0, "unproven"), (OTHER, 7, AGO, "proven")], id="moved for good"),
        pytest.param(
            [HOME], [(OTHER, 6, 0, "unproven"), (OTHER, 6, AGO, "proven"), (HOME, 7, 0, "refused")], id="moved, copied"
        ),
        pytest.param(
            [HOME],
            [(OTHER, 7, 0, "unproven"), (OTHER, 7, AGO, "proven"), (None, 7, 0, ""), (OTHER, 8, 0, "proven")],
            id="moved, then restarted",
        ),
        pytest.param(
            [HOME],
            [(OTHER, 7, 0, "unproven"), (None, 7, AGO - 2, ""), (THIRD, 8, 1, "unproven"), (THIRD, 8, 1, "unproven")],
            id="moved twice",
        ),
        pytest.param([HOME, OTHER], [(OTHER, 7, 0, "proven"), (THIRD, 6, 0, "refused")], id="one of two"),
        pytest.param([], [(HOME, 7, 0, "proven"), (OTHER, 6, 0, "refused")], id="in no config"),
        pytest.param(
            [],
            [(HOME, 7, 0, "proven"), (None, 7, 0, ""), (OTHER, 6, 0, "unproven"), (HOME, 8, 0, "proven")],
            id="in no config, restarted",
        ),
        pytest.param([HOME], [(OTHER, 0, 0, "unproven"), (HOME, 0, 0, "proven")], id="of an older build"),
    ],
)
def test_server_at_an_address_of_the_catalog_takes_its_place_from_one_that_is_not_proven(
    catalog: list[Address], steps: list[tuple[Address | None, int, int, str]]
) -> None:
    """IN-43, IN-41. Goal: a server that starts again where the catalog has it counts, although another process took its
    uuid meanwhile; that one is then refused. One that counts elsewhere is not proven for a stated time, and then keeps
    its place. Method: a table of the addresses and processes from which heartbeats come one after the other, with the
    time between them; None: the process that counts ends. All others go on to answer."""

    async def scenario(w: World) -> None:
        w.catalog[A] = catalog
        for at, process, wait_us, expected in steps:
            w.clock.now_us += wait_us
            if at is None:
                del w.servers.listening[w.soft.servers[A].addresses[0]]
                continue
            w.servers.listen(A, at)
            if process:
                w.servers.processes[at] = process
            code = await w.said(A, at, process=process, peer=f"ipv4:10.0.0.{process}")
            assert code is (Code.ILLEGAL_STATE if expected == "refused" else Code.OK), (at, process, expected)
            if expected != "refused":
                assert w.soft.servers[A].addresses == (at,)
                assert w.soft.is_proven(A) is (expected == "proven"), (at, process, expected)
                assert w.soft.servers[A].recorded_at == ((at,) if expected == "proven" else (HOME,))

    run(scenario)


@pytest.mark.deep
def test_made_up_servers_fill_their_hosts_share_and_expire() -> None:
    """IN-43. Goal: 20,000 false servers cost a bounded number of applicants and calls, and do not keep true servers
    out. Method: all of them from one host, while an honest server of another host comes; many hosts, up to the bound of
    all; then nothing for a minute: honest servers of the same hosts come in again."""

    async def scenario(w: World) -> None:
        codes = [await w.said(f"{n:032x}", Address("void", 1 + n)) for n in range(20_000)]
        assert codes.count(Code.NOT_READY) == limits.SERVER_APPLICANTS_PER_HOST_MAX == len(w.admission)
        assert set(codes) == {Code.NOT_READY, Code.OVERLOADED} and not w.soft.servers
        assert len(w.servers.calls) == limits.SERVER_APPLICANTS_PER_HOST_MAX
        w.servers.listen(A, HOME)
        assert await w.said(A, HOME, peer="ipv4:10.0.0.2") is Code.OK
        for n in range(2 * limits.SERVER_APPLICANTS_MAX):
            await w.said(f"{n:032x}", Address("void", 1), peer=f"ipv4:10.1.{n >> 8}.{n & 255}")
        assert len(w.admission) == limits.SERVER_APPLICANTS_MAX and len(w.admission.shown()) < len(w.admission)
        w.servers.listen(B, OTHER)
        assert await w.said(B, OTHER) is Code.OVERLOADED
        w.clock.now_us += FORGET_US + 1
        assert await w.said(B, OTHER) is Code.OK
        assert len(w.admission) == 0 and sorted(w.soft.servers) == [A, B]

    run(scenario)


def test_calls_to_applicants_are_bounded_and_outlive_their_callers() -> None:
    """IN-43. Goal: what does not answer holds few calls, and a server that hung up is not called twice at once.
    Method: applicants of many hosts whose calls hang; one of them gives up waiting and asks again."""

    async def scenario(w: World) -> None:
        w.servers.slow = asyncio.Event()
        for n in range(40):
            w.servers.listen(f"{n:032x}", Address("h", 1 + n))
        waiting = [
            asyncio.create_task(w.said(f"{n:032x}", Address("h", 1 + n), peer=f"ipv4:10.0.0.{n % 20}"))
            for n in range(40)
        ]
        same_host = [
            asyncio.create_task(w.said(f"{n:032x}", Address("h", 1), peer="ipv4:10.9.9.9")) for n in range(100, 110)
        ]
        await turns()
        assert w.servers.open == limits.SERVER_CALLS_MAX
        waiting[0].cancel()
        again = asyncio.create_task(w.said(f"{0:032x}", Address("h", 1), peer="ipv4:10.0.0.0"))
        await asyncio.sleep(0)
        w.servers.slow.set()
        assert await again is Code.OK
        assert set(await asyncio.gather(*waiting[1:])) == {Code.OK}
        assert set(await asyncio.gather(*same_host)) == {Code.NOT_READY}
        assert w.servers.open_max == limits.SERVER_CALLS_MAX and w.servers.calls.count(Address("h", 1)) == 11

    run(scenario)


def test_process_counts_though_its_caller_hung_up() -> None:
    """IN-43. Goal: a call that succeeds is not made again for each caller that is in a hurry, and what counts is the
    process that answered. Method: a server starts again and hangs up during the master's call; its next heartbeat
    counts without a call, though it is its first one, a full report is asked for, and the former process is refused."""

    async def scenario(w: World) -> None:
        w.servers.listen(A, HOME)
        w.servers.processes[HOME] = 7
        assert await w.said(A, HOME, process=7) is Code.OK
        w.soft.servers[A].sequence, w.soft.servers[A].reported = 99, True
        w.servers.processes[HOME] = 8
        w.servers.slow = asyncio.Event()
        impatient = asyncio.create_task(w.said(A, HOME, process=8))
        await turns()
        impatient.cancel()
        w.servers.slow.set()
        await turns()
        calls = len(w.servers.calls)
        assert (w.soft.servers[A].process, w.soft.servers[A].reported) == (8, False)
        assert await w.said(A, HOME, process=8) is Code.OK and len(w.servers.calls) == calls
        assert await w.said(A, HOME, process=7) is Code.NOT_READY

    run(scenario)


def test_one_host_holds_few_calls() -> None:
    """IN-43. Goal: made-up servers of one host do not delay those of others. Method: calls that hang."""

    async def scenario(w: World) -> None:
        w.servers.slow = asyncio.Event()
        tasks = [asyncio.create_task(w.said(f"{n:032x}", HOME)) for n in range(20)]
        await turns()
        assert w.servers.open == limits.SERVER_CALLS_PER_HOST_MAX
        w.servers.slow.set()
        await asyncio.gather(*tasks)

    run(scenario)


@pytest.mark.deep
def test_nobody_keeps_a_server_out_that_starts_again() -> None:
    """IN-43. Goal: a restarted server is accepted at once, even if others give its uuid or fill all places of unknown
    applicants. Method: a server that starts again, of which the soft state, the catalog, or nobody knows. Before its
    first heartbeat, its own host and others give its uuid at silent addresses, and its address with other processes;
    for a known server there are as many strangers as a master takes, too. It counts with its first heartbeat."""

    async def scenario(w: World, known: str) -> None:
        w.servers.listen(A, HOME)
        w.servers.processes[HOME] = 7
        if known == "soft":
            assert await w.said(A, HOME, process=7) is Code.OK
        elif known == "catalog":
            w.catalog[A] = [HOME]
        w.servers.slow, w.servers.quick = asyncio.Event(), {HOME}
        own, others = "ipv4:10.0.0.1", [f"ipv4:10.1.{n >> 8}.{n & 255}" for n in range(limits.SERVER_APPLICANTS_MAX)]
        strangers = [
            asyncio.create_task(w.said(A, Address("void", 1), process=6, peer=p)) for p in (others[0], others[1])
        ]
        if known != "nobody":
            w.servers.processes[HOME] = 8
            strangers += [asyncio.create_task(w.said(A, Address("void", 9 + n), peer=own)) for n in range(9)]
            strangers += [asyncio.create_task(w.said(f"{n:032x}", OTHER, peer=p)) for n, p in enumerate(others)]
        codes = [
            await at_once(w.said(A, HOME, process=p, peer=own)) for p in (*range(20, 60), w.servers.processes[HOME])
        ]
        assert codes == [Code.NOT_READY] * 40 + [Code.OK]
        w.servers.slow.set()
        assert set(await asyncio.gather(*strangers)) == {Code.NOT_READY, Code.OVERLOADED} - (
            {Code.OVERLOADED} if known == "nobody" else set()
        )
        assert w.soft.servers[A].addresses == (HOME,)

    for known in ("soft", "catalog", "nobody"):
        run(lambda w, known=known: scenario(w, known))  # type: ignore[misc]


def test_one_uuid_has_few_applicants() -> None:
    """IN-43. Goal: the applicants with one uuid are bounded, and one whose call failed gives its place up. Method: many
    addresses and processes from one host and from many, while calls hang, and when they have failed."""

    async def scenario(w: World) -> None:
        w.servers.slow = asyncio.Event()
        tasks = [asyncio.create_task(w.said(A, Address("void", 1 + n))) for n in range(10)]
        tasks += [asyncio.create_task(w.said(A, HOME, peer=f"ipv4:10.2.0.{n}")) for n in range(40)]
        tasks += [asyncio.create_task(w.said(A, HOME, process=n, peer=f"ipv4:10.2.0.{n}")) for n in range(1, 40)]
        await turns()
        assert len(w.admission) == limits.SERVER_APPLICANTS_PER_UUID_MAX
        w.servers.slow.set()
        codes = await asyncio.gather(*tasks)
        assert codes[:10].count(Code.NOT_READY) == limits.SERVER_APPLICANTS_PER_UUID_AND_HOST_MAX
        for n in range(40):
            assert await w.said(A, Address("void", 1 + n), peer="ipv4:10.3.0.1") is Code.NOT_READY
        assert len(w.admission) <= limits.SERVER_APPLICANTS_PER_UUID_MAX

    run(scenario)


def test_of_two_that_give_one_uuid_at_once_one_counts() -> None:
    """IN-43. Goal: the address of a server does not change while another process answers at the former one, also if the
    calls to both were under way together. Method: the server and another listener come while the call to where the
    catalog lists the server hangs."""

    async def scenario(w: World) -> None:
        for place, process in ((HOME, 7), (OTHER, 6)):
            w.servers.listen(A, place)
            w.servers.processes[place] = process
        w.catalog[A] = [Address("void", 1)]
        w.servers.slow, w.servers.quick = asyncio.Event(), {HOME, OTHER}
        tasks = [asyncio.create_task(w.said(A, HOME, process=7)), asyncio.create_task(w.said(A, OTHER, process=6))]
        await turns()
        assert w.servers.open == 2
        w.servers.slow.set()
        assert await asyncio.gather(*tasks) == [Code.OK, Code.ILLEGAL_STATE]
        assert (w.soft.servers[A].addresses, w.soft.servers[A].process) == ((HOME,), 7)

    run(scenario)


def test_one_listener_is_one_server_however_many_uuids_it_answers_by() -> None:
    """IN-43. Goal: a process that answers by any uuid counts as one server at a time, and one host's servers are
    bounded. Method: one address, many uuids, one after the other; then many listeners, until a host has its share,
    which moving to it does not exceed, and until there is no room; one that the catalog lists comes in all the same,
    and a long silent one of no tablet gives way."""

    async def scenario(w: World) -> None:
        for n in range(50):
            w.servers.listen(f"{n:032x}", HOME)
            assert await w.said(f"{n:032x}", HOME) is Code.OK
        assert list(w.soft.servers) == [f"{49:032x}"]
        now_us, most = w.clock.now_us, limits.SERVERS_PER_HOST_MAX
        for n in range(limits.SERVERS_MAX - 1):
            host = f"ipv4:10.0.1.{n // most}" if n else "ipv4:10.0.0.1"
            w.soft.servers[f"{n:031x}e"] = ServerState(f"{n:031x}e", (Address("x", 1 + n),), now_us, host)
        for uuid in (A, f"{0:031x}e"):  # a new one, and one that moves
            assert "of its host" in w.soft.admit(uuid, (Address("y", 1),), now_us, peer="ipv4:10.0.1.1")
        w.servers.listen(A, OTHER)
        assert (
            await w.said(A, OTHER) is Code.OVERLOADED and "which is the maximum" in w.admission.shown()[0].not_counted
        )
        w.catalog[B] = [Address("h", 4)]
        w.servers.listen(B, Address("h", 4))
        assert await w.said(B, Address("h", 4), peer="ipv4:10.0.1.1") is Code.OK, "the catalog lists it"
        w.clock.now_us += SERVER_SILENT_US
        assert await w.said(A, OTHER) is Code.OK and len(w.soft.servers) == limits.SERVERS_MAX + 1

    run(scenario)


def test_servers_that_no_config_has_take_no_room_from_those_that_one_has() -> None:
    """IN-43. Goal: made-up servers keep no server with tablets out, and servers with tablets keep no new one out.
    Method: a host has its share of servers that the catalog lists, and all hosts together have as many as the masters
    take: a new server is accepted. Then as many made-up ones: the next one is refused; a listed server that comes back
    at another address is accepted. A silent server with a tablet gives room to a new one, and stays."""

    async def scenario(w: World) -> None:
        now_us, most = w.clock.now_us, limits.SERVERS_PER_HOST_MAX
        for n in range(limits.SERVERS_MAX):
            uuid, host = f"{n:031x}d", f"ipv4:10.0.2.{n // most}"
            w.soft.servers[uuid] = ServerState(uuid, (Address("z", 1 + n),), now_us, host, listed=True)
        w.servers.listen(A, HOME)
        assert await w.said(A, HOME, peer="ipv4:10.0.2.0") is Code.OK, "listed servers take no room"
        for n in range(limits.SERVERS_MAX - 1):
            host = f"ipv4:10.0.1.{n // most}"
            w.soft.servers[f"{n:031x}e"] = ServerState(f"{n:031x}e", (Address("x", 1 + n),), now_us, host)
        w.servers.listen(B, OTHER)
        assert await w.said(B, OTHER) is Code.OVERLOADED
        w.catalog[L] = [Address("void", 1)]
        w.servers.listen(L, Address("h", 4))
        assert await w.said(L, Address("h", 4), peer="ipv4:10.0.1.1") is Code.OK, "the catalog has it, elsewhere"
        assert w.soft.servers[L].listed and not w.soft.servers[A].listed
        only = RaftConfig(OpId(1, 1), (Member(A, (HOME,)),))
        w.soft.tablets["t"] = TabletState(only, told={A: only})
        w.soft._settle("t", w.soft.tablets["t"])
        w.clock.now_us += SERVER_SILENT_US
        for n in range(limits.SERVERS_MAX - 1):
            w.soft.servers[f"{n:031x}e"].last_heard_us = w.clock.now_us
        assert await w.said(B, OTHER) is Code.OK and A in w.soft.servers, "the silent one counts no more, and stays"

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (beat("", HOME), "names its server"),
        (beat("a" * 31, HOME), "names its server"),
        (beat("A" * 32, HOME), "names its server"),
        (beat("a" * 400, HOME), "names its server"),
        (beat(A), "says where"),
        (beat(A, *[HOME] * (limits.SERVER_ADDRESSES_MAX + 1)), "says where"),
        (beat(A, Address("unix:/run/x", 1)), "no host"),
        (beat(A, Address("", 1)), "no host"),
        (beat(A, Address("h" * 254, 1)), "no host"),
        (beat(A, Address("h/../x", 1)), "no host"),
        (beat(A, Address("h\0", 1)), "no host"),
        (beat(A, Address("h", 0)), "no host"),
        (beat(A, Address("h", 65_536)), "no host"),
        (beat(A, HOME, location="x" * (limits.NAME_LENGTH_MAX + 1)), "location"),
        (beat(A, HOME, version="x" * (limits.NAME_LENGTH_MAX + 1)), "version"),
    ],
)
def test_impossible_heartbeats_are_refused(request_: pb.HeartbeatRequest, says: str) -> None:
    """IN-43. Goal: what can be no server makes no applicant and no call. Method: each field, just beyond its bound."""
    with pytest.raises(Refused, match=says) as caught:
        check_sender(heartbeat_from_pb(request_)[0])
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_possible_addresses_are_taken() -> None:
    """IN-43. Goal: names, IPv4 and IPv6 stay usable. Method: one of each; and an identity that fits."""
    for host in ("localhost", "server-1.rack_2.example", "10.0.0.1", "[::1]", "[fe80::1:2]"):
        told, _ = heartbeat_from_pb(beat(A, Address(host, 7050)))
        check_sender(told)
        assert told.addresses == (Address(host, 7050),)
    for cluster in ("", CLUSTER):
        assert why_not(pb.IdentityReply(uuid=A, kind=TABLET_SERVER, cluster_id=cluster), A, CLUSTER) == ""


PLACES = [Address("h", port) for port in range(1, 5)]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("ABL"), st.sampled_from(PLACES), st.sampled_from(["beat", "listen", "leave"])),
        max_size=30,
    )
)
def test_no_sequence_of_heartbeats_puts_a_server_where_it_does_not_answer(
    steps: list[tuple[str, Address, str]],
) -> None:
    """IN-43. Goal: whatever heartbeats arrive, a server counts only at an address where it answered, and keeps it while
    it answers there. Method: two honest servers and a liar, who beats for any of the three from any place, in any
    order, while servers come to places and leave them."""

    async def scenario(w: World) -> None:
        uuids = {"A": A, "B": B, "L": L}
        for name, place, what in steps:
            w.clock.now_us += PAUSE_US_FIRST << 7
            uuid = uuids[name]
            before = {u: s.addresses for u, s in w.soft.servers.items()}
            if what == "listen":
                w.servers.listen(uuid, place)
            elif what == "leave":
                w.servers.listening.pop(place, None)
            else:
                code = await w.said(uuid, place)
                here = w.servers.listening.get(place)
                moved = [a for a in before.get(uuid, ()) if a != place]
                stays = [a for a in moved if a in w.servers.listening and w.servers.listening[a].uuid == uuid]
                known = before.get(uuid) == (place,)
                expected = known or (here is not None and here.uuid == uuid and not stays)
                assert (code is Code.OK) is expected, (code, place, before)
                for other, addresses in before.items():
                    now = w.soft.servers.get(other)
                    assert other == uuid or now is None or now.addresses == addresses
                if not expected:
                    assert {u: s.addresses for u, s in w.soft.servers.items()} == before

    run(scenario)
