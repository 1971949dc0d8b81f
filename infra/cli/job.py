"""`nyala job NAME -- ARGUMENTS`: one of the Spark jobs under spark-submit, with pinned jars and this interpreter."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nyala import pipeline
from nyala.infra.jars import JarsMissing
from nyala.infra.local.restarts import restart_options, run_with_restarts
from nyala.replica.types import shown

from .context import Masters, kafka_of, masters_of
from .interrupted import before_sending

CLUSTER_OPTIONS = {
    "ingest": ("--masters", "--kafka"),
    "decisions": ("--masters", "--kafka"),
    "placement": ("--kafka",),
    "rebalance": ("--kafka",),
    "verify": ("--masters",),
}
"""By job: the options that are filled in from the local stack if they are missing."""
LOOK_UP_S = 2.0
"""The time-out for the look-up of a table: the job itself waits for masters that are away."""
STREAMING = ("ingest", "decisions")
"""The jobs that can continue where they were; the others' work may be over when they begin anew."""


def job(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="ingest, decisions, placement, rebalance or verify", autocompletion=lambda: list(CLUSTER_OPTIONS)
        ),
    ],
    masters: Masters = "",
    kafka: Annotated[
        str, typer.Option("--kafka", envvar="NYALA_KAFKA", help="host:port; default: the local stack (`nyala up`)")
    ] = "",
    spark_master: Annotated[str, typer.Option(help="Spark's master URL")] = "local[2]",
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            min=0,
            metavar="N",
            help="ingest, decisions: a job that is killed is started again, N times in a row; a refusal stays one",
        ),
    ] = 0,
    show: Annotated[bool, typer.Option("--show", help="print the spark-submit command line and run nothing")] = False,
) -> None:
    """Run a Spark job; what stands behind `--` goes to the job, whose own options `-- --help` shows."""
    if name not in CLUSTER_OPTIONS:
        raise typer.BadParameter(f"no job {name!r}: choose from {', '.join(CLUSTER_OPTIONS)}")
    if restarts and name not in STREAMING:
        raise typer.BadParameter(f"{name} does not go on where it was: --restarts is for {' and '.join(STREAMING)}")
    arguments = list(context.args)
    if "--help" not in arguments:
        if "--masters" in CLUSTER_OPTIONS[name] and "--masters" not in arguments:
            arguments += ["--masters", masters_of(masters)]
        if "--kafka" in CLUSTER_OPTIONS[name] and "--kafka" not in arguments:
            arguments += ["--kafka", kafka_of(kafka)]
        if name in ("ingest", "decisions") and "--checkpoint" not in arguments:
            raise typer.BadParameter("say where Spark keeps its checkpoint: -- --checkpoint FOLDER")
    try:
        command = pipeline.submit_command(name, arguments, master=spark_master)
        environment = pipeline.submit_environment()
    except JarsMissing as error:
        typer.echo(f"nyala: {error}", err=True)
        raise typer.Exit(1) from error
    if show:
        typer.echo(shlex.join(command))
        return
    if "--help" not in arguments:
        _need_tables(
            _given(arguments, "--table"),
            ",".join(_given(arguments, "--masters")),
            tls=next(reversed(_given(arguments, "--tls")), None),
        )
    if restarts:

        def tell(text: str) -> None:
            typer.echo(f"nyala: {text}", err=True)

        raise typer.Exit(run_with_restarts(name, command, environment, restart_options(restarts), tell))
    os.execvpe(Path(command[0]), command, environment)


def _given(arguments: Sequence[str], option: str) -> list[str]:
    """The values of an option in the arguments of a job, as `--option VALUE` or `--option=VALUE`."""
    apart = [value for name, value in itertools.pairwise(arguments) if name == option]
    return apart + [text.partition("=")[2] for text in arguments if text.startswith(f"{option}=")]


def _need_tables(tables: Sequence[str], masters: str, tls: str | None) -> None:
    """Refuse tables that the masters do not know, because Spark takes long to start. If no master answers, say so.
    `tls`: the directory of the job's credentials; None: that of NYALA_TLS."""
    if not tables or not masters:
        return
    with before_sending():
        import nyala

        options = nyala.ClientOptions(timeout_s=LOOK_UP_S, connect_timeout_s=LOOK_UP_S, attempt_timeout_s=LOOK_UP_S)
        try:
            with nyala.connect(masters, options=options, tls=tls) as cluster:
                for table in tables:
                    cluster.table(table)
        except nyala.Refused as error:
            if error.code not in (nyala.Code.UNAVAILABLE, nyala.Code.TIMED_OUT, nyala.Code.NOT_LEADER):
                raise
            what = f"whether there is a table {', '.join(map(shown, tables))} is not known"
            typer.echo(f"nyala: {what}, the job starts all the same: {error}", err=True)
