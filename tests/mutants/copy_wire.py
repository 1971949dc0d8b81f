"""Mutants: the road of a copy."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="copies do not yield",
        rows="TC-11",
        test="tests/unit/server/test_server_copy_rate.py::test_copies_yield_to_writes_and_come_back_a_second_later",
        file="replica/tablet_copy/wire/copy_rate.py",
        function="rate_allowed",
        before="writing = since_write_us is not None and since_write_us < WRITING_US",
        after="writing = since_write_us is not None and since_write_us < 0",
    ),
    Mutant(
        name="each stream has the rate",
        rows="TC-11",
        test="tests/unit/server/test_server_copy_rate.py::test_cap_holds_within_ten_percent",
        file="replica/tablet_copy/wire/copy_rate.py",
        function="CopyRate.draw",
        before="self._drawn += length_bytes",
        after="self._drawn += length_bytes // 2",
    ),
    Mutant(
        name="late sleepers lose their share",
        rows="TC-11",
        test="tests/unit/server/test_server_copy_rate.py::test_cap_holds_within_ten_percent",
        file="replica/tablet_copy/wire/copy_rate.py",
        function="CopyRate._pay",
        before="self._paid = min(self._paid + earned, self._drawn + rate * BURST_S)",
        after="self._paid = min(self._paid + earned, self._drawn)",
    ),
    Mutant(
        name="unused rate is kept for ever",
        rows="TC-11",
        test="tests/unit/server/test_server_copy_rate.py::test_copy_that_comes_after_a_rest_does_not_make_up_for_it",
        file="replica/tablet_copy/wire/copy_rate.py",
        function="CopyRate._pay",
        before="self._paid = min(self._paid + earned, self._drawn + rate * BURST_S)",
        after="self._paid = self._paid + earned",
    ),
    Mutant(
        name="request on a connection ignores the name",
        rows="TC-73",
        test=(
            "tests/unit/server/test_server_fetch.py::"
            "test_request_that_is_not_for_this_session_here_is_refused_and_the_connection_goes_on"
        ),
        file="replica/tablet_copy/wire/fetch_serving.py",
        function="FetchServing._answer",
        before="""
            check_name(request.dest_uuid, self._process.uuid)
        """,
        after="",
    ),
    Mutant(
        name="block lost at the source is served on",
        rows="TC-51",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_block_that_cannot_be_read_for_a_copy_is_told_and_fails_the_replica"
        ),
        file="replica/tablet_copy/wire/fetch_serving.py",
        function="FetchServing._answer",
        before="if isinstance(error, Corruption):",
        after="if False:",
    ),
    Mutant(
        name="source ignores the rate",
        rows="TC-11",
        test="tests/unit/server/test_server_copy_pace.py::test_copy_waits_for_the_rate_of_either_side",
        file="replica/tablet_copy/wire/fetch_serving.py",
        function="FetchServing._wait_for_rate",
        before="drawn = process.copy_rate.draw(length_bytes)",
        after="drawn = 0",
    ),
    Mutant(
        name="waiting source shows no life",
        rows="TC-11",
        test="tests/unit/server/test_server_fetch.py::test_source_that_waits_for_its_rate_is_not_taken_for_silent",
        file="replica/tablet_copy/wire/fetch_serving.py",
        function="FetchServing._wait_for_rate",
        before="""
            send_message(sock, pb.FetchPart())
        """,
        after="",
    ),
    Mutant(
        name="run is not told",
        rows="TC-60",
        test=(
            "tests/process/test_crash_matrix_server.py::"
            "test_server_that_dies_in_any_cell_of_the_matrix_ends_as_the_matrix_says"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource.begin",
        before="""
            requestor_run=_run_of(os.getpid()),
        """,
        after="",
    ),
    Mutant(
        name="clock set back begins nothing",
        rows="TC-28",
        test="tests/unit/server/test_server_fetch.py::test_target_whose_clock_was_set_back_begins_all_the_same",
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource.begin",
        before="if error.code is not Code.CAS_FAILED:",
        after="if error:",
    ),
    Mutant(
        name="part may be longer than asked for",
        rows="TC-51",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_copy_whose_bytes_do_not_arrive_ends_as_a_tombstone_and_is_retried"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource._piece",
        before="if part.byte_offset != at or not 0 < part.length_bytes <= end - at:",
        after="if part.byte_offset != at or not 0 < part.length_bytes:",
    ),
    Mutant(
        name="part offset is not compared",
        rows="TC-51",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_copy_whose_bytes_do_not_arrive_ends_as_a_tombstone_and_is_retried"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource._piece",
        before="if part.byte_offset != at or not 0 < part.length_bytes <= end - at:",
        after="if not 0 < part.length_bytes <= end - at:",
    ),
    Mutant(
        name="silent source is waited for",
        rows="TC-12",
        test="tests/unit/server/test_server_fetch.py::test_source_that_says_nothing_is_given_up",
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource._connect",
        before="set_timeouts(sock, self.SILENCE_S)",
        after="set_timeouts(sock, 3600)",
    ),
    Mutant(
        name="abort waits for a silent source",
        rows="TC-12",
        test="tests/unit/server/test_server_fetch.py::test_source_that_says_nothing_is_given_up",
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource.abort",
        before="""
            for sock in self._connections:
                close_connection(sock)
        """,
        after="",
    ),
    Mutant(
        name="leaderless source serves nobody",
        rows="MF-29",
        test=(
            "tests/process/test_master_migration_process.py::"
            "test_copies_of_a_leaderless_first_master_are_equal_and_made_at_once"
        ),
        file="replica/tablet_copy/wire/source_service.py",
        function="SourceServicer.BeginCopy",
        before="if not is_leader and not request.allow_leaderless:",
        after="if not is_leader:",
    ),
    Mutant(
        name="every target is a member",
        rows="IN-51",
        test="tests/unit/server/test_server_fetch.py::test_connections_are_bounded_and_their_places_are_given_back",
        file="replica/tablet_copy/wire/source_service.py",
        function="SourceServicer.BeginCopy",
        before="any(member.uuid == request.requestor_uuid for member in members)",
        after="True",
    ),
    Mutant(
        name="one copy session takes every connection",
        rows="IN-51",
        test="tests/unit/server/test_server_fetch.py::test_connections_are_bounded_and_their_places_are_given_back",
        file="replica/tablet_copy/wire/fetch_serving.py",
        function="FetchServing.taken",
        before="count < limits.COPY_FETCHES_PER_SESSION_MAX and ",
        after="",
    ),
    Mutant(
        name="connections of ended copy sessions stay",
        rows="IN-51",
        test="tests/unit/server/test_server_fetch.py::test_connections_are_bounded_and_their_places_are_given_back",
        file="replica/tablet_copy/wire/fetch_serving.py",
        function="FetchServing.taken",
        before="if its_session not in alive:",
        after="if False:",
    ),
    Mutant(
        name="log is read for a copy whose caller left",
        rows="IN-62",
        test="tests/unit/server/test_server_callers.py::test_session_of_a_copy_whose_caller_left_is_ended[opening]",
        file="replica/tablet_copy/wire/source_service.py",
        function="SourceServicer.BeginCopy",
        before="left.set()",
        after="pass",
    ),
    Mutant(
        name="capture does not look at its caller",
        rows="IN-62",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_capture_of_a_copy_takes_no_more_steps_than_is_stated",
        file="replica/tablet_copy/source.py",
        function="LogSums.crc_of",
        before="""
        stop()
        """,
        after="""
        pass
        """,
    ),
    *(
        Mutant(name=name, rows="TC-11", test=test, file=file, function=function, before=before, after=after)
        for name, test, file, function, before, after in (
            (
                "each attempt to copy reads the log anew",
                "tests/unit/server/test_server_callers.py::test_copy_begins_where_the_attempt_before_it_ended",
                "replica/tablet_copy/wire/source_service.py",
                "SourceServicer.BeginCopy",
                "sums=self._sums,",
                "sums=None,",
            ),
            (
                "sum of a log outlives its copy",
                "tests/unit/server/test_server_callers.py::test_copy_begins_where_the_attempt_before_it_ended",
                "replica/tablet_copy/source.py",
                "capture_session",
                "sums.forget(wal_folder(tablet_id))",
                "sums.forget('')",
            ),
            (
                "sums of any number of segments are kept",
                "tests/unit/tablet_copy/test_copy_session.py::"
                "test_checksum_that_was_left_is_continued_and_little_is_kept",
                "replica/tablet_copy/source.py",
                "LogSums.crc_of",
                "while len(self._kept) > limits.COPY_LOG_SUMS_MAX:",
                "while not self._kept:",
            ),
        )
    ),
    Mutant(
        name="purge goes on for a caller that left",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_purge_whose_caller_left_ends_before_the_tablet_does_anything_else"
        ),
        file="replica/server/requests/quarantine.py",
        function="quarantine_purge",
        before="deadline.leave()",
        after="pass",
    ),
    Mutant(
        name="purge whose caller left lets the tablet go",
        rows="IN-62",
        test=(
            "tests/unit/server/test_server_callers.py::"
            "test_purge_whose_caller_left_ends_before_the_tablet_does_anything_else"
        ),
        file="replica/server/requests/quarantine.py",
        function="quarantine_purge",
        before="asyncio.shield(purging)",
        after="purging",
    ),
    Mutant(
        name="purge does not look at its caller between removals",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_purge_of_quarantines_takes_no_more_steps_than_is_stated",
        file="replica/tablet_copy/quarantine.py",
        function="purge_quarantine",
        before="""
    for block in blocks:
        if len(removed) >= most:
            break
        stop()
        """,
        after="""
    for block in blocks:
        if len(removed) >= most:
            break
        """,
    ),
    Mutant(
        name="purge removes any number of files",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_purge_of_quarantines_takes_no_more_steps_than_is_stated",
        file="replica/tablet_copy/quarantine.py",
        function="purge_quarantine",
        before="""
    for block in blocks:
        if len(removed) >= most:
            break
        """,
        after="""
    for block in blocks:
        """,
    ),
    Mutant(
        name="purge takes blocks of other quarantines",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_purge_of_quarantines_takes_no_more_steps_than_is_stated",
        file="replica/tablet_copy/quarantine.py",
        function="_to_purge",
        before="if superblock.tablet_id == tablet_id:",
        after="if superblock.tablet_id:",
    ),
    Mutant(
        name="list of quarantines does not look at its caller",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_list_of_quarantines_takes_no_more_steps_than_is_stated",
        file="replica/tablet_copy/quarantine.py",
        function="list_some",
        before="stop()",
        after="pass",
    ),
    Mutant(
        name="page of quarantines looks at all",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_list_of_quarantines_takes_no_more_steps_than_is_stated",
        file="replica/tablet_copy/quarantine.py",
        function="list_some",
        before="if number >= most:",
        after="if False:",
    ),
    Mutant(
        name="page of quarantines leaves one out",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_list_of_quarantines_takes_no_more_steps_than_is_stated",
        file="replica/tablet_copy/quarantine.py",
        function="list_some",
        before="return found, paths[number - 1]",
        after="return found, paths[number]",
    ),
    Mutant(
        name="copys session outlives its caller",
        rows="IN-62",
        test="tests/unit/server/test_server_callers.py::test_session_of_a_copy_whose_caller_left_is_ended[open]",
        file="replica/tablet_copy/wire/source_service.py",
        function="SourceServicer.BeginCopy",
        before="""
            opening.add_done_callback(self._left)  # the caller has gone, and will never end it
        """,
        after="",
    ),
    Mutant(
        name="source does not look at a doubted block",
        rows="TC-51, TC-63",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_block_that_went_bad_at_the_source_fails_the_replica_there"
        ),
        file="replica/tablet_copy/wire/source_service.py",
        function="SourceServicer._end",
        before="if request.doubted:",
        after="if request.doubted and False:",
    ),
    Mutant(
        name="manifest comes in unchecked",
        rows="IN-82, IN-50",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_reply_of_a_copy_source_that_cannot_be_ends_the_attempt_by_a_refusal"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource._begin",
        before="raise_if_error(check_reply(reply, _SENDER).error)",
        after="raise_if_error(reply.error)",
    ),
    Mutant(
        name="end of a session comes in unchecked",
        rows="IN-82",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_reply_of_a_copy_source_that_cannot_be_ends_the_attempt_by_a_refusal"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource.end",
        before="raise_if_error(check_reply(reply, _SENDER).error)",
        after="raise_if_error(reply.error)",
    ),
    Mutant(
        name="any attempt is a later one",
        rows="IN-82, TC-28",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_attempt_that_a_source_makes_up_is_refused_and_raises_no_later_number"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="_later_attempt",
        before="if not 0 < number < time.time_ns() // 1000 + limits.COPY_ATTEMPT_AHEAD_US_MAX:",
        after="if number <= 0:",
    ),
    Mutant(
        name="later attempt is any text",
        rows="IN-82, TC-28",
        test=(
            "tests/unit/server/test_server_hostile_replies.py::"
            "test_attempt_that_a_source_makes_up_is_refused_and_raises_no_later_number"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="_later_attempt",
        before="number = int(detail) if detail.isascii() and detail.isdecimal() and len(detail) < 20 else 0",
        after="number = int(detail)",
    ),
    Mutant(
        name="empty parts are patience without end",
        rows="IN-51",
        test=(
            "tests/unit/server/test_server_fetch_progress.py::"
            "test_fetch_from_a_source_that_makes_no_progress_ends[empty_at_once]"
        ),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource._piece",
        before="""
                patience.received(0)  # the source is alive, and waits for its rate
        """,
        after="",
    ),
    Mutant(
        name="signs of life are progress",
        rows="IN-51",
        test=(
            "tests/unit/server/test_server_fetch_progress.py::"
            "test_fetch_from_a_source_that_makes_no_progress_ends[empty_now_and_then]"
        ),
        file="replica/tablet_copy/wire/fetch_patience.py",
        function="FetchPatience.wait",
        before="if self._waited_s > limits.COPY_PART_WAIT_S_MAX:",
        after="if False:",
    ),
    Mutant(
        name="bytes may come one by one",
        rows="IN-51",
        test=(
            "tests/unit/server/test_server_fetch_progress.py::"
            "test_fetch_from_a_source_that_makes_no_progress_ends[bytes_one_by_one]"
        ),
        file="replica/tablet_copy/wire/fetch_wire.py",
        function="receive",
        before="if time.monotonic() > until_s:",
        after="if False:",
    ),
    Mutant(
        name="any bytes are progress",
        rows="IN-51",
        test=(
            "tests/unit/server/test_server_fetch_progress.py::"
            "test_fetch_from_a_source_that_makes_no_progress_ends[parts_of_a_byte]"
        ),
        file="replica/tablet_copy/wire/fetch_patience.py",
        function="FetchPatience.received",
        before="if before // limits.COPY_CHUNK_BYTES != self._bytes // limits.COPY_CHUNK_BYTES:",
        after="if length_bytes:",
    ),
    Mutant(
        name="patience with a source is for one part of a file",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_fetch_progress.py::"
            "test_source_that_waits_for_its_rate_before_each_part_is_borne"
        ),
        file="replica/tablet_copy/wire/fetch_patience.py",
        function="FetchPatience.received",
        before="if before // limits.COPY_CHUNK_BYTES != self._bytes // limits.COPY_CHUNK_BYTES:",
        after="if False:",
    ),
    Mutant(
        name="source that names an attempt has the time twice",
        rows="TC-11",
        test=("tests/unit/server/test_server_hostile_replies.py::test_source_that_does_not_begin_gives_its_place_up"),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource._begin",
        before="left_s = max(0.0, until_s - time.monotonic())",
        after="left_s = self._begin_s",
    ),
    Mutant(
        name="source may take two minutes to begin",
        rows="TC-11",
        test=("tests/unit/server/test_server_hostile_replies.py::test_source_that_does_not_begin_gives_its_place_up"),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource._begin",
        before="left_s = max(0.0, until_s - time.monotonic())",
        after="left_s = 120.0",
    ),
    Mutant(
        name="no time for a flush",
        rows="TC-11",
        test=("tests/unit/server/test_server_hostile_replies.py::test_source_that_does_not_begin_gives_its_place_up"),
        file="replica/tablet_copy/wire/remote_source.py",
        function="RemoteCopySource.begin",
        before="(limits.COPY_BEGIN_FLUSH_S if wanted.flushed > ZERO_OPID else 0.0)",
        after="0.0",
    ),
)
