"""Checks the machine before anything is installed. Standard library only; run by the system's Python."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

FREE_BYTES_NEEDED = 3 << 30
TELL_EVERY = 10
"""The number of packages after which pip's progress is shown."""
_SAID_MAX = 4000
_PIP_FINDS = ("Collecting ", "Requirement already satisfied: ")
_PIP_UNPACKS = "Installing collected packages"
_NAMESPACE_PROGRAMS = ("ip", "unshare", "nsenter", "mount")
_NO_SPACE = ("No space left on device", "[Errno 28]")
_NO_NETWORK = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "Connection refused",
    "Network is unreachable",
    "Temporary failure in name resolution",
    "Failed to establish a new connection",
    "No route to host",
    "ProxyError",
    "SSLError",
    "Read timed out",
)


def python_problem(version: tuple[int, int]) -> str | None:
    """One line if this Python is too old."""
    if version < (3, 11):
        found = f"{version[0]}.{version[1]}"
        return f"Python {found} is too old: install Python 3.11 or later, or say `make PYTHON=/path/to/python3.11`"
    return None


def venv_problem() -> str | None:
    """One line if this Python cannot make a virtual environment: Debian has that part in a separate package."""
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return (
            f"{sys.executable} cannot make a virtual environment: install its venv module (Debian: apt-get install "
            f"{name}-venv), or say `make PYTHON=/path/to/another/python`"
        )
    return None


def java_problem(version_text: str | None) -> str | None:
    """One line if `java -version` printed no usable version; None: there is no Java at all."""
    if version_text is None:
        return (
            "no `java` on the PATH, and no JAVA_HOME: install Java 17 (Debian: apt-get install openjdk-17-jre-headless)"
        )
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


def java_path(environ: Mapping[str, str] = os.environ) -> str | None:
    """The Java that everything here uses: that of JAVA_HOME if it is set, otherwise the first on the PATH; None if
    none."""
    home = environ.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    return shutil.which("java", path=environ.get("PATH"))


def found_java_problem(environ: Mapping[str, str] = os.environ) -> str | None:
    """One line if the Java of `java_path` is missing or too old."""
    java, home = java_path(environ), environ.get("JAVA_HOME")
    if java is None:
        return f"JAVA_HOME={home} holds no bin/java: let it name Java 17, or unset it" if home else java_problem(None)
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    problem = java_problem(result.stderr + result.stdout)
    return f"{problem} (this is {java})" if problem else None


def contained_command(path: str | None = None) -> list[str]:
    """The beginning of a command line that runs in new network, mount and process namespaces, as root or not."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    program = shutil.which("unshare", path=path) or "unshare"
    return [program, *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def namespaces_problem(environ: Mapping[str, str] = os.environ) -> str | None:
    """One line if tests that cut servers off from each other cannot have their own networks on this machine."""
    path = environ.get("PATH")
    if missing := [name for name in _NAMESPACE_PROGRAMS if shutil.which(name, path=path) is None]:
        return (
            f"no {' and no '.join(f'`{name}`' for name in missing)} on the PATH, which tests of cut networks need: "
            "install iproute2 and util-linux (Debian: apt-get install iproute2 util-linux mount)"
        )
    command = [*contained_command(path), "ip", "link", "set", "lo", "up"]
    tried = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    if tried.returncode:
        said = (tried.stderr + tried.stdout).strip().splitlines() or [f"status {tried.returncode}"]
        return (
            "tests of cut networks need namespaces, which this user or container may not have: run make as root, or "
            f"let users have them (sysctl user.max_user_namespaces, a container's seccomp profile); it said: {said[-1]}"
        )
    return None


def install_problem(said: str) -> str | None:
    """One line for pip's output when it could not install; None for an unknown problem."""
    if any(sign in said for sign in _NO_SPACE):
        return "the disk is full: free some space, then run make again"
    if any(sign in said for sign in _NO_NETWORK):
        return (
            "no package index could be reached: check the network, or point PIP_INDEX_URL or HTTPS_PROXY at one that "
            "answers, then run make again"
        )
    return None


def environment(folder: Path) -> int:
    """Make a virtual environment with pip in `folder`, unless there is one that works; a failed one is removed. Returns
    the exit status."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--version"]
    if os.access(pip[0], os.X_OK) and subprocess.run(pip, capture_output=True, check=False).returncode == 0:
        return 0
    if problem := venv_problem():
        print(f"nyala: {problem}", file=sys.stderr)
        return 1
    _tell(f"making a virtual environment in {folder}")
    command = [sys.executable, "-m", "venv", "--clear", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        said = (ended.stdout + ended.stderr).strip().splitlines() or ["nothing"]
        problem = install_problem("\n".join(said)) or f"`{' '.join(command)}` failed and said: {said[-1]}"
        print(f"nyala: {problem}", file=sys.stderr)
    return ended.returncode


def pip_progress(lines: Iterable[str], packages: int) -> Iterator[str]:
    """The lines of progress for a person: every tenth package that pip has found, and that it unpacks them."""
    found = 0
    for line in lines:
        name = next((line.removeprefix(sign).split()[0] for sign in _PIP_FINDS if line.startswith(sign)), "")
        found += bool(name)
        if name and found % TELL_EVERY == 0:
            yield f"{found} of {packages} packages: {name.partition('==')[0]}"
        elif line.startswith(_PIP_UNPACKS) and packages:
            yield f"unpacking {packages} packages"


def _packages(command: Sequence[str]) -> int:
    """The number of packages in the file that pip reads; 0 if it reads none."""
    files = [Path(command[pos + 1]) for pos, word in enumerate(command[:-1]) if word == "-r"]
    return sum(len(re.findall(r"^[\w.-]+==", path.read_text(), re.MULTILINE)) for path in files)


def install(command: Sequence[str]) -> int:
    """Run pip and show its progress. All of its output is shown only if it fails, after one line with the cause.
    Returns its exit status."""
    packages = _packages(command)
    _tell(f"installing {packages} packages, which takes about two minutes" if packages else "installing Nyala itself")
    lines: list[str] = []

    def read(pipe: IO[str]) -> Iterator[str]:
        for line in pipe:
            lines.append(line)
            yield line.strip()

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for text in pip_progress(read(cast("IO[str]", pip.stdout)), packages):
            _tell(text)
    if pip.returncode:
        said = "".join(lines).strip()
        problem = install_problem(said)
        if problem is None:
            print(said[-_SAID_MAX:], file=sys.stderr)
            problem = f"`{' '.join(command[-4:])}` ended with status {pip.returncode}; what it said stands above"
        print(f"nyala: {problem}", file=sys.stderr)
    return pip.returncode


def _tell(text: str) -> None:
    print(f"nyala: {text}", flush=True)


def main() -> int:
    """Print one line for each problem; the exit status is 1 if there is one.

    With `python`: check this Python. With `environment FOLDER`: make the environment. With `install COMMAND...`: run
    that command. With `tests`: check the additional needs of the tests.
    """
    if sys.argv[1:2] == ["python"]:
        return 1 if python_problem(sys.version_info[:2]) else 0
    if sys.argv[1:2] == ["environment"]:
        return environment(Path(sys.argv[2]))
    if sys.argv[1:2] == ["install"]:
        return install(sys.argv[2:])
    if sys.argv[1:2] == ["tests"]:
        problems = [namespaces_problem()]
    else:
        problems = [
            python_problem(sys.version_info[:2]),
            found_java_problem(),
            space_problem(shutil.disk_usage(".").free),
        ]
    for problem in filter(None, problems):
        print(f"nyala: {problem}", file=sys.stderr)
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main())
