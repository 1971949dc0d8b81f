"""The version of the running code. If an entry failed under one build, another build tries it again."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

from nyala.replica.types import __version__

LIBRARIES = ("pyarrow", "numpy", "polars")
"""The libraries that apply entries."""
_PACKAGE = Path(__file__).resolve().parents[3]
_FOLDERS = ("replica", "schemas")


@cache
def running_build() -> str:
    """The release, and a digest of twelve digits over the code and the releases of its libraries.

    The release alone does not suffice, because a checkout with a fix has the same release.
    """
    digest = hashlib.sha256()
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    for folder in _FOLDERS:
        for path in sorted((_PACKAGE / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(_PACKAGE)} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"
