"""Every request that a server accepts has stated bounds, and every field of it has a rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpc_health.v1 import health_pb2

from nyala.replica.rpc import pb
from nyala.replica.rpc.call_costs import arrival_cost
from nyala.replica.rpc.request_fields import RULES, rule_of
from nyala.replica.rpc.rights import RIGHTS
from nyala.replica.types import limits
from tests.tidy.test_layers import parsed

ROOT = Path(__file__).resolve().parents[2] / "replica"
HANDLING = ("master/group", "master/requests", "rpc", "server/copies", "server/requests", "tablet_copy/wire")
"""Folders with handlers, and with what handlers call to run work on a thread."""
RUNS_ON_A_THREAD = {"run_in_executor", "to_thread", "in_thread", "submit", "Thread", "on_thread"}
OWN = "no request's work"
ON_THREADS: dict[str, tuple[str, ...]] = {
    "master/group/catalog_copies.py CatalogCopies.expire_forever": (OWN,),
    "master/group/catalog_copies.py CatalogCopies.end": (OWN,),
    "master/group/catalog_group.py CatalogGroup._run_heavy": (OWN,),
    "master/group/catalog_group.py CatalogGroup.start": (OWN,),
    "master/group/catalog_group.py CatalogGroup._change": ("source positions", "tablets of a table"),
    "master/group/catalog_group.py CatalogGroup.flushed": (OWN,),
    "master/group/catalog_group.py CatalogGroup.check_files": (OWN,),
    "master/group/catalog_group.py CatalogGroup.stop": (OWN,),
    "master/group/file_check.py FileChecker.belong": (OWN,),
    "master/group/file_check.py FileChecker.check_all": (OWN,),
    "master/group/joining.py Joining._copy": (OWN,),
    "master/requests/master_service.py MasterService.CreateTable": ("reading of writer schemas",),
    "master/requests/master_service.py MasterService.AddWriterSchema": ("reading of writer schemas",),
    "rpc/checked_server.py RequestChecks._give_back": (OWN,),
    "rpc/checked_server.py RequestChecks._request": ("reading of a long request",),
    "rpc/connection_bound.py ConnectionBound.run_forever": (OWN,),
    "rpc/credentials.py start_as": (OWN,),
    "server/copies/copy_jobs.py CopyJobs._run": (OWN,),
    "server/copies/copy_jobs.py CopyJobs._on_pool": (OWN,),
    "server/copies/copy_jobs.py CopyJobs._settle_as_found": (OWN,),
    "server/copies/witness_data.py WitnessDataJobs.swap": (OWN,),
    "server/requests/quarantine.py quarantine_list": ("list of quarantines",),
    "server/requests/quarantine.py quarantine_purge": ("purge of quarantines",),
    "server/requests/scan_links.py ScanLinks._taken": ("handshake of a scan's connection",),
    "server/requests/scans.py Scans.get": ("get",),
    "server/requests/scans.py Scans._chunks": ("scan",),
    "server/requests/scans.py Scans.checksum": ("checksum",),
    "server/requests/writes.py Writes._elsewhere": ("check of a write", "apply of a write"),
    "tablet_copy/wire/fetch_serving.py FetchServing.taken": ("part of a copy",),
    "tablet_copy/wire/source_service.py SourceServicer.BeginCopy": ("capture of a copy", "end of a copy"),
    "tablet_copy/wire/source_service.py SourceServicer._left": ("end of a copy",),
    "tablet_copy/wire/source_service.py SourceServicer.OpenFetch": ("end of a copy",),
    "tablet_copy/wire/source_service.py SourceServicer.EndCopy": ("end of a copy",),
}
"""The functions that run work on a thread, each with its rows of `limits.THREADS`. OWN: the work is the process's own,
at its start, in its rounds, or for a change that goes on without its caller."""

FRAMES = ("WriteBundle", "FetchRequest")
"""Requests that come on connections of our own."""


def _methods() -> dict[str, Any]:
    return {
        f"{service.name}.{method.name}": method.input_type
        for service in (*pb.DESCRIPTOR.services_by_name.values(), *health_pb2.DESCRIPTOR.services_by_name.values())
        for method in service.methods
    } | {name: pb.DESCRIPTOR.message_types_by_name[name] for name in FRAMES}


def _fields() -> Iterator[Any]:
    waiting, seen = list(_methods().values()), set()
    while waiting:
        message = waiting.pop()
        if message.name in seen:
            continue
        seen.add(message.name)
        yield from message.fields
        waiting.extend(f.message_type for f in message.fields if f.message_type is not None)


def test_every_call_states_what_a_request_may_cost() -> None:
    """IN-60. Goal: no new call comes without a bound on its memory and time. Method: the descriptors of all services
    against the table, both ways; a row that allows nothing, or more than gRPC accepts, is a mistake."""
    assert sorted(limits.REQUESTS) == sorted(_methods()), "state the bounds of the new call in replica/types/limits.py"
    for method, bound in limits.REQUESTS.items():
        assert 0 < bound.bytes_max <= limits.GRPC_MESSAGE_BYTES_MAX, method
        assert bound.fields_max > 0 and bound.memory_factor >= 2 and 0 <= bound.wait_s <= 600, method
        assert bound.field_bytes >= limits.REQUEST_FIELD_BYTES, method
        most = bound.fixed_bytes + bound.memory_base + bound.bytes_max * bound.memory_factor
        most += bound.fields_max * bound.field_bytes
        assert most <= 400 << 20, method


LATE = {"CopyService.BeginCopy", "MasterService.Heartbeat"}
"""Calls whose replies are charged once they have been made; their rows name the other bound."""


def test_every_call_states_what_its_reply_may_be() -> None:
    """IN-60, IN-80. Goal: no new call comes without a bound on its reply, and no call is so costly that it never fits
    beside others of its host. Method: the descriptors of all services against the table."""
    for method, kind in _methods().items():
        bound = limits.REQUESTS[method]
        assert bound.fixed_bytes > 0 and bound.reply_late is (method in LATE), method
        most = limits.COPY_MANIFEST_BYTES_MAX if method == "CopyService.BeginCopy" else limits.GRPC_MESSAGE_BYTES_MAX
        assert limits.REQUESTS["TabletService.GetIdentity"].reply_bytes <= bound.reply_bytes <= most, method
        if bound.items:
            field = kind.fields_by_name[bound.items]
            assert field.is_repeated or field.cpp_type == field.CPPTYPE_INT32, method
        assert bool(bound.items) is bool(bound.item_bytes or bound.reply_item_bytes), method
        if method in FRAMES:
            continue
        most = bound.fixed_bytes + bound.bytes_max * bound.memory_factor + limits.REPLY_COPIES * bound.reply_bytes
        most += bound.memory_base + bound.fields_max * bound.field_bytes + bound.bytes_max // 9 * bound.item_bytes
        if method not in LATE:
            assert most <= limits.CALLS_MEMORY_PER_HOST_BYTES_MAX, f"{method}: {most >> 20} MiB"
        small = limits.REQUEST_SMALL_BYTES
        costly = arrival_cost(method, min(small, bound.bytes_max), kind)
        assert costly <= limits.CALLS_MEMORY_PER_HOST_BYTES_MAX / 2, method


def test_every_call_states_who_may_make_it() -> None:
    """Goal: no new call is open to every certificate, or closed to all, because somebody forgot its row. Method: the
    descriptors of all services against the table of rights, both ways; each row has a role, and names a field that the
    request has."""
    methods = {name: kind for name, kind in _methods().items() if name not in FRAMES}
    assert sorted(RIGHTS) == sorted(methods), "say in replica/rpc/rights.py which roles may make the new call"
    for name, right in RIGHTS.items():
        assert right.roles and (not right.speaks_in or right.speaks_in in methods[name].fields_by_name), name


def test_design_page_lists_the_rights_as_they_are() -> None:
    """Goal: who reads which certificate may do what reads what the code checks. Method: the page's table of roles and
    calls against that of the code, both ways."""
    page = (ROOT / "rpc" / "DESIGN.md").read_text().partition("| roles | calls |")[2].partition("\n\n")[0]
    told: dict[str, tuple[set[str], bool]] = {}
    for line in page.splitlines()[2:]:
        roles, calls = line.strip("| ").split(" | ")
        named, _, kind = roles.partition("; ")
        everyone = {"server", "master", "client", "operator", "unmarked client"}
        for service, names in re.findall(r"`(\w+)`: ((?:`\w+`(?:, )?)+)", calls):
            for name in re.findall(r"`(\w+)`", names):
                told[f"{service}.{name}"] = (everyone if named == "all" else set(named.split(", ")), kind == "own kind")
    assert told == {name: (set(right.roles), right.own_kind) for name, right in RIGHTS.items()}


def test_every_repeated_field_of_a_request_states_how_often() -> None:
    """IN-60. Goal: every list has a bound. Method: the descriptors, at any depth, against the table, both ways."""
    repeated = sorted(f"{f.containing_type.name}.{f.name}" for f in _fields() if f.is_repeated)
    assert sorted(limits.REPEATED) == repeated, "state the most items of the new field in replica/types/limits.py"


def test_every_field_of_a_request_says_what_it_may_be() -> None:
    """IN-82. Goal: no name, id or number comes in unchecked. Method: the descriptors, at any depth, against the rules,
    both ways."""
    used = set()
    for field in _fields():
        own = f"{field.containing_type.name}.{field.name}"
        try:
            rule_of(field)
        except KeyError:
            raise AssertionError(f"say in replica/rpc/request_fields.py what {own} may be") from None
        used |= {own, field.name}
    assert sorted(set(RULES) - used) == []


def _threaded(folder: str) -> Iterator[str]:
    """The functions in a folder that name a way to run work on a thread: file, class and function."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        waiting: list[tuple[ast.AST, str]] = [(parsed(path.read_text()), "")]
        while waiting:
            node, name = waiting.pop()
            called = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if called in RUNS_ON_A_THREAD:
                yield f"{path.relative_to(ROOT)} {name}"
            for child in ast.iter_child_nodes(node):
                scope = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                inside = scope and (not name or (name[0].isupper() and "." not in name))
                waiting.append((child, f"{name}.{child.name}".lstrip(".") if inside else name))  # type: ignore[attr-defined]


def test_work_on_a_thread_states_what_it_costs() -> None:
    """IN-60. Goal: no handler runs work on a thread without a bound. Method: the sources of all handlers, of what they
    call, and the table of bounds, both ways."""
    found = {place for folder in HANDLING for place in _threaded(folder)}
    assert sorted(found) == sorted(ON_THREADS), (
        "state the steps of the new work in limits.THREADS, and name the row here"
    )
    named = {row for rows in ON_THREADS.values() for row in rows} - {OWN}
    assert sorted(named) == sorted(limits.THREADS)
