"""`nyala source reset`: its output, and the offset at which the source begins then."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nyala.infra.cli import sources
from nyala.infra.cli.app import app
from nyala.pipeline import QueryRefused
from tests.harness.spark_alone import TOPIC, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, monkeypatch)
    monkeypatch.setattr(sources, "client", lambda _: nullcontext(made.masters))
    return made


def reset(*more: str, status: int = 0) -> str:
    """The command without a question; what it said."""
    line = ["source", "reset", "flights", "--to", "earliest", "--yes", "--kafka", "k:1", "--masters", "m:1", *more]
    ended = CliRunner().invoke(app, line, env={"COLUMNS": "400"})
    assert ended.exit_code == status, ended.output
    return " ".join(ended.output.replace("│", " ").split())


def test_source_reset_goes_on_in_another_kafka_cluster_only_by_the_topics_name(world: World) -> None:
    """Goal: the command of the refusal adopts the topic there, and without --topic its offsets are not taken for the
    old one's. Method: read to 10 here; go there; refused; reset without the name, with it; read; the same way back."""
    world.run()
    for generation, (cluster, topic_id, left) in enumerate((("other", "second", "first"), ("c", "first", "second")), 2):
        world.lose_checkpoint()
        world.broker.cluster_id, world.broker.topic_id = cluster, topic_id
        with pytest.raises(QueryRefused, match=f"source reset flights --topic {TOPIC} --to earliest --kafka HOST:PORT"):
            world.run()
        said = reset(status=2)
        assert f"another one than this source's (Kafka cluster {cluster}, topic id {topic_id}): say --topic" in said
        assert world.masters.done() == {0: 10}
        said = reset("--topic", TOPIC)
        assert f"{TOPIC}[0]: generation {generation} begins at 0; what topic id {left} had from offset 10 on" in said
        world.run()
        (now,) = world.masters.sources()
        assert (now.source.cluster_id, now.source.topic_id, now.generation, now.done) == (
            cluster,
            topic_id,
            generation,
            10,
        )


def test_source_reset_asks_with_both_kafka_clusters(world: World) -> None:
    """Goal: a person sees that the source moves. Method: the question, and a no."""
    world.run()
    world.broker.cluster_id = "other"
    line = ["source", "reset", "flights", "--to", "earliest", "--topic", TOPIC, "--kafka", "k:1", "--masters", "m:1"]
    ended = CliRunner().invoke(app, line, input="n\n")
    assert "done 10 -> 0, generation 1 -> 2, Kafka cluster c -> other?" in ended.output.replace("\n", "")
    assert world.masters.done() == {0: 10}
