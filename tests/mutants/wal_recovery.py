"""Mutants: the log that is read back."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

_FULL = "tests/unit/wal/test_wal_end.py::test_log_on_a_full_disk_"
MUTANTS = (
    Mutant(
        name="half written block is damage",
        rows="IN-22",
        test=(
            "tests/unit/wal/test_wal_live_dump.py::"
            "test_dump_of_a_block_that_is_being_written_is_read_again_and_is_no_damage"
        ),
        file="replica/wal/live_dump.py",
        function="dump_settled",
        before="if not _is_damage(items[-1]):",
        after="if items:",
    ),
    Mutant(
        name="collected segment fails the dump",
        rows="IN-22",
        test=(
            "tests/unit/wal/test_wal_live_dump.py::"
            "test_dump_beside_a_log_that_is_collected_ends_with_what_it_could_read"
        ),
        file="replica/wal/live_dump.py",
        function="dump_settled",
        before="except FileNotFoundError:",
        after="except NotImplementedError:",
        more=(
            Edit(
                file="replica/wal/live_dump.py",
                function="_judge",
                before="except FileNotFoundError:",
                after="except NotImplementedError:",
            ),
        ),
    ),
    Mutant(
        name="collected segment fails the verdict",
        rows="IN-22",
        test=(
            "tests/unit/wal/test_wal_live_dump.py::"
            "test_dump_beside_a_log_that_is_collected_ends_with_what_it_could_read"
        ),
        file="replica/wal/live_dump.py",
        function="_judge",
        before="except FileNotFoundError:",
        after="except NotImplementedError:",
    ),
    Mutant(
        name="replaced entry is read",
        rows="IN-20",
        test=(
            "tests/unit/wal/test_wal_misplaced.py::"
            "test_read_of_a_log_in_use_tells_an_entry_of_another_term_at_its_index"
        ),
        file="replica/wal/reader.py",
        function="_decode_span",
        before="if problem or entry.opid != (terms.term_at(index), index):",
        after="if problem or entry.opid.index != index:",
    ),
    Mutant(
        name="second damage forgets the first",
        rows="CN-22",
        test="tests/unit/wal/test_wal_opening.py::test_second_damage_adds_to_the_mark_of_the_first",
        file="replica/wal/recovery.py",
        function="recover",
        before="_save_withheld(disk, folder, joined_marks(damage.withheld, mark))",
        after="_save_withheld(disk, folder, damage.withheld)",
    ),
    Mutant(
        name="emptied segment is ignored",
        rows="CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_segment_that_was_emptied_is_corruption_and_nothing_is_changed",
        file="replica/wal/recovery.py",
        function="read_all",
        before="""
            header = _header(disk, f"{folder}/{name}", name)
        """,
        after="""
            if not any(disk.read(f"{folder}/{name}")[:HEADER_BYTES_MAX]):
                continue
            header = _header(disk, f"{folder}/{name}", name)
        """,
    ),
    Mutant(
        name="missing segment is not seen",
        rows="CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_missing_segment_is_corruption_and_changes_no_file",
        file="replica/wal/recovery.py",
        function="_check_place",
        before="""
            if out.segments and out.segments[-1].number + 1 != number:
                raise Corruption("segments are missing", after=out.segments[-1].name, found=name)
        """,
        after="",
    ),
    Mutant(
        name="blocks cut off before a segment",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_opening.py::test_entry_missing_before_a_segment_of_an_earlier_build_is_corruption"
        ),
        file="replica/wal/recovery.py",
        function="_check_start",
        before="if header.first_index > known + 1:",
        after="if header.first_index > known + 1 and out.index.terms.last.index:",
    ),
    Mutant(
        name="damaged segment is not named",
        rows="TC-63",
        test=(
            "tests/unit/server/test_server_open.py::"
            "test_log_that_is_damaged_before_its_end_costs_one_replica_and_at_its_end_none"
        ),
        file="replica/wal/recovery.py",
        function="_check_start",
        before=".byte_offset} if broken is not None else {",
        after=".byte_offset} if False else {",
    ),
    Mutant(
        name="segment behind the damaged one is blamed",
        rows="TC-63, CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_damage_at_the_end_of_an_older_segment_is_corruption_there[1]",
        file="replica/wal/recovery.py",
        function="_walk.visit",
        before="if broken is not None:",
        after="if False:",
    ),
    Mutant(
        name="start writes no trailer",
        rows="CN-22",
        test="tests/unit/wal/test_wal_tears.py::test_what_a_start_keeps_of_a_torn_block_is_as_safe_as_before",
        file="replica/wal/recovery.py",
        function="_rewrite_end",
        before="with_trailer = any(one.needs_trailer for one in decoded)",
        after="with_trailer = False",
    ),
    Mutant(
        name="of two lost ends the later is kept whole",
        rows="CN-22,D-7",
        test="tests/unit/wal/test_wal_misplaced.py::test_two_lost_ends_withhold_the_higher_term_and_the_higher_index",
        file="replica/wal/recovery.py",
        function="joined_marks",
        before="return OpId(max(one.term, other.term), max(one.index, other.index))",
        after="return max(one, other)",
    ),
    Mutant(
        name="page that never arrived is trusted",
        rows="CN-08, CN-22",
        test=(
            "tests/unit/wal/test_wal_recovery.py::test_block_whose_sync_failed_is_durable_once_the_log_is_opened_again"
        ),
        file="replica/wal/recovery.py",
        function="_settle",
        before="if info.number == newest:",
        after="if info.number < 0:",
    ),
    Mutant(
        name="recovered tail not synced",
        rows="CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_recovered_tail_is_durable_before_it_is_relied_on",
        file="replica/wal/recovery.py",
        function="_settle",
        before="""
            file.sync()
        """,
        after="",
    ),
    Mutant(
        name="older block is taken",
        rows="IN-20",
        test=(
            "tests/unit/wal/test_wal_misplaced.py::"
            "test_older_block_at_the_end_is_a_damaged_tail_until_the_log_reaches_its_index_again"
        ),
        file="replica/wal/scan.py",
        function="whole_blocks",
        before="if not problem and not entries[-1][0].trailer:",
        after="if problem and not entries[-1][0].trailer:",
    ),
    Mutant(
        name="what a frame does not count is skipped",
        rows="CN-22",
        test="tests/unit/wal/test_wal_scan.py::test_frame_that_counts_one_entry_too_few_hides_none",
        file="replica/wal/scan.py",
        function="_parse",
        before='"" if stream.tell() == frame.end else "bytes after the last entry"',
        after='""',
    ),
    Mutant(
        name="replaced entries count as the lost block",
        rows="CN-22,D-7",
        test="tests/unit/wal/test_wal_scan.py::test_lost_block_that_had_replaced_others_is_withheld_above_them",
        file="replica/wal/scan.py",
        function="walk",
        before="last = last if last.index else OpId(",
        after="last = OpId(",
    ),
    Mutant(
        name="zeros of earlier builds are a tear",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_recovery.py::test_power_loss_in_an_open_log_never_tears_more_than_the_last_commit"
        ),
        file="replica/wal/scan.py",
        function="judge",
        before="if header.has_trailers:",
        after="if header.marker:",
    ),
    Mutant(
        name="damage in the middle is cut",
        rows="CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_log_with_any_byte_flipped_gives_no_wrong_entry",
        file="replica/wal/scan.py",
        function="judge",
        before="if marker_at >= 0 and content > marker_at + MARKER_BYTES:",
        after="if marker_at >= 0 and content < 0:",
    ),
    Mutant(
        name="older block is kept",
        rows="IN-20",
        test=(
            "tests/unit/wal/test_wal_misplaced.py::"
            "test_log_with_any_block_in_the_place_of_any_other_opens_no_shorter_without_withholding"
        ),
        file="replica/wal/scan.py",
        function="judge",
        before="if entries and (misplaced := _misplaced(entries, seen)):",
        after="if not entries and (misplaced := _misplaced(entries, seen)):",
    ),
    Mutant(
        name="damaged tail counts as torn",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_recovery.py::"
            "test_damaged_payload_of_the_last_entry_is_withheld_until_the_log_reaches_it_again"
        ),
        file="replica/wal/scan.py",
        function="judge",
        before="if unwritten or not full_length:",
        after="if unwritten or not full_length or problem:",
    ),
    Mutant(
        name="tear in the middle is withheld",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_recovery.py::test_power_loss_in_an_open_log_never_tears_more_than_the_last_commit"
        ),
        file="replica/wal/scan.py",
        function="judge",
        before="if unwritten or not full_length:",
        after="if not full_length:",
    ),
    Mutant(
        name="size torn in two is believed",
        rows="CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_torn_write_that_begins_just_before_a_sector_is_a_torn_tail",
        file="replica/wal/scan.py",
        function="_frame_is_torn",
        before="return sector > 0 and not any(rest[sector : sector + SECTOR_BYTES])",
        after="return sector < 0 and not any(rest[sector : sector + SECTOR_BYTES])",
    ),
    Mutant(
        name="torn frame owns any marker",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_recovery.py::"
            "test_lost_sector_in_a_frame_before_the_end_is_corruption_and_changes_no_file"
        ),
        file="replica/wal/scan.py",
        function="_judge_torn_frame",
        before="MARKER_BYTES or not _may_end_at(rest, byte_offset, marker_at)",
        after="MARKER_BYTES",
    ),
    Mutant(
        name="unreadable segment ends the server",
        rows="TC-63",
        test=(
            "tests/unit/server/test_server_scrub.py::"
            "test_segment_that_the_disk_cannot_give_is_damage_and_one_that_finds_no_descriptor_is_not"
        ),
        file="replica/wal/verify.py",
        function="verify_segment",
        before="""
            except DiskFailure as error:
                raise Corruption("a segment's file cannot be read", path=path, reason=str(error)) from error
        """,
        after="""
            except DiskFailure:
                raise
        """,
    ),
    Mutant(
        name="scrub takes an older block",
        rows="IN-20",
        test="tests/unit/wal/test_wal_misplaced.py::test_check_at_rest_sees_an_older_block_in_a_closed_segment",
        file="replica/wal/verify.py",
        function="_steps",
        before="seen.add(entry.opid)",
        after="None",
    ),
    Mutant(
        name="segment is checked in one go",
        rows="TC-63",
        test=(
            "tests/unit/wal/test_wal_verify.py::"
            "test_segment_is_checked_a_little_at_a_time_and_its_file_closed_in_any_case"
        ),
        file="replica/wal/verify.py",
        function="_steps",
        before="if end - told >= STEP_BYTES:",
        after="if end - told >= STEP_BYTES << 20:",
    ),
    Mutant(
        name="segment that ends early is whole",
        rows="TC-63",
        test="tests/unit/wal/test_wal_verify.py::test_every_byte_of_a_closed_segment_is_checked",
        file="replica/wal/verify.py",
        function="_steps",
        before="if end != info.length_bytes:",
        after="if end > info.length_bytes:",
    ),
    Mutant(
        name="lone byte counts as a tear",
        rows="CN-22",
        test="tests/unit/wal/test_wal_tears.py::test_lone_byte_that_was_lost_is_put_back",
        file="replica/wal/zeros.py",
        function="restore_lone_byte",
        before="if now.zeros == recorded.zeros + 1 and now.lone != recorded.lone:",
        after="if now.zeros == recorded.zeros + 1 < 0:",
    ),
    Mutant(
        name="trailer is not read",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_tears.py::"
            "test_any_byte_of_the_last_commit_may_be_damaged_and_nothing_of_it_is_lost_without_a_word"
        ),
        file="replica/wal/zeros.py",
        function="_read_trailer",
        before="return decode_trailer(trailer, segment, byte_offset, byte_offset + content)",
        after="return NO_ZEROS",
    ),
    Mutant(
        name="trailer that lost its last byte is none",
        rows="IN-20,CN-22",
        test=(
            "tests/unit/wal/test_wal_misplaced.py::"
            "test_damaged_byte_at_the_end_of_the_last_block_drops_no_entry_in_silence"
        ),
        file="replica/wal/zeros.py",
        function="_read_trailer",
        before="return decode_trailer(trailer[:-1] + _LAST, segment, byte_offset, byte_offset + content) or NO_ZEROS",
        after="return NO_ZEROS",
    ),
    Mutant(
        name="frame in a marker is a torn one",
        rows="CN-22",
        test="tests/unit/wal/test_wal_scan.py::test_marker_that_reads_as_a_torn_frame_is_damage_if_more_follows",
        file="replica/wal/scan.py",
        function="_judge_torn_frame",
        before="if marker_at < 0:",
        after="if marker_at <= 0:",
    ),
    Mutant(
        name="newest segment is not missed",
        rows="IN-21",
        test=(
            "tests/unit/wal/test_wal_recovery.py::test_newest_segment_that_is_missing_is_corruption_and_changes_no_file"
        ),
        file="replica/wal/newest.py",
        function="need_newest",
        before="if newest.number > last:",
        after="if newest.number > last > newest.number:",
    ),
    Mutant(
        name="newest segment is noticed only if one is left",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_file_that_is_lost_while_the_server_is_stopped_leaves_a_replica_that_a_copy_replaces"
        ),
        file="replica/wal/newest.py",
        function="need_newest",
        before="if newest.number > last:",
        after="if newest.number > last > 0:",
    ),
    Mutant(
        name="log's end is not recorded for a segment",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_record_of_the_end_is_written_for_a_segment_and_at_a_close_and_never_for_an_append",
        file="replica/wal/segment.py",
        function="NextSegment.take",
        before="save_newest(self.disk, self.folder, Newest(number, len(data), last))",
        after="pass",
    ),
    Mutant(
        name="log's end is not recorded at a close",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_closed_log_whose_newest_segment_is_cut_anywhere_withholds_what_it_held",
        file="replica/wal/appender.py",
        function="Appender._finish",
        before="self._recorded_end = self._end",
        after="pass",
    ),
    Mutant(
        name="log's end is recorded at each close",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_record_of_the_end_is_written_for_a_segment_and_at_a_close_and_never_for_an_append",
        file="replica/wal/appender.py",
        function="Appender._finish",
        before="self.repair_record()",
        after="save_newest(self.disk, self.folder, self._end)",
    ),
    Mutant(
        name="log's end is not recorded at an opening",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_record_of_the_end_is_written_for_a_segment_and_at_a_close_and_never_for_an_append",
        file="replica/wal/recovery.py",
        function="_settle",
        before="if out.newest != out.end:",
        after="if out.newest.number < out.end.number:",
    ),
    Mutant(
        name="full disk prevents the start of a whole log",
        rows="CN-26",
        test=f"{_FULL}opens_without_a_new_record_and_writes_it_at_its_close",
        file="replica/wal/recovery.py",
        function="_record_end",
        before="if refused.code is not Code.NO_SPACE or (",
        after="if refused or (",
    ),
    Mutant(
        name="record that a full disk refused is never written",
        rows="IN-21",
        test=f"{_FULL}opens_without_a_new_record_and_writes_it_at_its_close",
        file="replica/wal/appender.py",
        function="Appender._finish",
        before="self._recorded_end = self._end",
        after="pass",
    ),
    Mutant(
        name="log is served beside a record that demands more",
        rows="IN-21",
        test=f"{_FULL}whose_record_demands_more_than_is_left_is_not_opened",
        file="replica/wal/recovery.py",
        function="_record_end",
        before=" or (written.number, written.length_bytes) > (end.number, end.length_bytes):",
        after=":",
    ),
    Mutant(
        name="empty segment takes a block of another index",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_segments.py::test_segment_whose_first_block_found_no_room_begins_no_other_entry"
        ),
        file="replica/wal/appender.py",
        function="Appender._segment_for",
        before="if active is not None and active.is_empty and active.header.first_index != first_index:",
        after="if False:",
    ),
    Mutant(
        name="full disk puts a block into an empty segment of another index",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_segments.py::test_segment_whose_first_block_found_no_room_begins_no_other_entry"
        ),
        file="replica/wal/appender.py",
        function="Appender._segment_for",
        before="""
            if usable is not None:
                return usable  # The disk is nearly full; the file in use may still have room.
        """,
        after="""
            if active is not None:
                return active
        """,
    ),
    Mutant(
        name="log's end is recorded before the segment is cut",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_opening_that_dies_leaves_the_files_that_a_cut_from_outside_leaves",
        file="replica/wal/recovery.py",
        function="_settle",
        before="""
            newest = max((s.number for s in out.segments if s.last_index >= s.first_index), default=0)
        """,
        after="""
            newest = max((s.number for s in out.segments if s.last_index >= s.first_index), default=0)
            save_newest(disk, folder, out.newest)
        """,
    ),
    Mutant(
        name="log's end is recorded before the mark",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_death_anywhere_in_the_opening_of_a_shorter_log_forgets_no_mark",
        file="replica/wal/recovery.py",
        function="recover",
        before="info, damage = broken",
        after="(info, damage), _ = broken, save_newest(disk, folder, Newest())",
    ),
    Mutant(
        name="failed log records its end",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_log_that_failed_says_nothing_of_its_end_when_it_is_closed",
        file="replica/wal/appender.py",
        function="Appender.close",
        before="if trusted:",
        after="if trusted or active is None:",
    ),
    Mutant(
        name="log that ends in a header records the segment before",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_segment_that_never_got_an_entry_is_the_end_that_is_recorded",
        file="replica/wal/appender.py",
        function="Appender._segment_for",
        before="self._end = self._recorded_end = Newest(",
        after="self._recorded_end = Newest(",
    ),
    Mutant(
        name="log's end is not missed",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_closed_log_whose_newest_segment_is_cut_anywhere_withholds_what_it_held",
        file="replica/wal/recovery.py",
        function="_judge_length",
        before="found.content_end >= newest.length_bytes",
        after="found.content_end >= 0",
    ),
    Mutant(
        name="log's end is compared by index",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_end_of_a_log_is_missed_exactly_if_it_is_missing_under_any_history",
        file="replica/wal/recovery.py",
        function="_judge_length",
        before="found.content_end >= newest.length_bytes",
        after="last.index >= newest.last.index",
    ),
    Mutant(
        name="log's end is compared by term and index",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_end_of_a_log_is_missed_exactly_if_it_is_missing_under_any_history",
        file="replica/wal/recovery.py",
        function="_judge_length",
        before="found.content_end >= newest.length_bytes",
        after="last >= newest.last",
    ),
    Mutant(
        name="tear of what was durable is believed",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_closed_log_whose_newest_segment_is_cut_anywhere_withholds_what_it_held",
        file="replica/wal/recovery.py",
        function="_judge_length",
        before="found.content_end >= newest.length_bytes",
        after='(damage is not None and damage.what == "the last block is torn")',
    ),
    Mutant(
        name="mark stands below what is left",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_closed_log_whose_newest_segment_is_cut_anywhere_withholds_what_it_held",
        file="replica/wal/recovery.py",
        function="_judge_length",
        before="max(last.index + 1, newest.last.index)",
        after="newest.last.index",
    ),
    Mutant(
        name="lost marker withholds an entry",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_closed_log_whose_newest_segment_is_cut_anywhere_withholds_what_it_held",
        file="replica/wal/recovery.py",
        function="_judge_length",
        before="MARKER_BYTES == newest.length_bytes:",
        after="MARKER_BYTES < 0:",
    ),
    Mutant(
        name="record that does not read back is none",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_record_that_does_not_read_back_is_corruption_that_names_the_way_on",
        file="replica/wal/newest.py",
        function="read_newest",
        before="raise Corruption(what, path=path, bytes=len(data))",
        after="return Newest()",
    ),
    Mutant(
        name="record of a later build is damage",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_record_of_another_build_says_what_it_can_and_is_written_anew",
        file="replica/wal/newest.py",
        function="read_newest",
        before="if len(body) >= len(_MAGIC) and not body.startswith((_MAGIC, _NUMBER_ONLY)):",
        after='if not body.startswith(b"NYLANW0"):',
    ),
    Mutant(
        name="record of an earlier build is damage",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_record_of_another_build_says_what_it_can_and_is_written_anew",
        file="replica/wal/newest.py",
        function="read_newest",
        before="return Newest(_NUMBER_BODY.unpack(body)[1])",
        after="return Newest()",
    ),
    Mutant(
        name="segment that follows a lost replacement is believed",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_segment_that_lost_a_replacement_before_the_next_one_is_corruption",
        file="replica/wal/recovery.py",
        function="_check_after",
        before="if header.after in (None, before)",
        after="if before or header.after in (None, before)",
    ),
    Mutant(
        name="header does not name the entry before it",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_end_of_a_log_is_missed_exactly_if_it_is_missing_under_any_history",
        file="replica/wal/segment.py",
        function="NextSegment.take",
        before="new_marker(), last)",
        after="new_marker(), OpId(0, 0))",
    ),
    Mutant(
        name="segment begun behind a lost end stays",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_segment_begun_behind_a_lost_end_is_removed_before_the_end_comes_back",
        file="replica/wal/recovery.py",
        function="_is_stranded",
        before="if len(out.segments) < 2:",
        after="if out.segments:",
    ),
    Mutant(
        name="segment is removed before the record names an earlier one",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_segment_begun_behind_a_lost_end_is_removed_before_the_end_comes_back",
        file="replica/wal/recovery.py",
        function="_settle",
        before="""
            stranded.append(out.segments.pop().name)
        """,
        after="""
            stranded.append(out.segments.pop().name)
            disk.remove(f"{folder}/{stranded.pop()}")
        """,
    ),
    Mutant(
        name="number of the newest segment comes before its name",
        rows="IN-21",
        test=("tests/unit/wal/test_wal_recovery.py::test_crash_at_every_point_loses_nothing_that_was_acknowledged"),
        file="replica/wal/segment.py",
        function="NextSegment.take",
        before="""
            self.disk.crash_point("wal.before_rename_segment")
        """,
        after="""
            save_newest(self.disk, self.folder, Newest(number, len(data), last))
            self.disk.crash_point("wal.before_rename_segment")
        """,
    ),
    Mutant(
        name="lost first block counts from index 1",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_opening.py::"
            "test_lost_first_entry_of_a_log_that_begins_late_is_withheld_by_its_index"
        ),
        file="replica/wal/scan.py",
        function="walk",
        before="last = last if last.index else OpId(",
        after="last = last if last is not None else OpId(",
    ),
    Mutant(
        name="segment without a number takes entries",
        rows="IN-21",
        test=("tests/unit/wal/test_wal_recovery.py::test_segment_whose_number_finds_no_room_takes_no_entry"),
        file="replica/wal/segment.py",
        function="NextSegment.take",
        before="""
            save_newest(self.disk, self.folder, Newest(number, len(data), last))
        except Exception:
        """,
        after="""
            with __import__("contextlib").suppress(Refused):
                save_newest(self.disk, self.folder, Newest(number, len(data), last))
        except Exception:
        """,
    ),
    Mutant(
        name="mark of a lost end is not there after a close",
        rows="none",
        test="tests/unit/wal/test_wal_end.py::test_close_leaves_the_mark_of_a_lost_end_as_it_is_in_memory",
        file="replica/wal/log.py",
        function="Log.close",
        before="self._repair_withheld()",
        after="pass",
    ),
    Mutant(
        name="record of the end that was lost is not there after a close",
        rows="none",
        test="tests/unit/wal/test_wal_end.py::test_close_leaves_the_record_of_the_end_as_it_is_in_memory",
        file="replica/wal/appender.py",
        function="Appender._finish",
        before="if self.disk.exists(self.folder):",
        after="if self._end != self._end_said:",
    ),
)
