"""Runs `kudu_job.py`: its own virtual environment with PySpark 3.5, its jars by Maven, both kept in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from nyala.infra.jars import JarsMissing, java

from .kudu import KuduMissing

PYSPARK = "3.5.7"
"""The last Spark for which Kudu's connector is published."""
CONNECTOR = "1.17.1"
INSTALL_WAIT_S = 1200
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency>
<groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.12</artifactId><version>{PYSPARK}</version>
</dependency>
<dependency>
<groupId>org.apache.spark</groupId><artifactId>spark-avro_2.12</artifactId><version>{PYSPARK}</version>
</dependency>
<dependency>
<groupId>org.apache.kudu</groupId><artifactId>kudu-spark3_2.12</artifactId><version>{CONNECTOR}</version>
</dependency>
</dependencies>
</project>
"""


class KuduPipeline:
    """The needs of the job, installed on first use. KuduMissing has in one line what is missing."""

    def __init__(self, cache: Path) -> None:
        self._python = _environment(cache / f"pyspark-{PYSPARK}")
        self._jars = _jars(cache / f"kudu-spark-{CONNECTOR}-{PYSPARK}")
        try:
            self.java_home = str(Path(java()).resolve().parents[1])
        except JarsMissing as error:
            raise KuduMissing(f"no Kudu figures: {error}") from None

    def command(self, **arguments: object) -> list[str]:
        """The job's command line; `arguments` as its options."""
        script = Path(__file__).with_name("kudu_job.py")
        options = [text for k, v in arguments.items() for text in (f"--{k.replace('_', '-')}", str(v))]
        return [str(self._python), str(script), "--jars", ",".join(map(str, self._jars)), *options]

    def environment(self) -> dict[str, str]:
        """The job's environment: nothing of ours, its own interpreter, the Java that was checked."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_HOME", "VIRTUAL_ENV")}
        python = str(self._python)
        return {**kept, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "JAVA_HOME": self.java_home}


def _environment(folder: Path) -> Path:
    python, marker = folder / "bin" / "python", folder / ".installed"
    if marker.exists() and python.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run([_old_python(), "-m", "venv", str(folder)], "a virtual environment")
    _run([str(python), "-m", "pip", "install", "-q", f"pyspark=={PYSPARK}", "setuptools<81"], f"PySpark {PYSPARK}")
    marker.touch()
    return python


def _old_python() -> str:
    """PySpark 3.5 runs on Python 3.8 to 3.12."""
    if sys.version_info < (3, 13):
        return sys.executable
    found = next((path for minor in (12, 11, 10) if (path := shutil.which(f"python3.{minor}"))), None)
    if found is None:
        raise KuduMissing("no Kudu figures: PySpark 3.5 needs Python 3.12 or older, and none is on the PATH")
    return found


def _jars(folder: Path) -> list[Path]:
    marker = folder / ".resolved"
    if not marker.exists():
        if shutil.which("mvn") is None:
            raise KuduMissing("no Kudu figures: `mvn` is not on the PATH")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "pom.xml").write_text(_POM)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars", "-DincludeScope=runtime"]
        _run(["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), *copy], "the jars of Kudu's connector")
        marker.touch()
    return sorted((folder / "jars").glob("*.jar"))


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_WAIT_S)
    except subprocess.TimeoutExpired:
        raise KuduMissing(f"no Kudu figures: {what} did not arrive within {INSTALL_WAIT_S} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise KuduMissing(f"no Kudu figures: could not get {what}: {said[-1][:200] if said else 'no message'}")
