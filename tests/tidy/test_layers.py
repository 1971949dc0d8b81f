"""Imports point down only, and the core of consensus knows no clock, no chance and no I/O."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BASE = {"schemas", "replica.base"}
LOW = BASE | {"replica.rows", "replica.disk"}
LAYERS_1_3 = LOW | {"replica.policy", "replica.raft", "replica.rpc", "replica.wal", "replica.cmeta", "replica.tablet"}
LAYERS_0_4 = LAYERS_1_3 | {"replica.host", "replica.copy", "replica.client"}

ALLOWED: dict[str, set[str]] = {
    "schemas": set(),
    "replica.base": set(),
    "replica.policy": {"replica.base"},
    "replica.rows": BASE,
    "replica.raft": {"replica.base"},
    "replica.disk": BASE,
    "replica.rpc": LOW - {"replica.disk"} | {"replica.raft"},
    "replica.wal": BASE | {"replica.disk"},
    "replica.cmeta": BASE | {"replica.disk"},
    "replica.tablet": LOW,
    "replica.host": LAYERS_1_3 - {"replica.rpc"},
    "replica.copy": LAYERS_1_3 - {"replica.rpc"} | {"replica.host"},
    "replica.client": BASE | {"replica.rpc", "replica.rows"},
    "replica.peers": LAYERS_0_4,
    "replica.steer": BASE | {"replica.rpc", "replica.client"},
    "replica.copywire": LAYERS_0_4 | {"replica.peers"},
    "replica.server": LAYERS_0_4 | {"replica.peers", "replica.copywire"},
    "replica.master": LAYERS_0_4 | {"replica.peers", "replica.copywire", "replica.steer"},
    "replica.tools": LAYERS_0_4 | {"replica.copywire", "replica.server", "replica.master"},
    "replica.api": BASE | {"replica.client", "replica.rows"},
    "pipeline": BASE
    | {"replica.client", "replica.steer", "replica.policy", "replica.rows", "replica.rpc", "infra.jars"},
    "infra": LAYERS_0_4 | {"replica.api", "replica.tools", "pipeline"},
    "jobs": BASE | {"pipeline", "replica.client", "replica.tools"},
}
"""Room -> rooms it may import. `replica.rows` (table schemas, batches, keys) is shared by the tablet and by clients."""

THIRD_PARTY_BANNED: dict[str, set[str]] = {
    "replica.raft": {"asyncio", "threading", "time", "random", "os", "socket", "logging", "uuid", "grpc", "pyarrow"},
    "replica.base": {"grpc", "pyarrow", "numpy", "fastavro", "polars", "pyspark"},
    "replica.policy": {"asyncio", "threading", "time", "random", "os", "socket", "grpc", "pyarrow", "pyspark"},
    "replica.host": {"grpc", "asyncio", "pyspark"},
    "replica.copy": {"grpc", "asyncio", "pyspark"},
    "replica.wal": {"grpc", "asyncio", "pyspark", "pyarrow"},
    "replica.client": {"pyspark"},
    "replica.api": {"pyspark"},
}


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return f"replica.{parts[1]}" if parts[0] == "replica" and len(parts) > 2 else parts[0]


def source_files() -> list[Path]:
    tops = ["schemas", "replica", "pipeline", "jobs", "infra"]
    return sorted(p for top in tops for p in (ROOT / top).rglob("*.py") if "_pb2" not in p.name)


def imports_of(path: Path, text: str) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of each import; a relative one is named by the folder that it means."""
    found: list[tuple[int, str]] = []
    folders = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ("nyala", *folders[: max(0, len(folders) + 1 - node.level)]) if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def target_room(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] != "nyala":
        return None
    if len(parts) == 1 or parts[1] not in {"schemas", "replica", "pipeline", "jobs", "infra"}:
        return "replica.api"
    if parts[1] == "replica":
        return f"replica.{parts[2]}" if len(parts) > 2 else "replica"
    return "infra.jars" if parts[1:3] == ["infra", "jars"] else parts[1]


def wrong_imports(path: Path, text: str) -> list[str]:
    """One line for each import of the file that the tables do not allow."""
    room = room_of(path)
    wrong = []
    for line, name in imports_of(path, text):
        target = target_room(name)
        if target and target.split(".")[0] != room and target != room and target not in ALLOWED[room]:
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}: {room} may not import {target}")
        if name.split(".")[0] in THIRD_PARTY_BANNED.get(room, set()):
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}, which {room} must not know")
    return wrong


@pytest.mark.parametrize("path", source_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down_only(path: Path) -> None:
    """Goal: an edge that the table does not name turns this red. Method: parse every import of the file."""
    if room_of(path) == "replica":
        return
    wrong = wrong_imports(path, path.read_text())
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("place", "text", "told"),
    [
        ("replica/raft/x.py", "from nyala.replica.host import Replica", "replica.raft may not import replica.host"),
        ("replica/raft/x.py", "import nyala.replica.host", "replica.raft may not import replica.host"),
        ("replica/raft/x.py", "from ..host import replica", "replica.raft may not import replica.host"),
        ("replica/raft/x.py", "from .. import host", "replica.raft may not import replica.host"),
        ("replica/raft/__init__.py", "from ..host.replica import Replica", "replica.raft may not import replica.host"),
        ("replica/client/x.py", "from ...pipeline import sender", "replica.client may not import pipeline"),
        ("pipeline/source/x.py", "from ...infra import local", "pipeline may not import infra"),
        ("replica/raft/x.py", "def f():\n    import time", "imports time, which replica.raft must not know"),
        ("replica/raft/x.py", "from .core import Raft\nfrom ..base import OpId\nfrom . import core", ""),
        ("pipeline/source/x.py", "from ..sender import Sender\nfrom .where import parse_where", ""),
        ("pipeline/source/x.py", "from ...infra.jars import jars", ""),
    ],
)
def test_import_that_points_up_is_seen_however_it_is_written(place: str, text: str, told: str) -> None:
    """Goal: the test above can fail. Method: files that are not there, with imports up and down, also relative ones."""
    assert [told in line for line in wrong_imports(ROOT / place, text)] == ([True] if told else [])


def test_no_grab_bag_modules_exist() -> None:
    """Goal: things are named for what they are. Method: look for file names that say nothing."""
    assert [p for p in source_files() if p.stem in {"utils", "helpers", "common", "misc", "util"}] == []


@pytest.mark.parametrize("path", source_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_assert_statement_guards_production_code(path: Path) -> None:
    """Goal: invariants survive `python -O`. Method: no assert statement outside tests."""
    lines = [n.lineno for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Assert)]
    assert lines == [], f"use check() in {path.relative_to(ROOT)} at lines {lines}"


def test_typing_folder_mirrors_the_top_level_package() -> None:
    """Goal: mypy sees `nyala` as users import it. Method: every module of replica/api is linked beside the rooms."""
    linked = {p.name for p in (ROOT / ".typing" / "nyala").iterdir()}
    modules = {p.name for p in (ROOT / "replica" / "api").glob("*.py")}
    assert modules | {"schemas", "replica", "pipeline", "jobs", "infra"} <= linked
