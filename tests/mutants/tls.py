"""Mutants: identity and encryption between servers, masters and clients."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CERTIFICATES = "tests/unit/tools/test_tools_certificates.py::"
_GRPC = "tests/unit/rpc/test_rpc_tls.py::"
_ROTATION = "tests/unit/rpc/test_rpc_tls_rotation.py::"
_EXCHANGE = _ROTATION + "test_ca_of_a_running_cluster_is_exchanged_without_a_failed_call"
_LINKS = "tests/unit/transport/test_transport_tls.py::"
_WRITES = "tests/unit/client/test_client_tls_writes.py::"
_IN_TIME = "test_link_that_does_not_go_on_with_tls_is_ended"

MUTANTS = (
    Mutant(
        name="certificate that ends soon looks valid",
        rows="none",
        test=_CERTIFICATES + "test_list_warns_of_certificates_that_end_soon",
        file="replica/tools/certificates.py",
        function="Issued.state",
        before='"ENDS SOON" if now > self.not_after - _SOON else "VALID"',
        after='"VALID"',
    ),
    Mutant(
        name="keys may be read by all",
        rows="none",
        test=_CERTIFICATES + "test_commands_make_a_ca_and_certificates_and_print_no_key",
        file="replica/tools/certificates.py",
        function="_write",
        before="0o600",
        after="0o644",
    ),
    Mutant(
        name="certificate is written over another one",
        rows="none",
        test=_CERTIFICATES + "test_ca_overwrites_nothing_and_refuses_what_it_cannot_name",
        file="replica/tools/certificates.py",
        function="_make_empty",
        before="if found:",
        after="if False:",
    ),
    Mutant(
        name="expired certificate starts a process",
        rows="none",
        test=_CERTIFICATES + "test_credentials_that_are_not_valid_now_or_not_whole_are_refused_at_the_start",
        file="replica/rpc/credentials.py",
        function="load_credentials",
        before="if not begin <= now <= end:",
        after="if not begin <= now:",
    ),
    Mutant(
        name="server listens to all without tls",
        rows="none",
        test=_CERTIFICATES + "test_process_starts_only_with_its_own_certificate_or_where_nobody_else_reaches_it",
        file="replica/rpc/credentials.py",
        function="start_as",
        before="if not insecure and not _is_loopback(host):",
        after="if False:",
    ),
    Mutant(
        name="server starts with a master's certificate",
        rows="none",
        test=_CERTIFICATES + "test_process_starts_only_with_its_own_certificate_or_where_nobody_else_reaches_it",
        file="replica/rpc/credentials.py",
        function="start_as",
        before="if found.own.role != role:",
        after="if False:",
    ),
    Mutant(
        name="directory of one server starts with another's certificate",
        rows="none",
        test=_CERTIFICATES + "test_process_starts_only_with_its_own_certificate_or_where_nobody_else_reaches_it",
        file="replica/rpc/credentials.py",
        function="check_directory_uuid",
        before="if own is not None and own.own.name != uuid:",
        after="if False:",
    ),
    Mutant(
        name="any certificate speaks for any server",
        rows="none",
        test=_GRPC + "test_call_that_speaks_for_another_server_than_its_certificate_is_refused_at_the_door",
        file="replica/rpc/speakers.py",
        function="may_speak",
        before="caller.role in roles and caller.name == uuid",
        after="caller.role in roles",
    ),
    Mutant(
        name="user speaks for the server of the same name",
        rows="none",
        test=_GRPC + "test_call_that_speaks_for_another_server_than_its_certificate_is_refused_at_the_door",
        file="replica/rpc/speakers.py",
        function="may_speak",
        before="caller.role in roles and caller.name == uuid",
        after="caller.name == uuid",
    ),
    Mutant(
        name="gRPC serves callers without a certificate",
        rows="none",
        test=_GRPC + "test_callers_without_a_valid_certificate_of_the_cluster_do_not_get_in",
        file="replica/rpc/connections.py",
        function="listen_on",
        before="if found is not None:",
        after="if False:",
    ),
    Mutant(
        name="certificate of another cluster of the CA counts",
        rows="none",
        test=_GRPC + "test_certificate_of_another_cluster_of_the_same_ca_is_refused",
        file="replica/rpc/credentials.py",
        function="Credentials.holder_in",
        before="first_named(names, self.own.cluster)",
        after="first_named(names)",
    ),
    Mutant(
        name="calls over TLS 1.2 count",
        rows="none",
        test=_GRPC + "test_certificate_of_another_cluster_of_the_same_ca_is_refused",
        file="replica/rpc/credentials.py",
        function="Credentials.holder_calling",
        before='if version != "TLSv1.3":',
        after="if False:",
    ),
    Mutant(
        name="any member is taken for the one that is called",
        rows="none",
        test=_GRPC + "test_caller_reaches_only_the_role_or_uuid_that_it_expects",
        file="replica/rpc/connections.py",
        function="_naming",
        before="credentials.expected(to)",
        after="credentials.expected(ANY_MEMBER)",
    ),
    Mutant(
        name="client has the names of a server",
        rows="none",
        test=_GRPC + "test_caller_reaches_only_the_role_or_uuid_that_it_expects",
        file="replica/tools/certificates.py",
        function="issue",
        before="""
            if role != CLIENT_ROLE:
                uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(named.uri)]
            alternatives += [x509.DNSName(dns.lower()) for dns in named.dns_names]
        """,
        after="""
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(named.uri)]
            alternatives += [x509.DNSName(f"member.{cluster}.nyala")]
        """,
    ),
    Mutant(
        name="client without TLS is not told of it",
        rows="none",
        test=_GRPC + "test_client_is_told_what_is_wrong_with_its_tls",
        file="replica/rpc/tls_problems.py",
        function="handshake_problem",
        before="with handshaken(sock, context, expected) as secure:",
        after='with handshaken(sock, context, expected) as secure:\n            return ""',
    ),
    Mutant(
        name="link takes any certificate of the cluster",
        rows="none",
        test=_LINKS + "test_link_with_another_servers_certificate_is_ended_before_a_message_counts",
        file="replica/transport/listener.py",
        function="_Incoming._secure",
        before="if not may_speak(holder, uuid):",
        after="if False:",
    ),
    Mutant(
        name="frames right after the handshake are lost",
        rows="none",
        test=_LINKS + "test_batches_of_a_link_with_tls_arrive_in_order",
        file="replica/transport/listener.py",
        function="_Incoming._secure",
        before="""
            for body in early:
                self.on_frame(body)
        """,
        after="",
    ),
    Mutant(
        name="link goes on in the clear",
        rows="none",
        test=_LINKS + _IN_TIME,
        file="replica/transport/listener.py",
        function="_Incoming.on_frame",
        before="if self._listener.credentials is None:",
        after="if True:",
    ),
    Mutant(
        name="end within a handshake of a link is not noted",
        rows="none",
        test=_LINKS + _IN_TIME,
        file="replica/transport/listener.py",
        function="_Incoming._secure",
        before="self.connection_lost(error)  # asyncio tells of no end within a handshake",
        after="pass",
    ),
    Mutant(
        name="link goes to any server of the cluster",
        rows="none",
        test=_LINKS + "test_link_goes_only_to_the_server_whose_uuid_its_sender_means",
        file="replica/rpc/connections.py",
        function="connection_to",
        before="found.expected(to)",
        after="found.expected(ANY_MEMBER)",
    ),
    Mutant(
        name="reading thread gets an error that no socket raises",
        rows="none",
        test=_GRPC + "test_connection_for_threads_says_that_nothing_has_come_as_a_socket_does",
        file="replica/rpc/threaded_tls.py",
        function="ThreadedTls.recv",
        before='raise BlockingIOError("no whole record has come") from error',
        after="raise",
    ),
    Mutant(
        name="connection that is ended goes on in the clear",
        rows="none",
        test=_GRPC + "test_connection_that_one_thread_ends_sends_nothing_in_the_clear",
        file="replica/rpc/threaded_tls.py",
        function="ThreadedTls.shutdown",
        before="socket.socket.shutdown(self, how)",
        after="super().shutdown(how)",
    ),
    Mutant(
        name="ticket of a write link is good for any certificate",
        rows="none",
        test=_WRITES + "test_link_is_for_the_certificate_to_which_its_ticket_was_granted",
        file="replica/server/requests/write_links.py",
        function="WriteLink.connection_made",
        before='if tls is not None and tls.holds(transport.get_extra_info("ssl_object")) != self._caller:',
        after="if False:",
    ),
    Mutant(
        name="any number of handshakes of write links",
        rows="none",
        test=_WRITES + "test_handshakes_of_links_are_bounded",
        file="replica/server/requests/write_links.py",
        function="WriteLinks._take",
        before="if len(self._connecting) >= _HANDSHAKES_MAX:",
        after="if False:",
    ),
    Mutant(
        name="files of a copy go to any certificate",
        rows="none",
        test=(
            "tests/unit/server/test_server_fetch.py::"
            "test_files_come_over_tls_to_the_server_that_opened_the_session_alone"
        ),
        file="replica/tablet_copy/wire/fetch_serving.py",
        function="FetchServing._secured",
        before="if not may_speak(holder, self._process.sessions.get(session_id).requestor_uuid):",
        after="if False:",
    ),
    Mutant(
        name="server accepts by the certificates of its start",
        rows="none",
        test=_EXCHANGE,
        file="replica/rpc/credentials.py",
        function="Credentials.for_grpc_port",
        before="""
            given = self.grpc_certificate
            return given
        """,
        after="            return None",
    ),
    Mutant(
        name="new certificate is for another holder",
        rows="none",
        test=_ROTATION + "test_files_that_cannot_be_used_leave_those_before_in_use",
        file="replica/rpc/credentials.py",
        function="Credentials.refresh",
        before="if found.own != self.own:",
        after="if False:",
    ),
    Mutant(
        name="files that cannot be used are told every time",
        rows="none",
        test=_ROTATION + "test_files_that_cannot_be_used_leave_those_before_in_use",
        file="replica/rpc/credentials.py",
        function="Credentials.refresh",
        before="if files != self._refused:",
        after="if True:",
    ),
    Mutant(
        name="client reads its files for each call",
        rows="none",
        test=_ROTATION + "test_files_are_read_again_only_after_the_interval",
        file="replica/rpc/credentials.py",
        function="Credentials.refresh",
        before="time.monotonic() - self._read_at < after_s",
        after="time.monotonic() - self._read_at < 0",
    ),
    Mutant(
        name="client reconnects with its former certificate",
        rows="none",
        test=_ROTATION + "test_cached_channels_are_made_anew_with_new_credentials",
        file="replica/client/channels.py",
        function="Channels._stub",
        before="self._channels, self._stubs = {}, {}  # calls under way keep their channel until they end",
        after="pass",
    ),
    Mutant(
        name="write link is requested with the former certificate",
        rows="none",
        test=_ROTATION + "test_cached_channels_are_made_anew_with_new_credentials",
        file="replica/client/channels.py",
        function="Channels.small_writes",
        before="found.stub = stub",
        after="pass",
    ),
    Mutant(
        name="server reconnects with its former certificate",
        rows="none",
        test=_ROTATION + "test_cached_channels_are_made_anew_with_new_credentials",
        file="replica/server/runtime/channels.py",
        function="Channels.get",
        before="self._channels.clear()",
        after="pass",
    ),
    Mutant(
        name="server never reads its files again",
        rows="none",
        test="tests/process/test_tls_process.py::test_running_cluster_takes_the_certificates_of_another_ca",
        file="replica/rpc/credentials.py",
        function="_keep_fresh",
        before="credentials.refresh()",
        after="pass",
    ),
)
