"""The command line and environment of a job under spark-submit, with this environment's interpreter and jars."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nyala.infra.jars import jars, java, pyspark_folder

JOBS = ("ingest", "decisions", "placement", "rebalance", "verify")
SHUTDOWN_TIMEOUT_S = 10
DRIVER_MEMORY = "700m"


def submit_command(
    job: str,
    arguments: Sequence[str],
    *,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    driver_memory: str = DRIVER_MEMORY,
    py_files: Sequence[str] = (),
) -> list[str]:
    """Return `spark-submit ... <job's script> <arguments>` for one of JOBS; run it with `submit_environment()`.

    `master` other than local needs this environment's packages on the executors, or `py_files` (the wheel). JarsMissing
    in one line if the jars cannot be found or downloaded.
    """
    if job not in JOBS:
        raise ValueError(f"no job {job!r}: choose from {', '.join(JOBS)}")
    command = [str(spark_submit_path())]
    command += ["--master", master, "--driver-memory", driver_memory, "--name", f"nyala {job}"]
    command += ["--jars", ",".join(str(path) for path in jars("spark"))]
    if py_files:
        command += ["--py-files", ",".join(py_files)]
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **(conf or {}),
    }
    if not master.startswith("local"):
        del settings["spark.driver.host"], settings["spark.driver.bindAddress"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, str(job_script(job)), *arguments]


def submit_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for `submit_command`: workers run this interpreter, and Spark the Java that was
    checked."""
    environment = dict(os.environ if environ is None else environ)
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment["JAVA_HOME"] = str(Path(java()).resolve().parents[1])
    # Workers' warnings would appear between the job's own lines.
    environment.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    # If Kafka clients of the JVM hang, Hadoop gives it half a minute to end, unless a setting changes that before its
    # start.
    options = environment.get("SPARK_SUBMIT_OPTS", "")
    if "spark.shutdown.timeout" not in options:
        environment["SPARK_SUBMIT_OPTS"] = f"{options} -Dspark.shutdown.timeout={SHUTDOWN_TIMEOUT_S}s".strip()
    environment.pop("SPARK_HOME", None)
    return environment


def job_script(job: str) -> Path:
    """Return the path of a job's entry point."""
    spec = importlib.util.find_spec(f"nyala.jobs.{job}")
    if spec is None or spec.origin is None:
        raise ValueError(f"no job {job!r} is installed")
    return Path(spec.origin)


def spark_submit_path() -> Path:
    """Return the path of PySpark's own `spark-submit`; JarsMissing names what to install."""
    return pyspark_folder() / "bin" / "spark-submit"
