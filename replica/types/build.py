"""What this build is called, said in one place: the package's metadata."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("nyala")
"""Of servers, masters and the command; what durable formats can be read is said by their own versions."""
