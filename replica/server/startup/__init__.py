"""Checks when a server starts: durable state of the directory, version of the code, crashes at a log entry."""
