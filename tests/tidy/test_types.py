"""Requests and contexts of gRPC have types of their own; `Any` occurs only if a library forces it."""

from __future__ import annotations

import ast
from collections import Counter

from tests.tidy.test_layers import ROOT, nodes_of, package_of, source_files

CALLS = {"request", "_request", "context", "_context"}
ANY_IN_SIGNATURES: dict[str, tuple[int, str]] = {
    "infra": (56, "click and typer have no types; states and reports of the stack are JSON"),
    "pipeline": (88, "pyspark, kafka-python and Arrow have no types; Avro data is what its schema says"),
    "replica.api": (28, "values and columns of users: pandas, Arrow, plain Python"),
    "replica.types": (8, "kafka-python has no types; objects made on demand"),
    "replica.client": (30, "Arrow has no types; stubs serve both kinds of gRPC channel"),
    "replica.consensus_metadata": (4, "Avro data and JSON"),
    "replica.tablet_copy.wire": (7, "stubs serve both kinds of gRPC channel"),
    "replica.raft_driver": (4, "results of a state machine, which differ by its kind"),
    "replica.master": (25, "kafka-python and prometheus-client have no types"),
    "replica.transport": (2, "prometheus-client has no types"),
    "replica.rows": (54, "Arrow, numpy and polars have no types"),
    "replica.rpc": (26, "protobuf's descriptors and gRPC's own handlers have no types; Arrow"),
    "replica.server": (22, "Arrow and prometheus-client have no types; results that a callback brings"),
    "replica.decision_executor": (4, "one walk over the fields of every record; kafka-python has no types"),
    "replica.tablet": (63, "Arrow, numpy and polars have no types"),
    "replica.tools": (13, "plans and evidence are JSON; stubs serve both kinds of gRPC channel"),
    "replica.wal": (4, "Avro data"),
    "schemas": (18, "Avro schemas are JSON, and a datum is what its schema says"),
}
"""Folder -> the largest number of functions whose signature names `Any`, and what forces it. A number may fall, not
grow."""


def signatures(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions of a module."""
    return [n for n in nodes_of(text) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Return all parameters of a function."""
    a = function.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]


def names_any(annotation: ast.expr | None) -> bool:
    """Return whether an annotation is `Any`, or has it inside."""
    return annotation is not None and any(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(annotation))


def wrong_types(place: str, text: str) -> list[str]:
    """Return the parameters of gRPC handlers without a type, and arguments whose type nothing checks."""
    wrong = [
        f"{place}:{function.lineno} {function.name}: {argument.arg} is {ast.unparse(argument.annotation)}"
        for function in signatures(text)
        for argument in arguments(function)
        if argument.arg in CALLS and argument.annotation is not None and names_any(argument.annotation)
    ]
    lines = enumerate(text.splitlines(), 1)
    return wrong + [f"{place}:{n} ignores an argument's type" for n, line in lines if "ignore[arg-type]" in line]


def test_requests_have_types_and_any_stands_only_where_a_library_forces_it() -> None:
    """Goal: a handler whose request or context is `Any`, an ignored argument's type, and one more signature with `Any`
    in a folder turn this red. Method: the syntax tree of every file; the check is tried on a wrong file first."""
    sample = "async def Write(self, request: Any, context: Any) -> None: pass\nRefused(**v)  # type: ignore[arg-type]\n"
    assert len(wrong_types("sample", sample)) == 3
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for path in source_files():
        text = path.read_text()
        wrong += wrong_types(str(path.relative_to(ROOT)), text) if package_of(path).startswith("replica.") else []
        counts[package_of(path)] += sum(
            any(names_any(a.annotation) for a in arguments(f)) or names_any(f.returns) for f in signatures(text)
        )
    assert not wrong, "\n".join(wrong)
    allowed = {folder: count for folder, (count, _) in ANY_IN_SIGNATURES.items()}
    more = {folder: count for folder, count in counts.items() if count > allowed.get(folder, 0)}
    assert not more, f"more signatures name Any than before: {more}; name the type"


RECORDS = {"config", "decision", "member", "outcome", "position", "proposal", "report", "table", "tablet", "wish"}
"""What a record of the masters' topics or catalog, or a part of one, is called where it is handed on."""
UNTYPED = {"Mapping", "dict"}


def untyped_records(place: str, text: str) -> list[str]:
    """Parameters and aliases that carry a record as a dict, and codecs of one beside that of `schemas`."""
    wrong = []
    for node in nodes_of(text):
        found: list[tuple[int, str, ast.expr | None]] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [(node.lineno, argument.arg, argument.annotation) for argument in arguments(node)]
        elif isinstance(node, ast.Assign):
            found = [(node.lineno, t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
            found = [each for each in found if each[1].istitle() and isinstance(each[2], ast.Subscript)]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in ("encode", "decode", "decode_bounded") and node.args[0].value in RECORDS:
                wrong.append(f"{place}:{node.lineno} has a codec of its own")
        for line, name, kind in found:
            outer = kind.value if isinstance(kind, ast.Subscript) else kind
            if name.lower() in RECORDS and isinstance(outer, ast.Name) and outer.id in UNTYPED:
                wrong.append(f"{place}:{line} {name} is {ast.unparse(kind) if kind else ''}")
    return wrong


def test_decisions_and_configs_are_typed_wherever_they_are_handed_on() -> None:
    """Goal: no folder carries a proposal, decision, outcome, report, wish, config or member as a dict, or writes or
    reads one itself. Method: parameters, aliases and calls of the codecs; the check is tried on wrong lines first."""
    sample = """
Outcome = dict[str, Any]
def say(decision: Mapping[str, Any], report: Report | None) -> None: encode("outcome", {})
"""
    assert len(untyped_records("sample", sample)) == 3
    paths = [
        path for path in source_files() if package_of(path).startswith("replica.") or package_of(path) == "pipeline"
    ]
    wrong = [line for path in paths for line in untyped_records(str(path.relative_to(ROOT)), path.read_text())]
    assert len(paths) > 300 and not wrong, "\n".join(wrong)
