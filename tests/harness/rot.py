"""Damage to a file at rest."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, at: int | None = None, mask: int = 1) -> None:
    """Flip the bits of `mask` in the byte at `at`, or in the middle of the file; a second call undoes it."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 if at is None else at)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ mask]))
