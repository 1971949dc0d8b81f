"""What must be on the machine before anything is installed. Standard library only; run by the system's Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

FREE_BYTES_NEEDED = 3 << 30


def python_problem(version: tuple[int, int]) -> str | None:
    """One line if this Python is too old."""
    if version < (3, 11):
        found = f"{version[0]}.{version[1]}"
        return f"Python {found} is too old: install Python 3.11 or later, or say `make PYTHON=/path/to/python3.11`"
    return None


def java_problem(version_text: str | None) -> str | None:
    """One line if `java -version` printed no usable version; None is 'no java at all'."""
    if version_text is None:
        return "no `java` on the PATH: install Java 17 (Debian: apt-get install openjdk-17-jre-headless)"
    found = re.search(r'version "(\d+)', version_text)
    if not found:
        return f"`java -version` printed no version that can be read: {version_text.strip()[:80]!r}"
    if int(found[1]) < 17:
        return f"Java {found[1]} is too old for Spark 4: install Java 17 and put it first on the PATH or in JAVA_HOME"
    return None


def space_problem(free_bytes: int) -> str | None:
    """One line if the disk is nearly full."""
    if free_bytes < FREE_BYTES_NEEDED:
        return (
            f"only {free_bytes >> 20} MiB free here; the environment, jars and demo need {FREE_BYTES_NEEDED >> 20} MiB"
        )
    return None


def java_version_text() -> str | None:
    """What `java -version` prints, or None without a java."""
    java = shutil.which("java")
    if java is None:
        return None
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return result.stderr + result.stdout


def main() -> int:
    """Print one line for each problem; exit status 1 if there is one."""
    problems = [
        python_problem(sys.version_info[:2]),
        java_problem(java_version_text()),
        space_problem(shutil.disk_usage(".").free),
    ]
    for problem in filter(None, problems):
        print(f"nyala: {problem}", file=sys.stderr)
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main())
