"""Imports point down only, and the core of consensus knows no clock, no chance and no I/O."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BASE = {"schemas", "replica.types"}
LOW = BASE | {"replica.rows", "replica.fs"}
LAYERS_1_3 = LOW | {
    "replica.policy",
    "replica.raft",
    "replica.rpc",
    "replica.wal",
    "replica.consensus_metadata",
    "replica.tablet",
}
LAYERS_0_4 = LAYERS_1_3 | {"replica.raft_driver", "replica.tablet_copy", "replica.client"}

ALLOWED: dict[str, set[str]] = {
    "schemas": {"replica.types"},
    "replica.types": set(),
    "replica.policy": {"replica.types"},
    "replica.rows": BASE,
    "replica.raft": {"replica.types"},
    "replica.fs": BASE,
    "replica.rpc": LOW - {"replica.fs"} | {"replica.raft"},
    "replica.wal": BASE | {"replica.fs"},
    "replica.consensus_metadata": BASE | {"replica.fs"},
    "replica.tablet": LOW,
    "replica.raft_driver": LAYERS_1_3 - {"replica.rpc"},
    "replica.tablet_copy": LAYERS_1_3 - {"replica.rpc"} | {"replica.raft_driver"},
    "replica.client": BASE | {"replica.rpc", "replica.rows"},
    "replica.transport": LAYERS_0_4,
    "replica.decision_executor": BASE | {"replica.rpc", "replica.client"},
    "replica.tablet_copy.wire": LAYERS_0_4 | {"replica.transport"},
    "replica.server": LAYERS_0_4 | {"replica.transport", "replica.tablet_copy.wire"},
    "replica.master": LAYERS_0_4 | {"replica.transport", "replica.tablet_copy.wire", "replica.decision_executor"},
    "replica.tools": LAYERS_0_4 | {"replica.tablet_copy.wire", "replica.server", "replica.master"},
    "replica.api": BASE | {"replica.client", "replica.rows"},
    "pipeline": BASE
    | {"replica.client", "replica.decision_executor", "replica.policy", "replica.rows", "replica.rpc", "infra.jars"},
    "infra": LAYERS_0_4 | {"replica.api", "replica.tools", "pipeline"},
    "jobs": BASE | {"pipeline", "replica.client", "replica.tools"},
}
"""Package -> packages it may import. `replica.rows` (table schemas, batches, keys) is shared by tablets and clients."""

FOLDERS: dict[str, dict[str, set[str]]] = {
    "replica/server": {
        "startup": set(),
        "runtime": set(),
        "tablets": {"startup", "runtime"},
        "maintenance": {"runtime", "tablets"},
        "requests": {"runtime", "tablets", "maintenance"},
        "copies": {"runtime", "tablets", "maintenance", "requests"},
        "heartbeats": {"runtime", "tablets", "requests"},
    },
    "replica/master": {
        "catalog": set(),
        "heartbeats": set(),
        "kafka": set(),
        "tablets": {"catalog", "heartbeats"},
        "group": {"catalog"},
        "requests": {"catalog", "heartbeats", "kafka", "tablets", "group", "state"},
        "decisions": {"catalog", "heartbeats", "kafka", "tablets", "state", "requests"},
    },
}
"""Package -> its folders, each with those that it may import. All may import `options.py`. Modules beside the folders
may import all of them; `state` is such a module, which the two folders above it use."""

THIRD_PARTY_BANNED: dict[str, set[str]] = {
    "replica.raft": {"asyncio", "threading", "time", "random", "os", "socket", "logging", "uuid", "grpc", "pyarrow"},
    "replica.types": {"grpc", "pyarrow", "numpy", "fastavro", "polars", "pyspark"},
    "replica.policy": {"asyncio", "threading", "time", "random", "os", "socket", "grpc", "pyarrow", "pyspark"},
    "replica.raft_driver": {"grpc", "asyncio", "pyspark"},
    "replica.tablet_copy": {"grpc", "asyncio", "pyspark"},
    "replica.wal": {"grpc", "asyncio", "pyspark", "pyarrow"},
    "replica.client": {"pyspark"},
    "replica.api": {"pyspark"},
}


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return _replica_package(parts[1:-1]) if parts[0] == "replica" and len(parts) > 2 else parts[0]


def _replica_package(names: Sequence[str]) -> str:
    """Return the package of a folder: a folder within a package belongs to the package, unless it has rules of its
    own."""
    inner = f"replica.{'.'.join(names[:2])}"
    return inner if inner in ALLOWED else f"replica.{names[0]}"


def source_files() -> list[Path]:
    tops = ["schemas", "replica", "pipeline", "jobs", "infra"]
    return sorted(p for top in tops for p in (ROOT / top).rglob("*.py") if "_pb2" not in p.name)


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source: most tests look at each, and to walk a tree costs more than to parse it."""
    return tuple(ast.walk(parsed(text)))


@cache
def imports_of(path: Path, text: str) -> list[tuple[int, str]]:
    """Return (line, absolute dotted name) of each import; a relative one is named by the folder that it means."""
    found: list[tuple[int, str]] = []
    folders = path.relative_to(ROOT).parent.parts
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ("nyala", *folders[: max(0, len(folders) + 1 - node.level)]) if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def target_package(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] != "nyala":
        return None
    if len(parts) == 1 or parts[1] not in {"schemas", "replica", "pipeline", "jobs", "infra"}:
        return "replica.api"
    if parts[1] == "replica":
        return _replica_package(parts[2:]) if len(parts) > 2 else "replica"
    return "infra.jars" if parts[1:3] == ["infra", "jars"] else parts[1]


def wrong_imports(path: Path, text: str) -> list[str]:
    """Return one line for each import of the file that the tables do not allow."""
    folder = package_of(path)
    wrong = []
    for line, name in imports_of(path, text):
        target = target_package(name)
        if target and target.split(".")[0] != folder and target != folder and target not in ALLOWED[folder]:
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}: {folder} may not import {target}")
        if name.split(".")[0] in THIRD_PARTY_BANNED.get(folder, set()):
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}, which {folder} must not know")
    return wrong


def test_imports_point_down_only() -> None:
    """Goal: an edge that the table does not name turns this red. Method: parse every import of every file."""
    sources = [path for path in source_files() if package_of(path) != "replica"]
    wrong = [line for path in sources for line in wrong_imports(path, path.read_text())]
    assert len(sources) > 400 and not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_of_a_package_import_downwards_only(folder: str) -> None:
    """Goal: a folder of a package can be read without those that use it. Method: every import of every module in it,
    against the table; the table itself names all folders and has no circle."""
    folders = FOLDERS[folder]
    assert {path.parent.name for path in (ROOT / folder).glob("*/*.py")} == folders.keys() and not circles(folders)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in (ROOT / folder).glob("*/*.py")
        for line, name in imports_of(path, path.read_text())
        if name.startswith(f"nyala.{folder.replace('/', '.')}.")
        and name.split(".")[3] not in folders[path.parent.name] | {path.parent.name, "options"}
    ]
    assert not wrong, "\n".join(wrong)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("nyala", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the modules that import each other, over however many others."""
    reach = {m: set(others) for m, others in imports.items()}
    for via in reach:  # Warshall: each module is a station once
        for m, known in reach.items():
            if via in known:
                reach[m] = known | reach[via]
    return sorted({tuple(sorted(o for o in reach[m] if m in reach[o])) for m in reach if m in reach[m]})  # type: ignore[arg-type]


def test_modules_import_each_other_in_no_circle() -> None:
    """Goal: each module can be read, tested and moved without the ones that use it. Method: all imports, also those for
    types alone and those within functions; a package's own `__init__`, which names its modules, is left out."""
    paths = {module_of(path): path for path in source_files() if path.name != "__init__.py"}
    imports = {
        module: {
            target
            for _, name in imports_of(path, path.read_text())
            for target in (name, name.rpartition(".")[0])
            if target in paths
        }
        for module, path in paths.items()
    }
    assert len(paths) > 400 and circles(imports) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]


@pytest.mark.parametrize("process", ["replica/server/process.py", "replica/master/process.py"])
def test_loop_of_a_server_has_its_threads_from_the_beginning(process: str) -> None:
    """IN-30. Goal: no call beside the loop fails because no thread can be started. Method: the loop's own pool is one
    whose threads are all started before anything else runs."""
    nodes = nodes_of((ROOT / process).read_text())
    run = next(f for f in nodes if isinstance(f, ast.AsyncFunctionDef) and f.name == "run")
    assert "set_default_executor(started_pool(" in ast.unparse(run)


@pytest.mark.parametrize(
    ("place", "text", "told"),
    [
        (
            "replica/raft/x.py",
            "from nyala.replica.raft_driver import Replica",
            "replica.raft may not import replica.raft_driver",
        ),
        ("replica/raft/x.py", "import nyala.replica.raft_driver", "replica.raft may not import replica.raft_driver"),
        ("replica/raft/x.py", "from ..raft_driver import replica", "replica.raft may not import replica.raft_driver"),
        ("replica/raft/x.py", "from .. import raft_driver", "replica.raft may not import replica.raft_driver"),
        ("replica/raft/__init__.py", "from ..rows.x import X", "replica.raft may not import replica.rows"),
        ("replica/client/x.py", "from ...pipeline import sender", "replica.client may not import pipeline"),
        ("pipeline/source/x.py", "from ...infra import local", "pipeline may not import infra"),
        ("replica/raft/x.py", "def f():\n    import time", "imports time, which replica.raft must not know"),
        ("replica/raft/x.py", "from .core import Raft\nfrom ..types import OpId\nfrom . import core", ""),
        ("pipeline/source/x.py", "from ..sender import Sender\nfrom .where import parse_where", ""),
        ("pipeline/source/x.py", "from ...infra.jars import jars", ""),
    ],
)
def test_import_that_points_up_is_seen_however_it_is_written(place: str, text: str, told: str) -> None:
    """Goal: the test above can fail. Method: invented files, with imports up and down, also relative ones."""
    assert [told in line for line in wrong_imports(ROOT / place, text)] == ([True] if told else [])


FOREIGN_PRIVATES = {
    "_asdict": "a named tuple's own method; its underscore only keeps it apart from the fields",
    "_replace": "the same",
    "_value2member_map_": "an enum's own table: a look-up that raises nothing",
    "_exit": "of `os`: an end without any cleaning up",
    "_jvm": "of PySpark, which has no other way to Spark's classes",
    "_jsc": "the same, to Spark's context",
    "_gateway": "the same, to the process that Spark runs in",
}
"""Names with an underscore that belong to others, and the reason why they are used."""


def foreign_privates(text: str) -> list[str]:
    """Return the private attributes and imports of a module that nothing in it defines: they belong to another
    module."""
    used: dict[str, int] = {}
    own: set[str] = set(FOREIGN_PRIVATES)
    for node in nodes_of(text):
        if isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                own |= {node.attr} if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") else set()
            used.setdefault(node.attr, node.lineno)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            used.update((alias.name, node.lineno) for alias in node.names)
    private = {name: line for name, line in used.items() if name.startswith("_") and not name.startswith("__")}
    return [f"{line}: {name}" for name, line in private.items() if name not in own]


def test_no_module_reaches_into_another_one() -> None:
    """Goal: an object can change inside without a check of its users, and only public names are inherited. Method: each
    private name that a module reads is defined in it, by whatever object it reads it from."""
    sources = [path for path in source_files() if path.name != "_version.py"]
    wrong = [f"{path.relative_to(ROOT)}:{line}" for path in sources for line in foreign_privates(path.read_text())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(x):\n    return x._hidden", ["2: _hidden"]),
        ("class A(B):\n    def f(self):\n        return self._inherited", ["3: _inherited"]),
        ("from a import _hidden", ["1: _hidden"]),
        ("def f(x):\n    x._hidden = 1", ["2: _hidden"]),
        ("class A:\n    def f(self, other):\n        self._mine = other._mine", []),
        ("class A:\n    _mine: int\n    def f(self):\n        return self._mine._replace(a=1)", []),
    ],
)
def test_reach_into_another_module_is_seen(text: str, told: list[str]) -> None:
    """Goal: the check above finds such a use. Method: invented modules."""
    assert foreign_privates(text) == told


def test_no_grab_bag_modules_exist() -> None:
    """Goal: modules are named for their content. Method: no file has a name that could hold anything."""
    assert [p for p in source_files() if p.stem in {"utils", "helpers", "common", "misc", "util"}] == []


def test_no_assert_statement_guards_production_code() -> None:
    """Goal: invariants survive `python -O`. Method: no assert statement outside tests."""
    texts = {path: path.read_text() for path in source_files()}
    with_asserts = {path: nodes_of(text) for path, text in texts.items() if "assert" in text}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, nodes in with_asserts.items()
        for node in nodes
        if isinstance(node, ast.Assert)
    ]
    assert found == [], "use check() there"


def test_package_folder_mirrors_the_top_level_package() -> None:
    """Goal: a clone and mypy see `nyala` as users import it. Method: every module of replica/api is linked beside the
    folders, what Spark looks for is linked beside the package, and every link has a target."""
    linked = {p.name for p in (ROOT / ".package" / "nyala").iterdir()}
    modules = {p.name for p in (ROOT / "replica" / "api").glob("*.py")}
    assert linked - {"__pycache__"} == modules | {"schemas", "replica", "pipeline", "jobs", "infra", "py.typed"}
    assert {p.name for p in (ROOT / ".package").glob("*.py")} == {"nyala_command.py", "pyspark_nyala.py"}
    assert all(p.exists() for p in (ROOT / ".package").rglob("*"))
