"""What `pip install` gets."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = {
    "replica/api": "nyala",
    "schemas": "nyala/schemas",
    "replica": "nyala/replica",
    "pipeline/toplevel": "",
    "pipeline": "nyala/pipeline",
    "jobs": "nyala/jobs",
    "infra": "nyala/infra",
}
"""Room -> where it is in the wheel; of rooms in one another, the first counts."""
DATA = {".py", ".pyi", ".typed", ".avsc", ".proto", ".xml"}


def test_wheel_holds_each_module_once_and_nothing_else(tmp_path: Path) -> None:
    """Goal: no module is left out of the wheel, none is in it twice, and no waste. Method: build it, without a network,
    from a copy in which an editable install has left what it leaves; every file of the rooms has one place."""
    copy = tmp_path / "copy"
    for top in {room.partition("/")[0] for room in ROOMS}:
        shutil.copytree(ROOT / top, copy / top, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    left = copy / "pipeline" / "toplevel" / "nyala.egg-info"
    left.mkdir()
    (left / "top_level.txt").write_text("nyala\n")
    wanted = set()
    for path in sorted(copy.rglob("*")):
        name = path.relative_to(copy)
        room = next((room for room in ROOMS if name.is_relative_to(room)), None)
        if room and path.suffix in DATA and left not in path.parents:
            wanted.add(str(Path(ROOMS[room]) / name.relative_to(room)))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "out",
        ".",
    ]
    ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (wheel,) = (copy / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(wanted)
    assert {"nyala/__init__.py", "pyspark_nyala.py", "nyala/infra/ivy.xml"} < wanted
