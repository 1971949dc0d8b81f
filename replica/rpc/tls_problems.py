"""Finds out why a server ends the connection of a client: the two do not agree about TLS."""

from __future__ import annotations

import socket
import ssl

from .credentials import ANY_MEMBER, Credentials
from .threaded_tls import handshaken

ONLY_TLS = (
    "the server there takes connections with TLS only: name the directory of a client's certificate with tls= or the "
    "environment variable NYALA_TLS; `nyala security issue` makes one"
)
NO_TLS = (
    "the server there has no TLS, and this client does: leave out tls= and the environment variable NYALA_TLS, or "
    "start the cluster's processes with --tls"
)
_OURS = "the server there does not accept this client's certificate"
_THEIRS = "this client does not accept the certificate of the server there"
_NEW = "issue a new one with `nyala security issue`"
_NOT_OURS = f"{_OURS}: it is of another cluster's CA, or not valid now; {_NEW} from the CA of this cluster"
_REASONS = (
    ("alert certificate expired", f"{_OURS}: it has expired, or a clock is wrong; {_NEW}"),
    ("alert", _NOT_OURS),
    ("certificate has expired", f"{_THEIRS}: it has expired, or this machine's clock is wrong; {_NEW} for the server"),
    ("not yet valid", f"{_THEIRS}: it is not valid yet; set the clocks of both machines"),
    ("Hostname mismatch", f"{_THEIRS}: it is of another cluster, or of no server or master; look what listens there"),
    ("certificate verify failed", f"{_THEIRS}: it is of another cluster's CA; look what listens there"),
)
"""Text of OpenSSL -> what a user is told. The first one that fits counts."""


def handshake_problem(sock: socket.socket, credentials: Credentials | None) -> str:
    """Why no call comes about on this new connection to a server of gRPC; empty if it is not because of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if credentials is None else credentials.calling
    expected = "nyala" if credentials is None else credentials.expected(ANY_MEMBER)
    if credentials is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is only asked whether the server speaks TLS
        context.set_alpn_protocols(["h2"])
    try:
        with handshaken(sock, context, expected) as secure:
            if credentials is None:
                return ONLY_TLS
            # In TLS 1.3 the server's verdict comes after the handshake: first bytes of HTTP/2, an alert, or the end.
            return "" if secure.recv() else _NOT_OURS
    except ssl.SSLError as error:
        text = str(error)
        if "WRONG_VERSION_NUMBER" in text or "UNEXPECTED_EOF" in text or "record layer failure" in text:
            return NO_TLS if credentials is not None else ""
        if credentials is None:
            return ONLY_TLS
        return next((told for part, told in _REASONS if part in text), f"{_THEIRS}: {text}")
    except OSError:
        return ""
