"""Settings that a test gives one running server: numbers, in files beside the server's folder, read each time."""

from __future__ import annotations

from pathlib import Path

from tests.harness.cluster import ServerProcess


def tell(server: ServerProcess, what: str, number: float) -> None:
    """Give the server this number from now on; 0: as usual."""
    _file(server.root, what).write_text(str(number))


def told(root: Path, what: str) -> float:
    """Return the last number for the server with the folder `root`; 0 if there is none."""
    path = _file(root, what)
    return float(path.read_text() or 0) if path.exists() else 0.0


def _file(root: Path, what: str) -> Path:
    return root.with_name(f"{root.name}.{what}")
