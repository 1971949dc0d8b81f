"""Reads Spark's checkpoint of the ingest query, and keeps a file of this project beside it, on any Hadoop file system.

Spark writes `offsets/<batch>` before it runs a micro-batch and `commits/<batch>` after it; a source's first offsets are
in `sources/0/0`. The own file, `nyala/query.json`, holds the table and the topic of the checkpoint, and the id of the
owner's run.
"""

from __future__ import annotations

import json
from typing import Any

from .errors import QueryRefused

OWN_FILE = "nyala/query.json"


class Checkpoint:
    """One checkpoint folder. Offsets are `{kafka partition: first offset not in the micro-batch}`."""

    def __init__(self, spark: Any, location: str) -> None:
        self._spark = spark
        self._jvm = spark.sparkContext._jvm
        self._root = self._jvm.org.apache.hadoop.fs.Path(location)
        self._fs = self._root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self.location = location

    def next_offsets(self, topic: str) -> dict[int, int] | None:
        """Return the offsets at which the query would continue; None if the checkpoint is empty."""
        committed = self._numbers("commits")
        if committed:
            return self.batch_end(committed[-1], topic)
        first = self._read("sources/0/0")
        return None if first is None else self._parse(first, topic)

    def batch_end(self, batch_id: int, topic: str) -> dict[int, int]:
        """Return the end offsets of a planned micro-batch; QueryRefused if Spark's file has an unknown format."""
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            raise QueryRefused(f"checkpoint {self.location} has no offsets of micro-batch {batch_id}: it is damaged")
        return self._parse(text, topic)

    def own(self) -> dict[str, str]:
        """Return our own file's content; empty if there is no file. QueryRefused if it cannot be read."""
        text = self._read(OWN_FILE)
        if text is None:
            return {}
        try:
            own = json.loads(text)
            if not isinstance(own, dict):
                raise ValueError("no object")
        except ValueError as error:
            raise QueryRefused(
                f"{OWN_FILE} of checkpoint {self.location} is damaged ({error}), so nobody knows which table and topic "
                "the checkpoint is of: remove the whole checkpoint, for the catalog knows how far the table is"
            ) from error
        return {str(name): str(value) for name, value in own.items()}

    def write_own(self, own: dict[str, str]) -> None:
        """Replace our own file atomically, unless it has this content already."""
        text = json.dumps(own)
        if self._read(OWN_FILE) == text:
            return
        hadoop = self._jvm.org.apache.hadoop.fs
        path = hadoop.Path(self._root, OWN_FILE)
        beside = hadoop.Path(self._root, f"{OWN_FILE}.new")
        stream = self._fs.create(beside, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        # A FileSystem's own rename does not replace on every file system; this one does, atomically if the file system
        # can.
        gateway = self._spark.sparkContext._gateway
        how = gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
        how[0] = getattr(hadoop, "Options$Rename").OVERWRITE
        context = hadoop.FileContext.getFileContext(path.toUri(), self._spark.sparkContext._jsc.hadoopConfiguration())
        context.rename(context.makeQualified(beside), context.makeQualified(path), how)

    def _parse(self, text: str, topic: str) -> dict[int, int]:
        for line in text.splitlines():
            start = line.find("{")
            if start < 0:
                continue
            parsed = json.loads(line[start:])
            if topic in parsed:
                return {int(partition): int(offset) for partition, offset in parsed[topic].items()}
        raise QueryRefused(f"checkpoint {self.location} is not of topic {topic}: give each query a folder of its own")

    def _numbers(self, folder: str) -> list[int]:
        path = self._jvm.org.apache.hadoop.fs.Path(self._root, folder)
        if not self._fs.exists(path):
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(path)]
        return sorted(int(name) for name in names if name.isdigit())

    def _read(self, name: str) -> str | None:
        path = self._jvm.org.apache.hadoop.fs.Path(self._root, name)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
