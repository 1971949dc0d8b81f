"""Found by Spark because of its name: makes `format("nyala")` work without registration, and without pushdown."""

from nyala.pipeline.source import NyalaSource


class DefaultSource(NyalaSource):
    """What Spark looks for in a module of this name."""
