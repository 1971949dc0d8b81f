"""Spark finds this module by its name: `format("nyala")` works without registration."""

from nyala.pipeline.source import NyalaSource


class DefaultSource(NyalaSource):
    """The class that Spark looks for in a module of this name."""
