"""The TLS credentials of a process, and the names in certificates by which peers of one cluster know one another.

A directory of credentials has three files: `ca.pem`, `certificate.pem` and `key.pem`, which `nyala security issue`
makes. Every certificate has the URI `nyala://CLUSTER/ROLE/NAME`. Those of servers and masters also have DNS names, of
which a caller checks one in the handshake: that of a role, or that of a uuid. No name server has to know them.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from nyala.replica.types import Code, Refused, as_given, place_to_listen
from nyala.replica.types.names import shown

if TYPE_CHECKING:
    from cryptography import x509

CA, CERTIFICATE, KEY = "ca.pem", "certificate.pem", "key.pem"
ANY_MEMBER, SERVER_ROLE, MASTER_ROLE, CLIENT_ROLE = "member", "server", "master", "client"
ENVIRONMENT = "NYALA_TLS"
"""The environment variable that names the directory of a client's credentials."""
HANDSHAKE_S_MAX = 5.0
"""The time in which a TLS handshake on one of our own connections must end."""
_URI = re.compile(
    r"nyala://(?P<cluster>[a-z0-9-]{1,40})/(?P<role>server|master|client)/(?P<name>[A-Za-z0-9._@-]{1,63})"
)


class Named(NamedTuple):
    """The holder of a certificate: `name` is the uuid of a server or master, or the user of a client."""

    cluster: str
    role: str
    name: str

    @property
    def uri(self) -> str:
        """The URI in the certificate."""
        return f"nyala://{self.cluster}/{self.role}/{self.name}"

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The DNS names in the certificate; none for a client, because nobody connects to it."""
        if self.role == CLIENT_ROLE:
            return ()
        return tuple(_dns(self.cluster, to) for to in (ANY_MEMBER, self.role, f"{self.name}.uuid"))

    def __str__(self) -> str:
        return f"{self.role} {self.name} of cluster {self.cluster}"


def named_by(uri: str) -> Named | None:
    """The holder that a URI names; None if it is none of ours."""
    found = _URI.fullmatch(uri)
    return Named(**found.groupdict()) if found else None


def first_named(uris: Iterable[str], cluster: str = "") -> Named | None:
    """The holder that the first of ours among these URIs names, of this `cluster` if one is given; None if none is."""
    found = filter(None, map(named_by, uris))
    return next((named for named in found if cluster in ("", named.cluster)), None)


def certificate_uris(certificate: x509.Certificate) -> list[str]:
    """The URIs in a certificate. x509.ExtensionNotFound if it has no names."""
    from cryptography import x509

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


Proof = Mapping[str, Iterable[bytes]]
"""What gRPC knows of the other end of a connection: the `auth_context` of a call."""


def uris_in(proof: Proof) -> list[str]:
    """The URIs in the caller's certificate; none without TLS."""
    return [uri.decode("ascii", "replace") for uri in proof.get("peer_uri", ())]


def _dns(cluster: str, to: str) -> str:
    return f"{to}.{cluster}.nyala"


@dataclass(frozen=True)
class Credentials:
    """A key, its certificate, and the CA by which peers are checked. The key is in no text of this object."""

    own: Named
    accepting: ssl.SSLContext
    calling: ssl.SSLContext
    grpc_server: Any
    grpc_channel: Any

    def expected(self, to: str) -> str:
        """The DNS name that the certificate of the called process must have; `to`: a role, ANY_MEMBER or a uuid."""
        return _dns(self.own.cluster, to if to in (ANY_MEMBER, SERVER_ROLE, MASTER_ROLE) else f"{to.lower()}.uuid")

    def holder_in(self, names: Sequence[str]) -> Named:
        """The holder of a peer's certificate, by its URIs, which the handshake has verified. Refused WRONG_CLUSTER if
        it names none of this cluster."""
        found = first_named(names, self.own.cluster)
        if found is not None:
            return found
        what = (
            "the caller's certificate is of another cluster, nothing was applied: use one that `nyala security issue` "
            "made for this cluster"
        )
        raise Refused(Code.WRONG_CLUSTER, what, cluster=self.own.cluster, certificate=shown(", ".join(names)))

    def holds(self, connection: ssl.SSLSocket | ssl.SSLObject) -> Named | None:
        """As `holder_of`, without an error: None for a certificate of another cluster."""
        try:
            return self.holder_of(connection)
        except Refused:
            return None

    def holder_calling(self, proof: Proof) -> Named:
        """The holder of the certificate with which a call of gRPC came. Refused WRONG_CLUSTER if it is of another
        cluster, INVALID_ARGUMENT if the connection is not of TLS 1.3, which gRPC cannot demand by itself."""
        version = b" ".join(proof.get("ssl_tls_version", ())).decode("ascii", "replace")
        if version != "TLSv1.3":
            what = "calls of this cluster come over TLS 1.3, nothing was applied: upgrade the caller's TLS library"
            raise Refused(Code.INVALID_ARGUMENT, what, version=shown(version))
        return self.holder_in(uris_in(proof))

    def holder_of(self, connection: ssl.SSLSocket | ssl.SSLObject) -> Named:
        """The holder of the peer's certificate on a TLS connection."""
        found: Any = (connection.getpeercert() or {}).get("subjectAltName", ())
        return self.holder_in([value for kind, value in found if kind == "URI"])


def load_credentials(directory: str | os.PathLike[str]) -> Credentials:
    """Read the credentials in a directory. Refused INVALID_ARGUMENT if a file is missing, does not fit the others, or
    if the certificate has expired or is not valid yet."""
    from cryptography import x509

    folder = Path(directory)
    try:
        ca, chain, key = ((folder / name).read_bytes() for name in (CA, CERTIFICATE, KEY))
        certificate = x509.load_pem_x509_certificate(chain)
        uris = certificate_uris(certificate)
        calling = _context(folder, ssl.PROTOCOL_TLS_CLIENT)
        accepting = _context(folder, ssl.PROTOCOL_TLS_SERVER)
    except OSError as error:  # ssl.SSLError too
        what = (
            "the TLS credentials cannot be read; name with tls= or --tls a directory with ca.pem, certificate.pem "
            "and its key.pem, as `nyala security issue` makes them"
        )
        raise _refused(what, folder, reason=error.strerror or type(error).__name__) from error
    except (ValueError, x509.ExtensionNotFound) as error:
        what = "tls= or --tls names no directory with a certificate that has names; issue a new one"
        raise _refused(what, folder) from error
    own = first_named(uris)
    if own is None:
        what = "certificate.pem names no process of a cluster; use one that `nyala security issue` made"
        raise _refused(what, folder, names=shown(", ".join(uris)))
    now, begin, end = datetime.now(UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        when = f"has expired on {end:%Y-%m-%dT%H:%MZ}" if now > end else f"is valid only from {begin:%Y-%m-%dT%H:%MZ}"
        what = f"certificate.pem {when}; issue a new one, or set this machine's clock"
        raise _refused(what, folder, now=f"{now:%Y-%m-%dT%H:%MZ}")
    return Credentials(
        own,
        accepting,
        calling,
        grpc.ssl_server_credentials(((key, chain),), ca, require_client_auth=True),
        grpc.ssl_channel_credentials(ca, key, chain),
    )


def _context(folder: Path, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # no connection resumes a former one: each shows its certificate
    else:
        context.set_alpn_protocols(["h2"])  # for `tls_problems.py`, which connects to gRPC's port
    context.load_verify_locations(folder / CA)
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return context


def _refused(what: str, folder: Path, **values: object) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, what, {"directory": as_given(str(folder)), **values})


class _Process:
    """The credentials of this process: each connection has them that is made or accepted without others."""

    credentials: Credentials | None = None
    known = False


def speak_as(credentials: Credentials | None) -> None:
    """Use these credentials for all connections of this process from now on; None: connect and accept without TLS."""
    _Process.credentials, _Process.known = credentials, True


def start_as(role: str, directory: str, listen: str, insecure: bool) -> str:
    """Let this server or master speak with the credentials in `directory`, without TLS if it is empty. Returns the uuid
    in the certificate; empty without TLS.

    Refused INVALID_ARGUMENT if the certificate is not for a process of this role, or if `listen` can be reached from
    other machines without TLS, unless `insecure`.
    """
    if not directory:
        host = place_to_listen(listen)[0].strip("[]")
        if not insecure and not _is_loopback(host):
            what = (
                "without TLS, every process that reaches this address can read and change all data: give --tls with "
                "a directory of `nyala security issue`, listen on 127.0.0.1, or give --insecure if the network is "
                "closed to others"
            )
            raise Refused(Code.INVALID_ARGUMENT, what, listen=listen)
        speak_as(None)
        return ""
    found = load_credentials(directory)
    if found.own.role != role:
        what = f"--tls needs a certificate for a {role}: issue one with `nyala security issue`"
        raise _refused(what, Path(directory), certificate=str(found.own))
    speak_as(found)
    return found.own.name


def check_directory_uuid(uuid: str) -> None:
    """Refused INVALID_NAME if a server's directory has another uuid than the certificate of its process names."""
    own = credentials_of_process()
    if own is not None and own.own.name != uuid:
        what = (
            "the certificate is for another uuid than the directory's, the process does not start: issue one for the "
            "directory with `nyala security issue --name UUID`"
        )
        raise Refused(Code.INVALID_NAME, what, directory_uuid=uuid, certificate=str(own.own))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def credentials_of_process() -> Credentials | None:
    """The credentials of this process: those of `speak_as`, else those in the directory NYALA_TLS; None: no TLS."""
    if not _Process.known:
        directory = os.environ.get(ENVIRONMENT)
        speak_as(load_credentials(directory) if directory else None)
    return _Process.credentials
