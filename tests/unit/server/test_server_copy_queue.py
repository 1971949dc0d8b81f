"""Copies that wait for a place on a server: how many, in which order, and what they count for."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.server.copies.copy_jobs import CopyJobs
from nyala.replica.server.copies.copy_queue import CopyQueue
from nyala.replica.server.copies.copy_service import CopyServicer
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.tablets.hosted import CopyJob
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import CopyFile, CopyManifest, CopyRequest, CopyWanted
from nyala.replica.types import Address, Code, DataState, Refused, limits
from tests.harness.copies import SOURCE_UUID, TARGET_UUID, new_disk, superblock
from tests.harness.managers import new_manager
from tests.harness.patience import patience_s
from tests.harness.server_pair import until
from tests.unit.server.test_server_heartbeat import ALONE

WHERE = [Address("127.0.0.1", 1)]
FORGER, LEADER = "10.0.0.1", "10.0.0.2"
TABLETS_MAX = 20


class Silent:
    """A source that answers nothing until the test lets it refuse. `asked` are the tablets that it was asked for."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.asked: list[str] = []

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted | None = None
    ) -> CopyManifest:
        self.asked.append(tablet_id)
        assert self.free.wait(patience_s(60.0))
        raise Refused(Code.UNAVAILABLE, "silent")

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        raise AssertionError

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        raise AssertionError

    def abort(self) -> None:
        self.free.set()


class Target:
    """A server whose copies come from a silent source."""

    def __init__(self, manager: TabletManager, source: Silent) -> None:
        self.manager, self.source = manager, source
        self.jobs = CopyJobs(manager, lambda uuid, addresses: source)
        self.service = CopyServicer(manager, self.jobs, SimpleNamespace(), lambda *given: (0, b""))  # type: ignore[arg-type]

    def ask(self, tablet_id: str, host: str = "") -> None:
        request = CopyRequest(
            dest_uuid=TARGET_UUID,
            from_uuid=SOURCE_UUID,
            tablet_id=tablet_id,
            term=1,
            current_state=DataState.DOES_NOT_EXIST,
        )
        self.jobs.start(request, WHERE, host)

    async def call(self, tablet_id: str, host: str) -> int:
        """The code of the reply to a call from that host."""
        request = pb.StartTabletCopyRequest(
            dest_uuid=TARGET_UUID,
            from_uuid=SOURCE_UUID,
            from_addresses=[pb.Address(host="127.0.0.1", port=1)],
            tablet_id=tablet_id,
            term=1,
            current_state=int(DataState.DOES_NOT_EXIST),
        )
        context: Any = SimpleNamespace(peer=lambda: f"ipv4:{host}:4711")
        reply = await self.service.StartTabletCopy(request, context)
        return int(reply.error.code)

    async def running(self) -> None:
        """Wait until as many copies run as may."""
        most = self.manager.options.copy_jobs_max
        await until(lambda: len(self.source.asked) == most, "as many run as may")


def run(scenario: Callable[[Target], Coroutine[Any, Any, None]]) -> None:
    fatal: list[BaseException] = []

    async def all_of_it() -> None:
        source = Silent()
        manager = new_manager(new_disk(), fatal.append, options=ServerOptions(root="unused", tablets_max=TABLETS_MAX))
        await manager.start()
        target = Target(manager, source)
        try:
            await scenario(target)
        finally:
            source.free.set()
            await target.jobs.stop()
            target.service.close()
            await manager.stop()

    asyncio.run(all_of_it())
    assert fatal == []


@contextmanager
def refused_as(code: Code) -> Iterator[pytest.ExceptionInfo[Refused]]:
    with pytest.raises(Refused) as refused:
        yield refused
    assert refused.value.code is code


def test_waiting_copies_are_bounded_per_host_and_in_all_and_take_no_room() -> None:
    """IN-60. Goal: callers that order copies of made-up tablets fill neither a server's memory nor its room for
    replicas. Method: one host asks for as many copies as may wait, and some more, over calls: those are OVERLOADED, and
    nothing is remembered of them. Another host may ask for as many; then a third is refused, too. All the while a
    tablet can be created here, though many more copies wait than this server may hold replicas. When the waiting ones
    have ended, copies are accepted again."""
    most, each = limits.COPIES_WAITING_MAX, limits.COPIES_WAITING_PER_HOST_MAX

    async def scenario(target: Target) -> None:
        running = target.manager.options.copy_jobs_max
        for number in range(running):
            assert await target.call(f"run-{number}", FORGER) == 0
        await target.running()
        for host in (FORGER, LEADER):
            codes = [await target.call(f"{host}-{number}", host) for number in range(each + 9)]
            assert codes == [0] * each + [int(Code.OVERLOADED)] * 9
        assert await target.call("other", "10.0.0.3") == int(Code.OVERLOADED)
        assert len(target.manager.tablets) == len(target.jobs.running()) == running + most
        await target.manager.create(replace(superblock(), tablet_id="real"), ALONE, campaign=False)
        for job in target.jobs.running():
            job.cancel()
        await until(lambda: target.jobs.running() == [], "all have ended")
        assert list(target.manager.tablets) == ["real"]
        assert await target.call("other", "10.0.0.3") == 0

    run(scenario)


@pytest.mark.deep
def test_refusal_of_one_more_copy_says_whose_and_how_many() -> None:
    """IN-60. Goal: an operator sees which bound was met. Method: the text for one host and for all of them."""

    async def scenario(target: Target) -> None:
        for number in range(limits.COPIES_WAITING_PER_HOST_MAX):
            target.ask(f"a-{number}", FORGER)
        with refused_as(Code.OVERLOADED) as refused:
            target.ask("one more", FORGER)
        assert f"host {FORGER} asked for" in str(refused.value) and "nothing was applied" in str(refused.value)
        for number in range(limits.COPIES_WAITING_MAX - limits.COPIES_WAITING_PER_HOST_MAX):
            target.ask(f"b-{number}", f"10.1.0.{number}")
        with refused_as(Code.OVERLOADED) as refused:
            target.ask("one more", LEADER)
        assert "host" not in refused.value.what and f"max={limits.COPIES_WAITING_MAX}" in str(refused.value)

    run(scenario)


def test_copy_whose_turn_comes_when_the_server_is_full_is_refused_then() -> None:
    """TC-11. Goal: copies that waited do not bring a server above the replicas that it may hold. Method: copies wait
    while the server is filled with tablets up to its bound: each is refused when its turn comes, its source is not
    asked, and nothing of it is on disk."""

    async def scenario(target: Target) -> None:
        manager, running = target.manager, target.manager.options.copy_jobs_max
        for number in range(running + 5):
            target.ask(f"copy-{number}", LEADER)
        await target.running()
        for number in range(TABLETS_MAX - running):
            await manager.create(replace(superblock(), tablet_id=f"t{number}"), ALONE, campaign=False)
        with refused_as(Code.OVERLOADED):
            await manager.create(replace(superblock(), tablet_id="one-more"), ALONE, campaign=False)
        asked = list(target.source.asked)
        first = target.jobs.running()[0]
        manager.options = replace(manager.options, tablets_max=TABLETS_MAX - running)
        target.source.free.set()
        await until(lambda: target.jobs.running() == [], "all have ended")
        assert target.source.asked == asked and first.error
        late = [job for job in target.jobs.ended if job.tablet_id not in asked]
        assert len(late) == 5 and all("OVERLOADED" in job.error for job in late)
        assert not any(Superblock.exists(manager.disk, job.tablet_id) for job in late)

    run(scenario)


def job_of(host: str) -> CopyJob:
    return CopyJob("t", SOURCE_UUID, TARGET_UUID, 0, host=host)


async def served(queue: CopyQueue, asked: list[str], places: int) -> list[str]:
    """The hosts in the order in which they got a place; the places are free once all have asked."""
    order: list[str] = []
    begin = asyncio.Event()

    async def one(host: str) -> None:
        async with queue.place(job_of(host)) as granted:
            assert granted
            if not begin.is_set():
                await begin.wait()
                return
            order.append(host)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for host in ["first"] * places + asked:
            group.create_task(one(host))
            await asyncio.sleep(0)
        begin.set()
    return order


@pytest.mark.parametrize("places", [1, 2, 3])
def test_host_that_asks_for_many_copies_delays_another_ones_by_one(places: int) -> None:
    """TC-11. Goal: made-up copies do not keep the real ones from their turn. Method: a hundred of one host wait, then
    three of another and one of a third: these four are among the next nine, each host's in the order of its requests,
    and all get their turn."""
    asked = ["forger"] * 100 + ["leader"] * 3 + ["third"]
    order = asyncio.run(served(CopyQueue(places), asked, places))
    assert sorted(order) == sorted(asked)
    assert order[:9].count("leader") == 3 and order[:4].count("third") == 1


def test_free_place_goes_to_the_host_with_the_fewest_running_copies() -> None:
    """TC-11. Goal: a host whose copies hang does not get the last place, too, while another one waits. Method: two
    places, both held by one host with more copies in the queue: as soon as another host waits, it gets the next place,
    whoever asked first; and with its copy running and one of the other host, too, both have one."""

    async def scenario() -> None:
        queue, held = CopyQueue(2), dict[str, asyncio.Event]()

        async def one(name: str, host: str) -> None:
            async with queue.place(job_of(host)):
                held[name] = asyncio.Event()
                await held[name].wait()

        async with asyncio.TaskGroup() as group:
            for name in ("a1", "a2", "a3", "a4", "b1", "b2"):
                group.create_task(one(name, name[0]))
                await asyncio.sleep(0)
            await until(lambda: sorted(held) == ["a1", "a2"], "one host has both places")
            for ends, begins in (("a2", "b1"), ("b1", "b2"), ("b2", "a3"), ("a1", "a4")):
                held[ends].set()
                await until(partial(held.__contains__, begins), f"{begins} follows {ends}")
                assert sum(not event.is_set() for event in held.values()) == 2
            held["a3"].set()
            held["a4"].set()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(40))
def test_no_place_is_lost_or_given_twice_whatever_is_cancelled(seed: int) -> None:
    """TC-12. Goal: no place is lost with a copy that is cancelled, and no queue grows with those. Method: seeded copies
    of three hosts begin, end, and are cancelled while they wait or at the moment in which a place becomes free: never
    do more run than may, none waits while a place is free, a cancelled one is told so and is no longer in the queue;
    in the end as many places are free as there were."""
    rng = random.Random(seed)

    async def scenario() -> None:
        places = rng.randrange(1, 4)
        queue = CopyQueue(places)
        waiting, running = set[CopyJob](), dict[CopyJob, asyncio.Event]()

        async def one(job: CopyJob) -> None:
            async with queue.place(job) as granted:
                assert granted is not job.cancelled.is_set()
                waiting.discard(job)
                if granted:
                    running[job] = asyncio.Event()
                    await running[job].wait()
                    del running[job]

        async with asyncio.timeout(patience_s(60.0)), asyncio.TaskGroup() as group:
            for _ in range(60):
                for _ in range(rng.randrange(3)):
                    job = job_of(rng.choice("abc"))
                    waiting.add(job)
                    group.create_task(one(job))
                for event in rng.sample(list(running.values()), rng.randrange(len(running) + 1)):
                    event.set()
                if rng.random() < 0.5:
                    await asyncio.sleep(0)
                for job in rng.sample(sorted(waiting, key=id), min(len(waiting), rng.randrange(3))):
                    if job.place is not None and not job.place.done():
                        job.cancel()
                for _ in range(8):
                    await asyncio.sleep(0)
                assert len(running) <= places and (len(running) == places or not waiting)
                assert sum(map(len, queue._waiting.values())) == len(waiting)
            while running or waiting:
                for event in running.values():
                    event.set()
                await asyncio.sleep(0)
        assert not queue._waiting and queue._free == places and not queue._running.total()

    asyncio.run(scenario())
