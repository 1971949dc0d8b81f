"""Certificates for tests: a cluster's CA made once, and credentials of which a block uses some."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nyala.replica.rpc import Credentials, credentials_of_process, load_credentials, speak_as
from nyala.replica.tools import init_ca, issue

CLUSTER = "test-cluster"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nyala-certificates-")


def authority(name: str = "ca", cluster: str = CLUSTER) -> Path:
    """The directory of a CA, made once; another `name`: another one."""
    directory = Path(_folder().name) / name
    if not directory.exists():
        init_ca(directory, cluster)
    return directory


def directory_for(
    role: str, name: str, ca: str = "ca", cluster: str = CLUSTER, days: float = 30, begin: datetime | None = None
) -> Path:
    """The directory of the credentials of one holder, made once."""
    directory = Path(_folder().name) / f"{ca}-{role}-{name}-{cluster}-{days}-{begin and begin.timestamp()}"
    if not directory.exists():
        issue(authority(ca, cluster), role, name, directory, days=days, begin=begin)
    return directory


def resigned(directory: Path, uris: Sequence[str]) -> Path:
    """The directory of credentials as in `directory`, whose certificate of the cluster's CA has these URIs; made
    once."""
    made = directory.with_name(f"{directory.name}-{hashlib.sha256(repr(uris).encode()).hexdigest()[:16]}")
    if not made.exists():
        shutil.copytree(directory, made)
        given = x509.load_pem_x509_certificate((directory / "certificate.pem").read_bytes())
        key = serialization.load_pem_private_key((authority() / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        builder = x509.CertificateBuilder(
            given.issuer, given.subject, given.public_key(), x509.random_serial_number(),
            given.not_valid_before_utc, given.not_valid_after_utc,
        )  # fmt: skip
        for extension in given.extensions:
            if not isinstance(extension.value, x509.SubjectAlternativeName):
                builder = builder.add_extension(extension.value, critical=extension.critical)
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
        (made / "certificate.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return made


def earlier_client(name: str) -> Path:
    """The directory of a client's credentials as earlier builds issued them: without rights."""
    return resigned(directory_for("client", name), [f"nyala://{CLUSTER}/client/{name}"])


def credentials_for(role: str, name: str) -> Credentials:
    """The credentials of one holder in the test's cluster."""
    return load_credentials(directory_for(role, name))


@contextmanager
def speaking_as(credentials: Credentials | None) -> Iterator[None]:
    """What the block connects, and each part that it makes, has these credentials; None: none."""
    before = credentials_of_process()
    speak_as(credentials)
    try:
        yield
    finally:
        speak_as(before)
