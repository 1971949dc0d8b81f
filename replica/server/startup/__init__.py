"""Checks of a start: durable state of the directory, version of the code, crashes at a log entry."""
