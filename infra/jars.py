"""Pinned jars, resolved by the Ivy that PySpark ships: no Maven, no Docker.

`ivy.xml` names them, and the cache folder has them: `<cache>/jars/kafka/*.jar` runs a broker,
`<cache>/jars/spark/*.jar` goes to spark-submit. The cache is `NYALA_CACHE`, else `.cache` of the checkout, else
`~/.cache/nyala`. Imports the standard library only, so that the first `make` target can run it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from nyala.infra.preflight import found_java_problem, java_path

KINDS = ("kafka", "spark")
FETCHING = "fetching the jars of Kafka and Spark, 55 MB,"
RESOLVE_TIMEOUT_S = 900
_HERE = Path(__file__).resolve().parent
_LOGGERS = ("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl")
_NETWORK_SIGNS = (
    "UnknownHostException",
    "ConnectException",
    "NoRouteToHost",
    "SocketTimeout",
    "Network is unreachable",
    "Connection refused",
    "Server access error",
    "SSLHandshakeException",
)


class JarsMissing(Exception):
    """One line for a person: the problem and what to do."""


def cache_folder() -> Path:
    """The folder of the jars and of Ivy's downloads; not created here."""
    if named := os.environ.get("NYALA_CACHE"):
        return Path(named).resolve()
    root = _HERE.parent
    return root / ".cache" if (root / "pyproject.toml").exists() else Path.home() / ".cache" / "nyala"


def java() -> str:
    """The path of a Java that is new enough, by preflight's rule; JarsMissing says what to install."""
    problem, path = found_java_problem(), java_path()
    if problem or path is None:
        raise JarsMissing(problem or "no java")
    return path


def jars(kind: str) -> list[Path]:
    """The jars of `kind` ("kafka" or "spark"), sorted; resolves first when the cache does not match ivy.xml."""
    if kind not in KINDS:
        raise ValueError(f"no jars of kind {kind!r}: choose from {', '.join(KINDS)}")
    if not _is_current():
        resolve()
    return sorted((cache_folder() / "jars" / kind).glob("*.jar"))


def are_ready() -> bool:
    """Whether the cache has everything that ivy.xml names, so that nothing must be fetched."""
    return _is_current()


def pyspark_folder() -> Path:
    """PySpark's folder; JarsMissing says what to install. PySpark has Ivy, a logger for Kafka, and spark-submit."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsMissing(
            f"PySpark is not installed in this environment, {sys.prefix}: run `pip install 'nyala[spark]'` in it"
        )
    return Path(spec.origin).parent


def broker_class_path() -> str:
    """The Java class path of a broker: PySpark's log4j first, because Kafka's own jars have no logger."""
    shipped = pyspark_folder() / "jars"
    loggers = [path for name in _LOGGERS for path in sorted(shipped.glob(f"{name}-*.jar"))]
    return os.pathsep.join([*(str(path) for path in loggers), f"{jars('kafka')[0].parent}/*"])


def resolve() -> Path:
    """Download the jars of ivy.xml and replace the jar folders; returns `<cache>/jars`.

    Safe to run from several processes at once. JarsMissing in one line for: no or old Java, no PySpark, no network, a
    jar that the repository does not have, no space.
    """
    folder = cache_folder() / "jars"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_current():
                _resolve_into(folder)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise JarsMissing(_no_space(folder.parent)) from error
        raise JarsMissing(
            f"cannot write jars below {folder}: {error.strerror or error}; "
            "let NYALA_CACHE name a folder that can be written"
        ) from error
    return folder


def _is_current() -> bool:
    folder = cache_folder() / "jars"
    marker = folder / ".resolved"
    return (
        marker.exists()
        and marker.read_text().strip() == _wanted()
        and all(any((folder / kind).glob("*.jar")) for kind in KINDS)
    )


def _wanted() -> str:
    return hashlib.sha256((_HERE / "ivy.xml").read_bytes()).hexdigest()


def _ivy_jar() -> Path:
    folder = pyspark_folder() / "jars"
    found = sorted(folder.glob("ivy-*.jar"))
    if not found:
        raise JarsMissing(f"no ivy-*.jar in {folder}: reinstall pyspark")
    return found[-1]


def _resolve_into(folder: Path) -> None:
    fresh = folder / ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    settings = os.environ.get("NYALA_IVY_SETTINGS", str(_HERE / "ivysettings.xml"))
    command = [java(), "-jar", str(_ivy_jar()), "-warn", "-settings", settings, "-ivy", str(_HERE / "ivy.xml")]
    command += ["-cache", str(folder.parent / "ivy"), "-confs", *KINDS, "-types", "jar", "bundle"]
    command += ["-retrieve", f"{fresh}/[conf]/[artifact]-[revision].[ext]"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RESOLVE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise JarsMissing(
            f"jars did not arrive within {RESOLVE_TIMEOUT_S} s: check the network, then try again"
        ) from None
    output = result.stdout + result.stderr
    if result.returncode != 0 or not all(any((fresh / kind).glob("*.jar")) for kind in KINDS):
        raise JarsMissing(_explain(output, folder.parent / "ivy.log"))
    for kind in KINDS:
        shutil.rmtree(folder / kind, ignore_errors=True)
        (fresh / kind).rename(folder / kind)
    shutil.rmtree(fresh, ignore_errors=True)
    (folder / ".resolved").write_text(_wanted() + "\n")


def _no_space(cache: Path) -> str:
    return f"no space left while downloading jars to {cache}: free some, or set NYALA_CACHE to another disk"


def _explain(output: str, log: Path) -> str:
    with suppress(OSError):  # on a full disk, which is reported below
        log.write_text(output)
    if "No space left" in output:
        return _no_space(log.parent)
    if any(sign in output for sign in _NETWORK_SIGNS):
        return f"no network: the jar repository does not answer; connect, then try again (log: {log})"
    missing = [line.split("::")[1].strip() for line in output.splitlines() if "not found" in line and "::" in line]
    if missing:
        return f"the jar repository has no {missing[0].split(': ')[0]}; see {log}"
    return f"Ivy could not resolve the jars; see {log}"


def main() -> int:
    """Resolve and report that; exit status 1 with one line if it cannot be done."""
    if not are_ready():
        print(f"nyala: {FETCHING} into {cache_folder() / 'jars'}", flush=True)
    try:
        folder = resolve()
    except JarsMissing as error:
        print(f"nyala: {error}", file=sys.stderr)
        return 1
    counts = ", ".join(f"{len(jars(kind))} for {kind}" for kind in KINDS)
    print(f"nyala: jars ready in {folder}: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
