"""Mutants: copies at their source, and their checks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="copy reuses block numbers",
        rows="TC-46",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_purge_removes_only_what_the_quarantine_alone_names",
        file="replica/tablet_copy/blocks.py",
        function="rename_blocks",
        before="number = max([next_block, *(n + 1 for n in block_numbers(tablet_id, present).values())])",
        after="number = 0 * (next_block + len(block_numbers(tablet_id, present)))",
    ),
    Mutant(
        name="blocks of a lost superblock are swept",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_start_without_a_superblock_leaves_the_blocks_for_the_one_that_is_put_back"
        ),
        file="replica/tablet_copy/blocks.py",
        function="spared_blocks",
        before="dict.fromkeys(left, math.inf)",
        after="dict.fromkeys(left, 0)",
    ),
    Mutant(
        name="running job is not seen",
        rows="TC-27",
        test="tests/unit/tablet_copy/test_copy_checks.py::test_start_copy_checks_refuse_in_order",
        file="replica/tablet_copy/checks.py",
        function="start_tablet_copy_checks",
        before="if local.copying or local.data_state is DataState.COPYING:",
        after="if local.data_state is DataState.COPYING:",
    ),
    Mutant(
        name="stale term is not refused",
        rows="TC-31",
        test="tests/unit/tablet_copy/test_copy_checks.py::test_start_copy_checks_refuse_in_order",
        file="replica/tablet_copy/checks.py",
        function="start_tablet_copy_checks",
        before="if request.term < local.term:",
        after="if request.term < 0:",
    ),
    Mutant(
        name="state checked before the term, checks",
        rows="TC-32",
        test="tests/unit/tablet_copy/test_copy_checks.py::test_start_copy_checks_refuse_in_order",
        file="replica/tablet_copy/checks.py",
        function="start_tablet_copy_checks",
        before="if request.term < local.term:",
        after="if request.term < local.term and request.current_state is local.data_state:",
    ),
    Mutant(
        name="late request wipes a healthy replica",
        rows="TC-28",
        test="tests/unit/tablet_copy/test_copy_checks.py::test_start_copy_checks_refuse_in_order",
        file="replica/tablet_copy/checks.py",
        function="start_tablet_copy_checks",
        before="local.data_state:",
        after="local.data_state and local.data_state is not DataState.READY:",
    ),
    Mutant(
        name="last opid is not compared",
        rows="TC-09",
        test="tests/unit/tablet_copy/test_copy_checks.py::test_late_request_that_names_an_older_last_opid_is_harmless",
        file="replica/tablet_copy/checks.py",
        function="start_tablet_copy_checks",
        before="if request.last_opid is not None and request.last_opid != local.last_opid:",
        after="if False:",
    ),
    Mutant(
        name="source may lag",
        rows="TC-58",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_from_a_lagging_or_leaderless_source_touches_nothing",
        file="replica/tablet_copy/checks.py",
        function="source_refusal",
        before="if source_last_opid < own_last_opid:",
        after="if source_last_opid.index < 0:",
    ),
    Mutant(
        name="source of an earlier term",
        rows="TC-58",
        test="tests/unit/server/test_server_copies.py::test_copy_job_from_a_source_of_an_earlier_term_loses_nothing",
        file="replica/tablet_copy/checks.py",
        function="source_refusal",
        before="if source_term < own_term and not allow_leaderless:",
        after="if source_term < 0 and not allow_leaderless:",
    ),
    Mutant(
        name="sync beside a download is not waited for",
        rows="TC-51",
        test="tests/unit/tablet_copy/test_copy_downloads.py::test_sync_that_fails_beside_a_download_fails_the_download",
        file="replica/tablet_copy/downloads.py",
        function="Downloads.run",
        before="""
            syncs.wait()
        """,
        after="",
    ),
    Mutant(
        name="file longer than recorded is written",
        rows="TC-51",
        test="tests/unit/tablet_copy/test_copy_downloads.py::test_source_that_sends_more_than_it_recorded_is_stopped_at_once",
        file="replica/tablet_copy/downloads.py",
        function="Downloads._one",
        before="if offset + len(chunk) > file.length_bytes:",
        after="if False:",
    ),
    Mutant(
        name="whole file crc unchecked",
        rows="TC-51",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_with_a_flipped_byte_ends_deleted",
        file="replica/tablet_copy/downloads.py",
        function="Downloads._one",
        before="if not self._stop.is_set() and (offset != file.length_bytes or crc != file.crc):",
        after="if not self._stop.is_set() and offset != file.length_bytes:",
    ),
    Mutant(
        name="synced bytes stay cached",
        rows="TC-51",
        test="tests/unit/tablet_copy/test_copy_downloads.py::test_what_is_synced_leaves_the_cache",
        file="replica/tablet_copy/downloads.py",
        function="_sync_step",
        before="""
            file.uncache()
        """,
        after="",
    ),
    Mutant(
        name="failed sync beside a download is swallowed",
        rows="TC-51",
        test="tests/unit/tablet_copy/test_copy_downloads.py::test_sync_that_fails_beside_a_download_fails_the_download",
        file="replica/tablet_copy/downloads.py",
        function="_Beside._end",
        before="""
            if before is not None:
                before.result()
        """,
        after="",
    ),
    Mutant(
        name="last bytes are not synced",
        rows="TC-51",
        test="tests/unit/tablet_copy/test_copy_downloads.py::test_sync_that_fails_beside_a_download_fails_the_download",
        file="replica/tablet_copy/downloads.py",
        function="_Beside._end",
        before="""
            file.sync()
        """,
        after="""
                return
            file.sync()
        """,
    ),
    Mutant(
        name="budget of a copys memory is ignored",
        rows="TC-11",
        test="tests/unit/tablet_copy/test_copy_downloads.py::test_slow_disk_keeps_a_fast_source_within_the_budget",
        file="replica/tablet_copy/downloads.py",
        function="Downloads._one",
        before="with self.room:",
        after="with threading.Lock():",
    ),
    Mutant(
        name="copy takes over any term",
        rows="IN-50",
        test="tests/unit/tablet_copy/test_copy_offer.py::test_offer_that_no_source_makes_is_refused_and_changes_nothing",
        file="replica/tablet_copy/offer.py",
        function="_wrong",
        before="if too_far(own_term, cmeta.term):",
        after="if False:",
    ),
    Mutant(
        name="copy takes a file twice",
        rows="IN-50",
        test="tests/unit/tablet_copy/test_copy_offer.py::test_offer_that_no_source_makes_is_refused_and_changes_nothing",
        file="replica/tablet_copy/offer.py",
        function="_wrong_files",
        before="if (file.kind, file.name) in seen:",
        after="if False:",
    ),
    Mutant(
        name="session does not keep its files",
        rows="CC-07",
        test="tests/unit/tablet_copy/test_copy_source.py::test_session_keeps_blocks_and_log_while_the_tablet_moves_on",
        file="replica/tablet_copy/source.py",
        function="capture_session",
        before="""
            superblock = undo.enter_context(state.hold())
        """,
        after="""
            with state.hold() as superblock:
                pass
        """,
    ),
    Mutant(
        name="log is not anchored",
        rows="CC-17",
        test="tests/unit/tablet_copy/test_copy_source.py::test_session_keeps_blocks_and_log_while_the_tablet_moves_on",
        file="replica/tablet_copy/source.py",
        function="capture_session",
        before="anchor = log.anchor(flush_index)",
        after="anchor = log.anchor(1 << 60)",
    ),
    Mutant(
        name="config left out with its segment",
        rows="CC-22",
        test="tests/unit/tablet_copy/test_copy_target.py::test_config_that_metadata_does_not_have_yet_travels_in_the_log",
        file="replica/tablet_copy/source.py",
        function="capture_session",
        before="below = flush_index if saved_index >= config_index else min(flush_index, saved_index)",
        after="below = flush_index",
    ),
    Mutant(
        name="base below what was acknowledged",
        rows="CC-47",
        test=(
            "tests/unit/tablet_copy/test_copy_witness.py::test_base_of_a_witness_is_never_below_what_it_may_have_acknowledged"
        ),
        file="replica/tablet_copy/source.py",
        function="capture_session",
        before="settled = is_leader and committed.term == term and saved_index >= config_index",
        after="settled = is_leader and saved_index >= config_index",
    ),
    Mutant(
        name="witness is given the log too",
        rows="CC-47, CC-56",
        test="tests/unit/tablet_copy/test_copy_witness.py::test_witness_begins_at_what_is_committed_and_fetches_nothing",
        file="replica/tablet_copy/source.py",
        function="capture_session",
        before="if settled and committed >= wanted.acknowledged:",
        after="if settled and committed > log.last:",
    ),
    Mutant(
        name="block gone at the source is no damage",
        rows="TC-51",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_block_that_cannot_be_read_for_a_copy_is_told_and_fails_the_replica"
        ),
        file="replica/tablet_copy/source.py",
        function="CopySourceSession.opened",
        before="""
            except FileNotFoundError as error:  # the session still holds it, so this server has not removed it
                raise Corruption("a file that a copy session holds is gone", path=path) from error
        """,
        after="""
            except FileNotFoundError:
                raise
        """,
    ),
    Mutant(
        name="dead process keeps its sessions",
        rows="TC-60",
        test=(
            "tests/unit/tablet_copy/test_copy_source.py::"
            "test_another_process_of_a_server_gives_up_what_its_earlier_one_had_begun"
        ),
        file="replica/tablet_copy/source.py",
        function="_Begun.replaces",
        before="another_process = bool(self.run and other.run and self.run != other.run)",
        after="another_process = False",
    ),
    Mutant(
        name="one host takes every copy session",
        rows="IN-51",
        test="tests/unit/tablet_copy/test_copy_source.py::test_member_finds_a_place_whatever_another_host_asks_for",
        file="replica/tablet_copy/source.py",
        function="SourceSessions._full",
        before="sum(other.host == asker.host for other in there)",
        after="sum(other is asker and not other.host for other in there)",
    ),
    Mutant(
        name="copy sessions being opened are not counted",
        rows="IN-51",
        test="tests/unit/tablet_copy/test_copy_source.py::test_member_finds_a_place_whatever_another_host_asks_for",
        file="replica/tablet_copy/source.py",
        function="SourceSessions._full",
        before=" + [begun.asker for begun in self._opening]",
        after="",
    ),
    Mutant(
        name="strangers take every copy session",
        rows="IN-51",
        test="tests/unit/tablet_copy/test_copy_source.py::test_member_finds_a_place_whatever_another_host_asks_for",
        file="replica/tablet_copy/source.py",
        function="SourceSessions._full",
        before="not asker.is_member and strangers >= limits.COPY_SESSIONS_OF_STRANGERS_MAX",
        after="strangers > 99",
    ),
    Mutant(
        name="another host ends a copy session",
        rows="IN-51",
        test="tests/unit/tablet_copy/test_copy_source.py::test_member_finds_a_place_whatever_another_host_asks_for",
        file="replica/tablet_copy/source.py",
        function="_Begun.replaces",
        before="(other.requestor_uuid, other.asker.host)",
        after="(other.requestor_uuid, self.asker.host)",
    ),
    Mutant(
        name="late begin ends the later session",
        rows="TC-28",
        test="tests/unit/tablet_copy/test_copy_source.py::test_request_that_was_long_on_its_way_ends_no_later_session",
        file="replica/tablet_copy/source.py",
        function="SourceSessions.open",
        before="""
            self._check_latest(begun)
            stale = [sid for sid, slot in self._slots.items() if begun.replaces(slot.begun)]
        """,
        after="""
            stale = [sid for sid, slot in self._slots.items() if begun.replaces(slot.begun)]
        """,
    ),
    Mutant(
        name="overtaken session is opened",
        rows="TC-28",
        test=(
            "tests/unit/tablet_copy/test_copy_source.py::"
            "test_session_that_a_later_one_overtakes_while_it_is_made_is_not_opened"
        ),
        file="replica/tablet_copy/source.py",
        function="SourceSessions.open",
        before="""
            self._check_latest(begun)
            self._slots[session_id] = _Slot(session, self.clock.wall_us(), self.clock.monotonic_us(), begun)
        """,
        after="""
            self._slots[session_id] = _Slot(session, self.clock.wall_us(), self.clock.monotonic_us(), begun)
        """,
    ),
    Mutant(
        name="log let go with the session",
        rows="CC-18",
        test="tests/unit/tablet_copy/test_copy_source.py::test_session_keeps_blocks_and_log_while_the_tablet_moves_on",
        file="replica/tablet_copy/source.py",
        function="SourceSessions.end",
        before="self._lingering.append((slot.session.tablet_id, slot.session.anchor, until))",
        after="slot.session.anchor.release()",
    ),
    Mutant(
        name="latest attempt is forgotten in its session",
        rows="TC-28",
        test="tests/unit/tablet_copy/test_copy_source.py::test_request_that_was_long_on_its_way_ends_no_later_session",
        file="replica/tablet_copy/source.py",
        function="SourceSessions.expire",
        before="v[0] in served or now",
        after="now",
    ),
    Mutant(
        name="idle session looks busy",
        rows="TC-10",
        test=(
            "tests/unit/tablet_copy/test_copy_source.py::"
            "test_session_says_how_long_nobody_asked_and_ends_just_after_its_time_to_live"
        ),
        file="replica/tablet_copy/source.py",
        function="SourceSessions.served",
        before="return [Served(s.session, s.started_us, now - s.asked_us) for s in self._slots.values()]",
        after="return [Served(s.session, s.started_us, 0) for s in self._slots.values()]",
    ),
    Mutant(
        name="copy over a lost superblock makes a voter",
        rows="IN-21",
        test=(
            "tests/unit/tablet_copy/test_copy_promises.py::"
            "test_copy_over_a_lost_superblock_that_does_not_end_leaves_a_tombstone_that_does_not_vote"
        ),
        file="replica/tablet_copy/lost_superblock.py",
        function="write_tombstone_for_lost",
        before="last_logged_known=False,",
        after="last_logged_known=True,",
    ),
    Mutant(
        name="lost superblock is taken for nothing",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_votes_of_the_absent.py::"
            "test_server_that_lost_a_superblock_gives_no_vote_until_a_copy_is_complete"
        ),
        file="replica/tablet_copy/target.py",
        function="TargetCopy.run",
        before="lost = not Superblock.exists(disk, tablet_id) and was_here(disk, tablet_id)",
        after="lost = False and was_here(disk, tablet_id)",
    ),
    Mutant(
        name="earlier leader copies over a lost superblock",
        rows="IN-21",
        test=(
            "tests/unit/tablet_copy/test_copy_promises.py::"
            "test_copy_over_a_lost_superblock_that_does_not_end_leaves_a_tombstone_that_does_not_vote"
        ),
        file="replica/tablet_copy/target.py",
        function="TargetCopy.run",
        before="max(term, cmeta.term)",
        after="term",
    ),
    Mutant(
        name="failed copy has the old blocks swept",
        rows="IN-21",
        test=(
            "tests/unit/tablet_copy/test_copy_promises.py::"
            "test_copy_over_a_lost_superblock_that_does_not_end_leaves_a_tombstone_that_does_not_vote"
        ),
        file="replica/tablet_copy/blocks.py",
        function="spared_below",
        before="return 0 if superblock.last_logged_known else superblock.next_block",
        after="return 0",
    ),
    Mutant(
        name="copy that was cut off keeps its blocks",
        rows="IN-21",
        test=(
            "tests/unit/tablet_copy/test_copy_promises.py::"
            "test_copy_over_a_lost_superblock_that_does_not_end_leaves_a_tombstone_that_does_not_vote"
        ),
        file="replica/tablet_copy/blocks.py",
        function="spared_below",
        before="return 0 if superblock.last_logged_known else superblock.next_block",
        after="return 0 if superblock.last_logged_known else 1 << 60",
    ),
    Mutant(
        name="creation that was cut off is a loss",
        rows="IN-21",
        test=(
            "tests/unit/tablet_copy/test_copy_promises.py::test_tablet_that_was_about_to_be_created_has_lost_nothing"
        ),
        file="replica/tablet_copy/lost_superblock.py",
        function="was_here",
        before=".term > 0",
        after=".term >= 0",
    ),
    Mutant(
        name="purge leaves what stayed for a lost superblock",
        rows="IN-21",
        test=("tests/unit/tablet_copy/test_copy_promises.py::test_purge_removes_what_stayed_for_a_lost_superblock"),
        file="replica/tablet_copy/quarantine.py",
        function="_to_purge",
        before="set(_spared(disk, own))",
        after="set[str]()",
    ),
)
