"""Protobuf objects stay at the border: where messages are sent and received, and where they are converted."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.tidy.test_layers import ROOT, imports_of, nodes_of, package_of, source_files

AT_THE_BORDER = {
    "replica.client": "calls servers and masters",
    "replica.decision_executor": "asks a leader for the status of its replica",
    "replica.rpc": "converts",
    "replica.tablet_copy.wire": "copies between servers",
    "replica.tools": "reads what servers and masters answer",
    "replica.transport": "consensus messages between servers",
    "infra": "shows what servers and masters answer",
    "pipeline": "shows and asks what the masters answer",
}
"""Folders, all of whose modules may name messages."""
MODULES = {
    "replica/master/catalog/sources.py": "reads what a query asks of its sources",
    "replica/master/group/forming.py": "asks the other masters who they are",
    "replica/master/group/joining.py": "asks the masters of the group that it joins",
    "replica/master/heartbeats/tablet_servers.py": "calls tablet servers",
    "replica/master/kafka/kafka_status.py": "a part of the reply to `Status`",
    "replica/master/requests/conversions.py": "converts, and checks what is asked",
    "replica/master/requests/infos.py": "makes what lists have in them",
    "replica/master/requests/lists.py": "makes replies",
    "replica/master/requests/master_service.py": "the handlers",
    "replica/master/tablets/order_batch.py": "what fits in the reply to a heartbeat",
    "replica/master/tablets/orders.py": "makes the orders of that reply",
    "replica/server/copies/copy_jobs.py": "asks a leader for a copy",
    "replica/server/copies/copy_service.py": "the handlers",
    "replica/server/heartbeats/heartbeat.py": "calls masters",
    "replica/server/requests/creations.py": "converts, and checks what is asked",
    "replica/server/requests/leaders.py": "calls leaders",
    "replica/server/requests/quarantine.py": "makes replies",
    "replica/server/requests/scans.py": "a handler, and the parts of its reply",
    "replica/server/requests/tablet_service.py": "the handlers",
    "replica/server/requests/write_links.py": "requests and replies of small writes",
    "replica/server/requests/writes.py": "a handler",
    "replica/server/tablets/status.py": "makes the status of one replica",
}
"""Modules of masters and servers that name messages, and the reason. A module is added only after it was read as
such."""


def names_messages(path: Path, text: str) -> bool:
    """Return whether a module imports the generated messages."""
    return any(name.endswith((".rpc.pb", ".nyala_pb2")) for _, name in imports_of(path, text))


def test_messages_are_named_at_the_border_only() -> None:
    """Goal: a room changes without its wire, and nothing keeps a message alive. Method: the imports of every module
    against the tables above, which name only modules that need messages; tried on an invented module."""
    assert names_messages(ROOT / "replica/raft/x.py", "from nyala.replica.rpc import config_to_pb, pb")
    assert not names_messages(ROOT / "replica/raft/x.py", "from nyala.replica.rpc import config_to_pb, pb_grpc")
    naming = {path for path in source_files() if names_messages(path, path.read_text())}
    inside = {str(p.relative_to(ROOT)) for p in naming if package_of(p) not in AT_THE_BORDER}
    assert inside == MODULES.keys(), sorted(inside ^ MODULES.keys())


def test_lack_of_memory_is_no_refusal_of_arrow() -> None:
    """IN-30. Goal: no handler of pyarrow's errors takes Arrow's MemoryError, a subclass of both, for a fault of the
    data. Method: each handler of `pa.ArrowException`, or of a constant that has it, follows one of MemoryError."""
    found = 0
    for path in source_files():
        nodes = nodes_of(path.read_text())
        names = {"ArrowException"}
        for node in nodes:
            if isinstance(node, ast.Assign) and "ArrowException" in ast.unparse(node.value):
                names |= {ast.unparse(target) for target in node.targets}
        names |= {"NOT_COMPARABLE"}
        for node in nodes:
            if not isinstance(node, ast.Try):
                continue
            caught = [ast.unparse(handler.type) if handler.type else "" for handler in node.handlers]
            for at, text in enumerate(caught):
                if names & set(re.findall(r"\w+", text)):
                    found += 1
                    assert "MemoryError" in text or "MemoryError" in caught[:at], f"{path}:{node.lineno} {text}"
    assert found > 10
