"""The tutorials: their blocks, in order, by somebody who has a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import nyala
from tests.harness.cluster import LocalCluster, local_cluster, wait_until
from tests.harness.documents import ROOT, blocks, script_of

pytestmark = [pytest.mark.process, pytest.mark.deep]

ANALYST = ("│ B6 ", "│ UA ", " late.csv", "Houston", "Aguadilla", "days: 31")
DEVELOPER = (
    "not inserted: [({'id': 7}, 'ALREADY_PRESENT')]",
    "the other row is there: new",
    "one: 93.50",
    "many: 2",
    "below 100: [{'id': 7, 'balance': Decimal('93.50')}]",
    "rows: 1001",
    "seen: 2026-07-01 12:00:00+00:00",
)


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        made.add_master("--execute-decisions=none")
        for _ in range(3):
            made.add_server()
        with nyala.connect(made.masters[0].address) as cluster:
            wait_until(
                lambda: sum(s.alive for s in cluster.client.list_servers().servers) == 3, "three servers are alive"
            )
        yield made


@pytest.mark.parametrize(("page", "shown"), [("analyst", ANALYST), ("developer", DEVELOPER)])
def test_tutorial_does_what_it_says(page: str, shown: Sequence[str], servers: LocalCluster, tmp_path: Path) -> None:
    """Goal: a newcomer who types a tutorial gets what it says. Method: the blocks of the page in order, in an empty
    folder, against three servers; what they print."""
    script = script_of(blocks(ROOT / "docs" / "tutorials" / f"{page}.md"))
    environment = {
        **os.environ,
        "NYALA_MASTERS": str(servers.masters[0].address),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert [text for text in shown if text not in said] == [], said
    assert "once more" not in said
