"""Tables of the command line on narrow terminals and in pipes: nothing that names something is ever cut."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from nyala.infra.cli import cluster, context, local_replica, quarantine, stack, unsafe
from nyala.infra.printing import TextConsole, cell
from nyala.replica import tools
from nyala.replica.types import Member, OpId, RaftConfig, hybrid_from_us

UUIDS = [letter * 32 for letter in "abc"]
ADDRESS = "server-17.example:7051"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> io.StringIO:
    """Return what is printed to a terminal of so many columns."""
    out = io.StringIO()
    console = TextConsole(file=out, width=request.param, force_terminal=True, color_system=None, legacy_windows=False)
    for module in (context, cluster, unsafe):
        monkeypatch.setattr(module, "console", console)
    return out


def servers(rows: int = 3) -> None:
    """`server list` of servers with a location and nothing wanted of them."""
    headings = (
        "kind",
        "uuid",
        "address",
        "",
        "replicas",
        "leaders",
        "disk",
        "counted memory",
        "location",
        "wanted of it",
    )
    found = [
        ("tablet server", u[:8], ADDRESS, cell("alive", "green"), 12, 4, "12.5 MiB", "140.0 MiB", "rack-1", "")
        for u in UUIDS[:rows]
    ]
    context.print_table("servers", headings, found, cluster.SERVERS_SPARE)


@pytest.mark.parametrize("narrow", [80, 60], indirect=True)
def test_narrow_terminal_gets_fewer_columns_and_whole_names(narrow: io.StringIO) -> None:
    """Goal: what a person copies from the screen is whole. Method: servers at 80 and at 60 columns."""
    servers()
    said = narrow.getvalue()
    assert all(u[:8] in said for u in UUIDS) and said.count(ADDRESS) == 3 and said.count("alive") == 3
    assert "…" not in said and max(len(line) for line in said.splitlines()) <= 80
    assert "too narrow for:" in said and "wanted of it" in said.split("too narrow for:")[1]


@pytest.mark.parametrize("narrow", [24], indirect=True)
def test_terminal_too_narrow_for_anything_folds_and_cuts_nothing(narrow: io.StringIO) -> None:
    """Goal: even there no letter is lost. Method: one server at 24 columns; its address, put together again."""
    servers(1)
    said = narrow.getvalue()
    assert "…" not in said
    rows = [line.split("│")[1:-1] for line in said.splitlines() if line.startswith("│")]
    columns = ["".join(cell.strip() for cell in column) for column in zip(*rows, strict=True)]
    assert UUIDS[0][:8] in columns and ADDRESS in columns


@pytest.mark.parametrize("narrow", [400], indirect=True)
def test_wide_terminal_gets_everything_although_a_column_is_empty(narrow: io.StringIO) -> None:
    """Goal: nothing is left out where it fits. Method: the same at 400 columns."""
    servers()
    assert "wanted of it" in narrow.getvalue() and "too narrow" not in narrow.getvalue()


@pytest.mark.parametrize("narrow", [80], indirect=True)
def test_recovery_plan_names_whole_tablets_at_80_columns(narrow: io.StringIO) -> None:
    """Goal: what is typed after --tablet can be read. Method: a plan of two tablets; what may be lost is there,
    and why a majority that lives cannot go on."""
    after, before = (RaftConfig(OpId(1, 3), tuple(Member(u) for u in group)) for group in (UUIDS[:1], UUIDS))
    at = hybrid_from_us(1_763_765_190_000_000)
    tablets = tuple(
        tools.TabletPlan(
            tablet_id=u,
            table_id="T",
            table_name="flights",
            survivor=UUIDS[0],
            place=".nyala/1",
            last=OpId(1, 10),
            time=at,
            config=after,
            before=before,
            known=OpId(1, 10),
            stuck="nobody has rows" if u == UUIDS[0] else "",
        )
        for u in UUIDS[:2]
    )
    unsafe._print_plan(tools.RecoveryPlan(tablets=tablets), unfinished=False)
    said = narrow.getvalue()
    assert all(u in said for u in UUIDS[:2]) and "…" not in said
    assert "2025-11-" in said and "22:46:30" in said
    assert said.count("cannot go on by itself") == said.count("nobody has rows") == 1


@pytest.mark.a_third
@pytest.mark.parametrize("variables", [{}, {"COLUMNS": "60"}])
def test_pipe_gets_each_row_on_one_line_as_wide_as_it_is(variables: dict[str, str]) -> None:
    """Goal: a script reads whole rows. Method: a row of 600 letters through a pipe; where COLUMNS says a width, that is
    kept to, and nothing is cut either."""
    code = "from nyala.infra.cli.context import print_table; print_table('t', ('name', 'b'), [('x' * 600, 'y z' * 9)])"
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | variables
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert out.count("x") == 600 and out.count("y") == 9 and "…" not in out
    if variables:
        assert max(len(line) for line in out.splitlines()) <= 60
    else:
        assert any("x" * 600 in line and "y z" * 9 in line for line in out.splitlines())


def test_stack_status_folds_its_uuids() -> None:
    """Goal: `nyala status` cuts nothing either. Method: its table at 60 columns, the uuid put together again."""
    child = {"name": "server-1", "state": "READY", "address": ADDRESS, "pid": 7, "restarts": 0, "last_exit": None}
    out = io.StringIO()
    Console(file=out, width=60).print(
        stack.children_table({"folder": ".nyala", "children": [{**child, "uuid": UUIDS[0]}]})
    )
    assert out.getvalue().count("a") >= 32 and "…" not in out.getvalue()


@pytest.mark.parametrize("narrow", [80], indirect=True)
def test_short_cells_and_ids_are_not_folded_at_80_columns(narrow: io.StringIO) -> None:
    """Goal: sizes and ids stay in one line of a table. Method: servers; what `quarantine list` and `local-replica list`
    print of a tablet, with ids of 32 digits."""
    servers()
    quarantined = ("aaaaaaaa", UUIDS[0], "flights", "READY", "128.5 KiB", "990.2 MiB", f"quarantine/{UUIDS[0]}-000001")
    headings: tuple[str, ...] = ("server", "tablet", "table", "was", "log", "blocks", "path")
    context.print_table("quarantine", headings, [quarantined], quarantine.SPARE)
    replica = (UUIDS[1], "flights", "READY", "4294967296", "4294967296.14", "11.1 KiB", "990.2 MiB", "")
    headings = ("tablet", "table", "state", "term", "last", "log", "blocks", "trouble")
    context.print_table("replicas", headings, [replica], local_replica.SPARE)
    said = narrow.getvalue()
    assert all(text in said for text in (*UUIDS[:2], "tablet server", "4294967296.14"))
    assert all(text in said or text.split()[0] not in said for text in ("12.5 MiB", "990.2 MiB", "11.1 KiB"))
    assert max(len(line) for line in said.splitlines()) <= 80
