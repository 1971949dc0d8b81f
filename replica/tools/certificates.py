"""The cluster's certificate authority (CA), a directory with its key and the certificates that it issued."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nyala.replica.fs import RealDisk
from nyala.replica.rpc import (
    CA,
    CERTIFICATE,
    CLIENT_ROLE,
    KEY,
    MASTER_ROLE,
    OPERATOR_ROLE,
    SERVER_ROLE,
    Named,
    certificate_uris,
    first_named,
)
from nyala.replica.types import Code, Refused, as_given, new_uuid

T = TypeVar("T")

_SOON = timedelta(days=14)
"""The last days of a certificate, in which `state` warns of its end."""

CA_KEY, ISSUED = "ca.key", "issued"
CA_DAYS, CERTIFICATE_DAYS, DAYS_MAX = 3650, 365, 3650
_BEFORE = timedelta(minutes=5)
"""A certificate is valid from a little before its issue, because clocks of machines differ."""


class Issued(NamedTuple):
    """One certificate of a CA. Times in UTC."""

    serial: str
    named: Named
    not_before: datetime
    not_after: datetime

    @property
    def state(self) -> str:
        """VALID, ENDS SOON (within 14 days), EXPIRED or NOT YET VALID."""
        now = datetime.now(UTC)
        if now < self.not_before:
            return "NOT YET VALID"
        return "EXPIRED" if now > self.not_after else "ENDS SOON" if now > self.not_after - _SOON else "VALID"


def init_ca(directory: Path, cluster: str = "") -> str:
    """Make a new CA in an empty directory and return the cluster's name: the given one, or a new one of its own.

    The CA's key is written first and its certificate last, so a directory without `ca.pem` has no CA. Refused
    ALREADY_EXISTS if the directory is not empty.
    """
    cluster = cluster or new_uuid()
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", cluster):
        what = "a cluster's name has 1 to 40 small letters, digits and '-', nothing was written: give another one"
        raise Refused(Code.INVALID_ARGUMENT, what, cluster=as_given(cluster))
    _make_empty(directory)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Nyala cluster {cluster}")])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = _builder(name, name, key.public_key(), now, now + timedelta(days=CA_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    uri = x509.UniformResourceIdentifier(f"nyala://{cluster}")
    builder = builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
    (directory / ISSUED).mkdir(mode=0o700)
    _write(directory / CA_KEY, _key_bytes(key))
    _write(directory / CA, _pem(builder.sign(key, hashes.SHA256())))
    return cluster


def issue(
    ca: Path, role: str, name: str, out: Path, *, days: float = CERTIFICATE_DAYS, begin: datetime | None = None
) -> Issued:
    """Make a key and a certificate in the empty directory `out`, for the server or master of uuid `name`, or the user
    `name` of a client or operator; an empty name of a server or master: a new uuid. `begin`: default now.

    The CA's record of it is written before the certificate: no certificate is unknown to `issued`.
    """
    certificate = _read(ca / CA, x509.load_pem_x509_certificate)
    signer = _read(ca / CA_KEY, _signing_key)
    cluster = certificate_uris(certificate)[0].removeprefix("nyala://")
    member = role in (SERVER_ROLE, MASTER_ROLE)
    named = Named(cluster, role, name or (new_uuid() if member else ""))
    if not (member or role in (CLIENT_ROLE, OPERATOR_ROLE)) or first_named(named.uris) != named:
        what = (
            "a certificate is for a server, a master, a client or an operator, whose uuid or user has 1 to 63 letters, "
            "digits, '.', '_', '@' and '-', nothing was written: give another one"
        )
        raise Refused(Code.INVALID_ARGUMENT, what, role=as_given(role), name=as_given(name))
    if not 0 < days <= DAYS_MAX:
        what = f"a certificate is valid for at most {DAYS_MAX} days, nothing was written: give another time"
        raise Refused(Code.INVALID_ARGUMENT, what, days=days)
    begin = begin or datetime.now(UTC)
    _make_empty(out)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{role} {named.name}"[:64])])
    builder = _builder(certificate.subject, subject, key.public_key(), begin, begin + timedelta(days=days))
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if member:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in named.uris]
    alternatives += [x509.DNSName(dns.lower()) for dns in named.dns_names]
    key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage(uses), False),
        (x509.SubjectAlternativeName(alternatives), False),
        (key_id, False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    made = builder.sign(signer, hashes.SHA256())
    serial = f"{made.serial_number:x}"
    _write(ca / ISSUED / f"{serial}.pem", _pem(made))
    _write(out / KEY, _key_bytes(key))
    _write(out / CA, _pem(certificate))
    _write(out / CERTIFICATE, _pem(made))
    return _issued(made)


def issued(ca: Path) -> list[Issued]:
    """All certificates that the CA issued, the one that expires first comes first."""
    _read(ca / CA, x509.load_pem_x509_certificate)
    found = [_read(path, x509.load_pem_x509_certificate) for path in (ca / ISSUED).glob("*.pem")]
    return sorted(map(_issued, found), key=lambda one: (one.not_after, one.serial))


def _issued(certificate: x509.Certificate) -> Issued:
    named = first_named(certificate_uris(certificate))
    if named is None:
        raise Refused(Code.CORRUPTION, "a certificate of the CA names nobody", serial=f"{certificate.serial_number:x}")
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Issued(f"{certificate.serial_number:x}", named, begin, end)


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    """A certificate to be signed, with a number of its own and the id of its key."""
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begin - _BEFORE, end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _signing_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("no key that `init_ca` makes")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read(path: Path, load: Callable[[bytes], T]) -> T:
    """The object in a file; Refused NOT_FOUND or CORRUPTION with its path, and never with its bytes."""
    try:
        return load(path.read_bytes())
    except OSError as error:
        what = "there is no CA here that can be read, nothing was written: `nyala security init` makes one"
        raise Refused(Code.NOT_FOUND, what, path=str(path), reason=error.strerror) from error
    except (ValueError, TypeError):
        what = "the file is damaged: put it back from a backup of the CA's directory"
        raise Refused(Code.CORRUPTION, what, path=str(path)) from None


def _make_empty(directory: Path) -> None:
    """Make the directory, for its owner only; Refused ALREADY_EXISTS if it exists and is not empty."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: Sequence[str] = os.listdir(directory)
    except OSError as error:
        what = "the directory cannot be made, nothing was written: name another one"
        raise Refused(Code.INVALID_ARGUMENT, what, path=str(directory), reason=error.strerror) from error
    if found:
        what = "the directory is not empty, nothing was written: name a new one"
        raise Refused(Code.ALREADY_EXISTS, what, path=str(directory), found=sorted(found)[0])


def _write(path: Path, data: bytes) -> None:
    """Write a file for its owner only, durably and as a whole."""
    RealDisk(path.parent, file_mode=0o600).replace(path.name, data)
