"""The TLS credentials of a process, and the names in certificates by which peers of one cluster know one another.

A directory of credentials has three files: `ca.pem`, `certificate.pem` and `key.pem`, which `nyala security issue`
makes. A running process reads them again every `REFRESH_S` seconds, and uses new ones from its next handshake on. Every
certificate has the URI `nyala://CLUSTER/KIND/NAME`, of the kinds `server`, `master` and `client`. Those of clients have
a second one, `nyala://CLUSTER/rights/RIGHTS`: `client` or `operator`. Those of servers and masters also have DNS names,
of which a caller checks one in the handshake: that of a role, or that of a uuid. No name server has to know them.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from nyala.replica.types import Code, Refused, as_given, place_to_listen
from nyala.replica.types.names import shown

if TYPE_CHECKING:
    from cryptography import x509

_log = logging.getLogger("nyala.rpc")

CA, CERTIFICATE, KEY = "ca.pem", "certificate.pem", "key.pem"
ANY_MEMBER, SERVER_ROLE, MASTER_ROLE = "member", "server", "master"
CLIENT_ROLE, OPERATOR_ROLE = "client", "operator"
UNMARKED_ROLE = "unmarked client"
"""The role of a client's certificate without rights, as earlier builds issued it."""
UNKNOWN_ROLE = "client of unknown rights"
"""The role of a client's certificate whose rights this build does not know, or that names several."""
ENVIRONMENT = "NYALA_TLS"
"""The environment variable that names the directory of a client's credentials."""
HANDSHAKE_S_MAX = 5.0
"""The time in which a TLS handshake on one of our own connections must end."""
REFRESH_S = 10.0
"""The time after which a process reads the files of its credentials again."""
_URI = re.compile(
    r"nyala://(?P<cluster>[a-z0-9-]{1,40})/(?P<role>server|master|client)/(?P<name>[A-Za-z0-9._@-]{1,63})"
)


class Named(NamedTuple):
    """The holder of a certificate: `name` is the uuid of a server or master, or the user of a client or operator."""

    cluster: str
    role: str
    name: str

    @property
    def uri(self) -> str:
        """The URI that names the holder: of a client, whatever its rights are."""
        kind = self.role if self.role in (SERVER_ROLE, MASTER_ROLE) else CLIENT_ROLE
        return f"nyala://{self.cluster}/{kind}/{self.name}"

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs in the certificate. Earlier builds take the first one for a client's, and ignore the other one."""
        if self.role in (CLIENT_ROLE, OPERATOR_ROLE):
            return self.uri, _rights_of(self.cluster) + self.role
        return (self.uri,)

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The DNS names in the certificate; none for a client, because nobody connects to it."""
        if self.role not in (SERVER_ROLE, MASTER_ROLE):
            return ()
        return tuple(_dns(self.cluster, to) for to in (ANY_MEMBER, self.role, f"{self.name}.uuid"))

    def __str__(self) -> str:
        return f"{self.role} {self.name} of cluster {self.cluster}"


def first_named(uris: Sequence[str], cluster: str = "") -> Named | None:
    """The holder that the first of ours among a certificate's URIs names, of this `cluster` if one is given; None if
    none is. Its role is that by which a client's rights are judged."""
    matches = filter(None, map(_URI.fullmatch, uris))
    holders = (Named(**match.groupdict()) for match in matches)
    found = next((named for named in holders if cluster in ("", named.cluster)), None)
    if found is None or found.role != CLIENT_ROLE:
        return found
    begin = _rights_of(found.cluster)
    rights = [uri.removeprefix(begin) for uri in uris if uri.startswith(begin)]
    if not rights:
        return found._replace(role=UNMARKED_ROLE)
    return found._replace(role=rights[0] if rights in ([CLIENT_ROLE], [OPERATOR_ROLE]) else UNKNOWN_ROLE)


def _rights_of(cluster: str) -> str:
    return f"nyala://{cluster}/rights/"


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


@dataclass(eq=False)
class Credentials:
    """A key, its certificate, and the CAs by which peers are checked. The key is in no text of this object.

    Invariants: the cluster, kind and name of `own` stay; `refresh` replaces all else, a client's rights too.
    Connections that exist go on with what they began with. Concurrency: any thread.
    """

    own: Named
    accepting: ssl.SSLContext
    calling: ssl.SSLContext
    grpc_certificate: Any
    grpc_channel: Any
    """Another object after each replacement. A channel of gRPC makes all its connections with the one that it got."""
    directory: Path | None = None
    _files: tuple[bytes, ...] = field(default=(), repr=False)
    _refused: tuple[bytes, ...] | None = field(default=None, repr=False)
    _read_at: float = field(default=0.0, repr=False)

    def refresh(self, after_s: float = 0.0) -> None:
        """Use the files that are in the directory now, if they have changed; read them only if the last reading is
        `after_s` ago. Blocks.

        If they cannot be used, or name another holder, those in use stay in use, and the log says so once.
        """
        if self.directory is None or time.monotonic() - self._read_at < after_s:
            return
        self._read_at = time.monotonic()
        files: tuple[bytes, ...] = ()
        try:
            files = _files_in(self.directory)
            if files == self._files:
                return
            found = load_credentials(self.directory)
            if found.own.uri != self.own.uri:
                what = "certificate.pem names another holder than the one before; a process needs a restart for that"
                raise _refused(what, self.directory, before=str(self.own), now=str(found.own))
        except (OSError, Refused) as error:
            if files != self._refused:
                _log.error("the TLS credentials have changed and cannot be used, those before stay in use: %s", error)
            self._refused = files
            return
        self.own, self.accepting, self.calling = found.own, found.accepting, found.calling
        self.grpc_certificate, self.grpc_channel = found.grpc_certificate, found.grpc_channel
        self._files, self._refused = found._files, None
        _log.info("new TLS credentials from %s are in use", self.directory)

    def for_grpc_port(self) -> grpc.ServerCredentials:
        """Credentials for one port of a gRPC server. Each handshake there uses the certificate of its time."""
        given = self.grpc_certificate

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            if given is self.grpc_certificate:
                return None
            given = self.grpc_certificate
            return given

        return grpc.dynamic_ssl_server_credentials(given, changed, require_client_authentication=True)

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
        files = ca, chain, key = _files_in(folder)
        certificate = x509.load_pem_x509_certificate(chain)
        uris = certificate_uris(certificate)
        calling = _context(folder, ssl.PROTOCOL_TLS_CLIENT)
        accepting = _context(folder, ssl.PROTOCOL_TLS_SERVER)
        changed = files != _files_in(folder)
    except OSError as error:  # ssl.SSLError too
        what = (
            "the TLS credentials cannot be read; name with tls= or --tls a directory with ca.pem, certificate.pem "
            "and its key.pem, as `nyala security issue` makes them"
        )
        raise _refused(what, folder, reason=error.strerror or type(error).__name__) from error
    except (ValueError, x509.ExtensionNotFound) as error:
        what = "tls= or --tls names no directory with a certificate that has names; issue a new one"
        raise _refused(what, folder) from error
    if changed:
        raise _refused("the TLS credentials were replaced while they were read; try again", folder)
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
        grpc.ssl_server_certificate_configuration(((key, chain),), ca),
        grpc.ssl_channel_credentials(ca, key, chain),
        folder,
        files,
    )


def _files_in(folder: Path) -> tuple[bytes, bytes, bytes]:
    return (folder / CA).read_bytes(), (folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes()


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
    in the certificate; empty without TLS. A thread refreshes the credentials as long as they are the process's.

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
    threading.Thread(target=_keep_fresh, args=(found,), name="tls-files", daemon=True).start()
    return found.own.name


def _keep_fresh(credentials: Credentials) -> None:
    while _Process.credentials is credentials:
        time.sleep(REFRESH_S)
        try:
            credentials.refresh()
        except Exception:  # noqa: BLE001 - the root of this thread: the next reading may succeed
            _log.exception("the TLS credentials could not be read, those before stay in use")


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
