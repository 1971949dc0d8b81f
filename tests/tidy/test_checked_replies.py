"""Every call of masters and servers to another process says how its reply is checked."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.test_layers import parsed

ROOT = Path(__file__).resolve().parents[2] / "replica"
FOLDERS = ("master", "server", "tablet_copy", "transport")
CHECKED = "check_reply"
STUBS: dict[str, tuple[str, ...]] = {
    "master/group/forming.py ask_build": (CHECKED,),
    "master/group/forming.py _identity": (CHECKED,),
    "master/group/joining.py ask_master": (CHECKED,),
    "master/heartbeats/tablet_servers.py GrpcTabletServers.identity": (CHECKED,),
    "master/heartbeats/tablet_servers.py GrpcTabletServers.is_process": (CHECKED,),
    "master/heartbeats/tablet_servers.py GrpcTabletServers.replicas": ("`reports_in` calls check_reply",),
    "server/heartbeats/heartbeat.py Heartbeats._beat": ("`_checked` calls check_reply",),
    "server/requests/leaders.py LeaderTime.ask": (CHECKED,),
    "server/copies/copy_jobs.py CopyRequester._ask": (CHECKED,),
    "tablet_copy/wire/remote_source.py RemoteCopySource.__init__": ("each call of the class calls check_reply",),
    "transport/link.py open_link": (CHECKED,),
    "transport/sender_check.py ask": (CHECKED,),
}
"""Each function that makes a stub, with how it checks the replies; CHECKED: it calls `check_reply` itself."""


def calls_of(path: Path) -> dict[str, set[str]]:
    """By function that makes a stub, the names that it calls."""
    found: dict[str, set[str]] = {}

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, (*names, child.name))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                called = {ast.unparse(c.func).rpartition(".")[2] for c in ast.walk(child) if isinstance(c, ast.Call)}
                if any(name.endswith("Stub") for name in called):
                    found[f"{path.relative_to(ROOT)} {'.'.join((*names, child.name))}"] = called

    visit(parsed(path.read_text()), ())
    return found


def test_each_reply_of_another_process_is_checked() -> None:
    """IN-82. Goal: no new call uses a reply that nothing checks. Method: each function of masters, servers, copies and
    links that makes a stub has a row in the table, and calls `check_reply` if its row says so."""
    found = {f: called for d in FOLDERS for path in (ROOT / d).rglob("*.py") for f, called in calls_of(path).items()}
    assert sorted(found) == sorted(STUBS)
    for function, how in STUBS.items():
        assert ("check_reply" in found[function]) is (CHECKED in how), function
