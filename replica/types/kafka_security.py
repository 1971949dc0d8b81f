"""How clients log in to Kafka, written once as Java properties, for Spark's source, the masters and every client in
Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Code, Refused

PREFIX = "kafka."
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms with a name and a password that both Java's client and kafka-python support."""
NAMES = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_LOGIN = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')

KAFKA_AWAY = (OSError, ValueError, RuntimeError, AssertionError)
"""The errors, besides its own KafkaError, by which kafka-python reports a broker that is away or going away."""


@dataclass(frozen=True, repr=False)
class KafkaSecurity:
    """Properties of Kafka's Java client that concern security, without Spark's prefix `kafka.`; none: plaintext.

    They are checked at construction. A property that the Python clients could not follow is Refused INVALID_ARGUMENT,
    because a query whose source logs in and whose dead letters do not would fail at its first bad record.
    """

    properties: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        self.python()

    def __repr__(self) -> str:
        return f"KafkaSecurity({', '.join(name for name, _ in self.properties)})"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> KafkaSecurity:
        """Select from options of Spark's Kafka source those that begin with `kafka.security`, `kafka.sasl` and
        `kafka.ssl`."""
        prefixes = tuple(PREFIX + each for each in ("security.", "sasl.", "ssl."))
        return cls(tuple(sorted((n.removeprefix(PREFIX), v) for n, v in options.items() if n.startswith(prefixes))))

    def spark(self) -> dict[str, str]:
        """Return the properties for Spark's Kafka source."""
        return {PREFIX + name: value for name, value in self.properties}

    def librdkafka(self) -> dict[str, Any]:
        """Return the properties for confluent-kafka's clients."""
        found = self.python()
        names = {
            "security_protocol": "security.protocol",
            "sasl_mechanism": "sasl.mechanism",
            "sasl_plain_username": "sasl.username",
            "sasl_plain_password": "sasl.password",
            "ssl_cafile": "ssl.ca.location",
            "ssl_certfile": "ssl.certificate.location",
            "ssl_keyfile": "ssl.key.location",
            "ssl_password": "ssl.key.password",
        }
        given = {theirs: found[ours] for ours, theirs in names.items() if found.get(ours) is not None}
        if not found.get("ssl_check_hostname", True):
            given["ssl.endpoint.identification.algorithm"] = "none"
        return given

    def python(self) -> dict[str, Any]:
        """Return the properties for kafka-python's clients."""
        given = dict(self.properties)
        if unknown := sorted(set(given) - set(NAMES)):
            raise _refused(
                f"Kafka option {unknown[0]} is not known to all clients of a query; there are {', '.join(NAMES)}"
            )
        protocol = given.get("security.protocol", "PLAINTEXT")
        if protocol not in PROTOCOLS:
            raise _refused(f"Kafka option security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        for kind, present in (("sasl.", protocol.startswith("SASL")), ("ssl.", protocol.endswith("SSL"))):
            if not present and (idle := [name for name in given if name.startswith(kind)]):
                raise _refused(f"Kafka option {idle[0]} means nothing while security.protocol is {protocol}")
        found: dict[str, Any] = {"security_protocol": protocol} if given else {}
        if protocol.startswith("SASL"):
            found |= _login(given)
        if protocol.endswith("SSL"):
            found |= _ssl(given)
        return found


PLAINTEXT = KafkaSecurity()


def _refused(text: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, text)


def properties_of(file: str) -> dict[str, str]:
    """Read Java client properties of a file, by name; Refused INVALID_ARGUMENT if it cannot be read."""
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"file of Kafka properties {file} cannot be read: {error}") from error
    said = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return dict(property_of(line, f"a line of {file}") for line in said)


def property_of(text: str, what: str) -> tuple[str, str]:
    """Return (name, value) of `NAME=VALUE`; `what` names the text in the refusal, which does not show it."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        # The text itself is left out: it may be a password.
        raise _refused(f"{what} is NAME=VALUE, such as security.protocol=SASL_SSL")
    return name.strip(), value.strip()


def _login(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise _refused(f"Kafka option sasl.mechanism is one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    login = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _LOGIN.findall(given.get("sasl.jaas.config", ""))}
    if set(login) != {"username", "password"}:
        raise _refused('Kafka option sasl.jaas.config needs username="..." and password="..."')
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": login["username"],
        "sasl_plain_password": login["password"],
    }


def _ssl(given: Mapping[str, str]) -> dict[str, Any]:
    for store in ("truststore", "keystore"):
        if f"ssl.{store}.location" in given and given.get(f"ssl.{store}.type") != "PEM":
            raise _refused(
                f"Kafka option ssl.{store}.location must be a PEM file, with ssl.{store}.type=PEM: the clients in "
                "Python read no JKS"
            )
    found: dict[str, Any] = {
        "ssl_check_hostname": given.get("ssl.endpoint.identification.algorithm", "https") != "",
        "ssl_cafile": given.get("ssl.truststore.location"),
    }
    if "ssl.keystore.location" in given:
        found |= {"ssl_certfile": given["ssl.keystore.location"], "ssl_keyfile": given["ssl.keystore.location"]}
        found["ssl_password"] = given.get("ssl.key.password")
    return found
