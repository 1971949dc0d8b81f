"""The one error of a benchmark."""


class BenchmarkError(RuntimeError):
    """A round did not do the work that it was to measure; the text is one line on what went wrong."""
