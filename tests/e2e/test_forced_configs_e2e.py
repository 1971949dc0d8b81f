"""Configs that no decision changed: the history on a real broker has them, and its replay equals the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nyala.infra.cli.app import app
from nyala.infra.local.kafka import KafkaBroker
from nyala.replica.client import Client
from nyala.replica.rpc import pb
from tests.harness.cluster import LocalCluster, local_cluster, wait_until
from tests.harness.register_load import ONE_TABLET, SCHEMA

pytestmark = [pytest.mark.e2e, pytest.mark.deep]
FORCED = "forced by an operator, without a majority"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "kafka") as made:
        yield made


class Commands:
    """The commands of an operator of this cluster."""

    def __init__(self, cluster: LocalCluster, bootstrap: str) -> None:
        self.masters, self.bootstrap = cluster.masters[0].address, bootstrap

    def run(self, *line: str, masters: bool = True) -> Any:
        where = ["--masters", self.masters] if masters else []
        return CliRunner().invoke(app, [*line, *where], env={"COLUMNS": "300"})

    def replayed(self, masters: bool = True) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """The exit status of `decisions replay`, the tablets by id, and the result."""
        words = ("decisions", "replay", "--json", "--topic-prefix", "x.", "--kafka", self.bootstrap)
        done = self.run(*words, masters=masters)
        assert done.stdout, (done.stderr, done.exception)
        *tablets, result = map(json.loads, done.stdout.splitlines())
        return done.exit_code, {one["tablet_id"]: one for one in tablets}, result

    def causes(self, tablet_id: str) -> list[str]:
        """The causes of the tablet's configs, as `decisions explain` has them."""
        words = ("decisions", "explain", tablet_id, "--json", "--topic-prefix", "x.", "--kafka", self.bootstrap)
        steps = map(json.loads, self.run(*words, masters=False).stdout.splitlines())
        return [one["cause"] for one in steps if one["step"] == "CONFIG"]


def test_replay_arrives_at_configs_that_an_operator_forced(broker: KafkaBroker) -> None:
    """Goal: the history also has what no decision caused, so its replay equals the catalog, and names the cause.

    Method: a tablet on three servers, of which two are lost for good; `nyala unsafe recover` forces the config of the
    third; a fourth server makes it two members, by a decision. Then that one is lost as well, and the config is
    rewritten offline with `nyala cmeta rewrite` and confirmed. After each, the catalog has the config, and the replay
    arrives at it; at the end also without the masters.
    """
    with local_cluster() as cluster:
        cluster.add_master(
            f"--kafka={broker.bootstrap}", "--topic-prefix=x.", "--policy-ms=200", "--execute-decisions=master"
        )
        commands = Commands(cluster, broker.bootstrap)
        survivor, *lost = (cluster.add_server() for _ in range(3))
        with Client([commands.masters]) as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "three servers are alive")
            tablet_id = client.create_table("forced", SCHEMA, ONE_TABLET).tablets[0].tablet_id

            def known() -> pb.TabletInfo:
                return client.tablet_infos("forced")[0]

            def members() -> list[str]:
                return [member.uuid for member in known().config.members]

            wait_until(lambda: known().running, "the tablet has a leader")
            for server in (survivor, *lost):
                server.kill()
            recover = ("unsafe", "recover", "--root", str(survivor.root), "--table", "forced")
            plan = json.loads(commands.run(*recover, "--json").stdout)
            done = commands.run(*recover, f"--yes-i-lose-data={plan['fingerprint']}")
            assert done.exit_code == 0, (done.output, done.exception)
            survivor.start()
            wait_until(lambda: members() == [survivor.uuid] and known().config.unsafe, "the forced config is recorded")
            status, tablets, result = commands.replayed()
            assert (status, result["equal"], result["missing"], result["gaps"]) == (0, True, 0, []), result
            assert tablets[tablet_id]["config"]["forced"]
            assert [m["uuid"] for m in tablets[tablet_id]["config"]["members"]] == [survivor.uuid]
            assert commands.causes(tablet_id)[-1] == FORCED

            second = cluster.add_server()
            wait_until(lambda: set(members()) == {survivor.uuid, second.uuid}, "two members")
            wait_until(lambda: all(m.votes for m in known().config.members), "both vote")
            # The masters show a config as soon as a leader reports it, and record it a moment later.
            status, tablets, result = commands.replayed()
            assert (status, len(tablets[tablet_id]["config"]["members"])) == (0, 2), (tablets, result)
            assert not tablets[tablet_id]["config"]["forced"]
            assert any(cause.startswith("decision ") for cause in commands.causes(tablet_id))
            before = str(known().config.opid)
            for server in (survivor, second):
                server.kill()
            peer = f"{survivor.uuid}={survivor.address}"
            done = commands.run(
                "cmeta", "rewrite", str(survivor.root), tablet_id, "--peer", peer, "--yes", masters=False
            )
            assert done.exit_code == 0, (done.output, done.exception)
            survivor.start()
            confirm = ("unsafe", "confirm-config", "--tablet", tablet_id, "--server", survivor.uuid, "--yes")
            wait_until(lambda: commands.run(*confirm).exit_code == 0, "the masters are told of the config")
            wait_until(lambda: members() == [survivor.uuid], "the rewritten config is recorded")
            assert str(known().config.opid) != before
            status, tablets, result = commands.replayed()
            assert (status, result["equal"], result["missing"], result["gaps"]) == (0, True, 0, []), result
            causes = commands.causes(tablet_id)
            assert causes[-1] == FORCED and causes.count(FORCED) == 2, causes
        cluster.masters[0].kill()
        status, alone, result = commands.replayed()
        assert (status, result["compared"]) == (0, False) and "no master answers" in result["not_compared"]
        assert {t: one["config"] for t, one in alone.items()} == {t: one["config"] for t, one in tablets.items()}
