"""The part of a log that is in memory."""


class LogCache:
    pass
