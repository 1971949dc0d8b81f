"""Mutants: identity and encryption between servers, masters and clients."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CERTIFICATES = "tests/unit/tools/test_tools_certificates.py::"

MUTANTS = (
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
)
