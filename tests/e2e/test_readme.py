"""The README's walk-through, line by line: from a clone and from a wheel, with nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nyala.infra.jars import cache_folder
from tests.harness.documents import script_of, walk_through
from tests.harness.environments import EXTRAS, checkout, clean, declared, environment, install, wheel

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

ROOT = Path(__file__).parents[2]


PUBLISH = """
import nyala
from nyala.infra.local import read_state
from pathlib import Path
stack = read_state(Path(".nyala"))
schema = nyala.connect(stack["masters"]).table("readings").handle.schema
nyala.pipeline.RowPublisher(stack["kafka"], "writes.nope", schema)
"""
MISTAKES = {
    ("nyala", "topic", "create", "reading"): "there is no table 'reading'; did you mean 'readings'?",
    ("nyala", "schema", "show", "reading"): "there is no table 'reading'; did you mean 'readings'?",
    ("nyala", "schema", "list", "reading"): "there is no table 'reading'; did you mean 'readings'?",
    ("nyala", "dead-letter", "list", "reading"): "there is no table 'reading'; did you mean 'readings'",
    ("python", "-c", PUBLISH): "NOT_FOUND: there is no such topic: `nyala topic create TABLE` makes",
    ("python", "-c", "import nyala; nyala.connect()"): 'no cluster is named: connect("host:port") takes',
}
"""A new user's typing mistake -> a part of the error's last line."""


@pytest.fixture(params=["clone", "wheel"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder with an environment in `.venv`, empty but for Nyala and what it depends on, and with a clone in `nyala`.
    Its stack is ended, whatever happened."""
    sources = checkout(tmp_path / "nyala")
    what = sources if request.param == "clone" else wheel(sources, tmp_path / "dist")
    place = environment(tmp_path / ".venv", declared(what, EXTRAS))
    install(place, what, editable=request.param == "clone")
    yield tmp_path
    subprocess.run([place / "bin" / "nyala", "down"], cwd=tmp_path, capture_output=True, timeout=300, check=False)
    shutil.rmtree(tmp_path / ".nyala", ignore_errors=True)


def test_readme_walk_through_works_as_it_stands(folder: Path) -> None:
    """IN-70. Goal: who has never seen Nyala gets rows from Python, from Kafka and from Spark. Method: the README's
    blocks in order, in a folder that holds a clone named `nyala`, in an environment of its own."""
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if ".venv" not in p)
    ran = subprocess.run(
        ["bash", "-c", script_of(walk_through())], cwd=folder, env=clean(PATH=path, NYALA_CACHE=str(cache_folder())),
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert "fed by topic writes.readings, 4 partitions" in said
    from_python, from_kafka = re.findall(r"^│ 1 +[│┆].*?([\d.]+) *│$", said, re.MULTILINE)
    assert (from_python, from_kafka) == ("20.5", "21.5"), said
    assert "19.0" not in said, "its value is below 20"
    done = re.findall(r"^│ readings +│ writes.readings +│ \d +│ 1 +│ 0 +│ (\d) +│", said, re.MULTILINE)
    assert len(done) == 4 and sum(map(int, done)) == 2, said
    assert "all replicas of a tablet hold the same rows" in said
    assert re.findall(r"^\| +(\d+)\| *([\d.]+)\|$", said, re.MULTILINE) == [("1", "21.5")], said
    typed = [[folder / ".venv" / "bin" / name, *words] for name, *words in MISTAKES]
    for line, says in zip(typed, MISTAKES.values(), strict=True):
        ended = subprocess.run(line, cwd=folder, env=clean(), capture_output=True, text=True, timeout=120, check=False)
        last = ended.stderr.splitlines()[-1]
        assert says in last, (line, ended)
    count = [folder / ".venv" / "bin" / "nyala", "table", "scan", "readings", "--count"]
    counted = subprocess.run(count, cwd=folder, env=clean(), capture_output=True, text=True, timeout=120, check=True)
    assert counted.stdout.split() == ["4"], "two from Kafka, and as many that Spark has written"
