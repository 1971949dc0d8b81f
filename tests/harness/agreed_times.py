"""The masters' agreement on the times of Spark queries, by its real rule over a real catalog, without a network."""

from __future__ import annotations

import threading

from nyala.replica.client import ReadLoad
from nyala.replica.master.catalog.read_times import agree, agreed_time
from nyala.replica.master.catalog.records import ReadTime
from nyala.replica.types import OpId
from tests.harness.catalogs import AppliedCatalog


class AgreedTimes:
    """The part of `Client` that agrees on the times of queries. Concurrency: any thread."""

    def __init__(self) -> None:
        self.box = AppliedCatalog()
        self.box.commit(({"later/x": {}}, [], "", None))  # the first entry of a leader
        self.asked: list[int] = []
        """The time of each request, 0 if none was proposed."""
        self._lock = threading.Lock()

    def catalog_position(self) -> OpId:
        return self.box.catalog.applied_opid

    def agree_read_time(self, load: ReadLoad, query: int, time: int = 0) -> int:
        with self._lock:
            self.asked.append(time)
            if not time:
                return agreed_time(self.box.catalog, load.load_id, load.made, query)
            proposed = ReadTime(
                application=load.application, load_id=load.load_id, query=query, time=time, host="10.0.0.1"
            )
            agreed: int = self.box.commit(agree(self.box.catalog, proposed, load.made))
            return agreed
