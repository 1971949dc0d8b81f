"""One set of Kafka properties serves Java's clients and Python's; one that does not is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.pipeline import KafkaSecurity, QueryRefused, kafka_options, security_of

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="nya\\"la" password="s=e;c";'
PEM = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"}
SASL_SSL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": LOGIN,
    **PEM,
}


def test_no_property_means_clients_as_they_are() -> None:
    """Goal: without security options, the Kafka clients use plaintext as before. Method: options that concern something
    else."""
    security = KafkaSecurity.of({"kafka.max.poll.records": "5", "maxOffsetsPerTrigger": "5"})
    assert (security.spark(), security.python()) == ({}, {})


def test_login_and_certificates_reach_both_kinds_of_clients() -> None:
    """Goal: the same identity everywhere. Method: SASL over TLS with PEM files, and mutual TLS."""
    security = KafkaSecurity.of({**SASL_SSL, "kafka.max.poll.records": "5"})
    assert security.spark() == SASL_SSL
    assert security.python() == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": 'nya"la',
        "sasl_plain_password": "s=e;c",
        "ssl_check_hostname": True,
        "ssl_cafile": "/ca.pem",
    }
    assert security.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": 'nya"la',
        "sasl.password": "s=e;c",
        "ssl.ca.location": "/ca.pem",
    }
    assert "s=e;c" not in repr(security)
    mutual = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": "/me.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    found = KafkaSecurity.of(mutual).python()
    assert (found["ssl_certfile"], found["ssl_keyfile"], found["ssl_check_hostname"]) == ("/me.pem", "/me.pem", False)
    bulk = KafkaSecurity.of(mutual).librdkafka()
    assert (bulk["ssl.certificate.location"], bulk["ssl.key.location"]) == ("/me.pem", "/me.pem")
    assert bulk["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"kafka.security.protocol": "TLS"}, "security.protocol is one of"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "sasl.mechanism is one of"),
        ({"kafka.sasl.jaas.config": "required;"}, 'needs username="..." and password'),
        ({"kafka.ssl.truststore.type": "JKS"}, "must be a PEM file"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "means nothing while security.protocol is PLAINTEXT"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "ssl.truststore.location means nothing"),
        ({"kafka.sasl.client.callback.handler.class": "X"}, "is not known to all clients"),
    ],
)
def test_property_that_python_cannot_follow_is_refused(changed: dict[str, str], says: str) -> None:
    """Goal: a query with a login that the dead-letter producer cannot use does not start. Method: one bad property in a
    good set each."""
    with pytest.raises(QueryRefused, match=says) as refusal:
        security_of({**SASL_SSL, **changed})
    assert "s=e;c" not in str(refusal.value)


def test_options_come_from_pairs_and_from_a_file(tmp_path: Path) -> None:
    """Goal: passwords need not stand on a command line. Method: a properties file beside a pair; and bad ones."""
    file = tmp_path / "client.properties"
    file.write_text(f"# who we are\n\nsecurity.protocol = SASL_SSL\nkafka.sasl.jaas.config={LOGIN}\n")
    assert kafka_options(["maxOffsetsPerTrigger=5"], str(file)) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": LOGIN,
        "maxOffsetsPerTrigger": "5",
    }
    file.write_text("hunter2\n")
    for pairs, path in ((["x"], ""), (["=x"], ""), ([], str(file)), ([], str(tmp_path / "none"))):
        with pytest.raises(QueryRefused) as refusal:
            kafka_options(pairs, path)
        assert "hunter2" not in str(refusal.value)
