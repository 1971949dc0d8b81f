"""Kafka options of a query: those of Spark's source, and how all of the query's clients log in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nyala.replica.types import KafkaSecurity, Refused, kafka_security

from .errors import of_refusal


def security_of(options: Mapping[str, str]) -> KafkaSecurity:
    """Return how all clients of a query with these options of Spark's Kafka source log in; QueryRefused if one
    cannot."""
    try:
        return KafkaSecurity.of(options)
    except Refused as error:
        raise of_refusal(error) from error


def kafka_options(pairs: Sequence[str], file: str = "") -> dict[str, str]:
    """Return options of Spark's Kafka source from `NAME=VALUE` each, and from a file of Java client properties.

    The file's names lack the prefix `kafka.`; passwords belong in the file, because command lines are visible to all
    users. QueryRefused if an option or the file cannot be read.
    """
    prefix = kafka_security.PREFIX
    try:
        of_file = kafka_security.properties_of(file) if file else {}
        given = dict(kafka_security.property_of(pair, "a Kafka option") for pair in pairs)
    except Refused as error:
        raise of_refusal(error) from error
    return {prefix + name.removeprefix(prefix): value for name, value in of_file.items()} | given
