"""The jobs that plan, run in the process of a test: their exit status, their plans, and what they proposed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from nyala.pipeline import Topics
from tests.harness.road import Road


class PlanJob:
    """Runs of a job in this process; what they print shares the standard output with the queries' lines."""

    def __init__(
        self,
        main: Callable[[], int],
        road: Road,
        topic_prefix: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._main = main
        self._road = road
        self._prefix = topic_prefix
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, *more: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit status and the JSON object of each plan, none if the job could not run."""
        arguments = ["job", "--kafka", self._road.kafka, "--topic-prefix", self._prefix, "--json", *more]
        self._monkeypatch.setattr(sys, "argv", arguments)
        self._capsys.readouterr()
        status = self._main()
        out, err = self._capsys.readouterr()
        if status == 1:
            print(err)
        begins = [found.start() for found in re.finditer(r'\{"plan_id"', out)]
        return status, [json.JSONDecoder().raw_decode(out[begin:])[0] for begin in begins]

    def proposed(self) -> int:
        """Return the number of proposals on Kafka."""
        topics = Topics(self._road.kafka)
        try:
            return sum(topics.offsets(f"{self._prefix}proposals", 1, latest=True).values())
        finally:
            topics.close()
