"""What a test tells a running server of its own: numbers, in files beside the server's folder, read each time."""

from __future__ import annotations

from pathlib import Path

from tests.harness.cluster import ServerProcess


def tell(server: ServerProcess, what: str, number: float) -> None:
    """From now on the server is `told` this number; 0: as usual."""
    _file(server.root, what).write_text(str(number))


def told(root: Path, what: str) -> float:
    """What the server with the folder `root` was told last; 0 if nothing."""
    path = _file(root, what)
    return float(path.read_text() or 0) if path.exists() else 0.0


def _file(root: Path, what: str) -> Path:
    return root.with_name(f"{root.name}.{what}")
