"""A second listener of a broker, with SASL: a client must send a name and a password."""

from __future__ import annotations

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"

LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{_MODULE} username="nyala" password="s3cret";',
}
"""Options of Spark's Kafka source that the listener accepts."""


def login_listener(port: int) -> str:
    """Return properties of a broker that listens at `port` too, for clients with a login."""
    return f"""
listeners=PLAINTEXT://127.0.0.1:{{port}},SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{{controller_port}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SASL_PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={_MODULE} user_nyala="s3cret";
"""
