"""The server's uuid, the cluster that it belongs to, and the cluster's feature level."""

from __future__ import annotations

import asyncio

from nyala.replica.fs import Instance, join_cluster, raise_feature_level, repair_instance
from nyala.replica.types import Disk


class Identity:
    """The identity of the directory. A server belongs to the first cluster that it joins, for ever.

    Concurrency: the loop's thread; the file is written in a thread, one write at a time. So if masters of two clusters
    answer a new server at once, it joins only one.
    """

    def __init__(self, disk: Disk, instance: Instance) -> None:
        self._disk = disk
        self._instance = instance
        self._joining = asyncio.Lock()

    @property
    def uuid(self) -> str:
        return self._instance.uuid

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty until a master of a cluster has answered."""
        return self._instance.cluster_id

    async def repair(self) -> list[str]:
        """Write the file and its marks again where they differ from memory; returns what was written."""
        async with self._joining:
            return await asyncio.to_thread(repair_instance, self._disk, self._instance)

    async def join(self, cluster_id: str) -> None:
        """Join that cluster, durably; Refused WRONG_CLUSTER if this server belongs to another one."""
        async with self._joining:
            if cluster_id != self.cluster_id:
                self._instance = await asyncio.to_thread(join_cluster, self._disk, self._instance, cluster_id)

    @property
    def feature_level(self) -> int:
        """The cluster's feature level, as far as this server knows."""
        return self._instance.feature_level

    async def raise_feature_level(self, level: int) -> None:
        """Note the cluster's feature level, durably; a level below the present one changes nothing."""
        if level > self.feature_level:
            async with self._joining:
                self._instance = await asyncio.to_thread(raise_feature_level, self._disk, self._instance, level)
