"""Describes the machine of a measurement, because a figure means little without it."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("nyala", "pyarrow", "polars", "numpy", "grpcio", "fastavro", "pyspark")


def machine() -> dict[str, Any]:
    """Cores, memory (MB), kernel, Python, versions of the libraries, and the present load of the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _first(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo")) or platform.processor(),
        "memory_mb": int(_first(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo")) or 0) // 1024,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def machine_line(facts: dict[str, Any]) -> str:
    """The same in one line for people."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    cores = f"{facts['cores']} cores ({facts['cpu']}), {facts['memory_mb']:,} MB"
    busy = f"load average {facts['load_average']:.1f} at the start"
    return f"{cores}, {facts['kernel']}, Python {facts['python']}, {versions}; {busy}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _first(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
    return found[1].strip() if found else ""
