"""Mutants: the log that is written."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    *(
        Mutant(
            name=name,
            rows="IN-21",
            test=(
                "tests/unit/wal/test_wal_end.py::"
                "test_record_that_is_damaged_beside_an_open_log_is_written_again_as_it_was"
            ),
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, file, function, before, after in (
            (
                "damaged record of an open log stays",
                "replica/wal/appender.py",
                "Appender.repair_record",
                "except (Corruption, DiskFailure):",
                "except DiskFailure:",
            ),
            (
                "record is written without need",
                "replica/wal/appender.py",
                "Appender.repair_record",
                "== self._recorded_end:",
                "== self._recorded_end and not self.folder:",
            ),
            (
                "record goes into a lost folder",
                "replica/wal/log.py",
                "Log.repair_record",
                "not self._disk.exists(self._folder)",
                "False",
            ),
            (
                "record of appends is written",
                "replica/wal/appender.py",
                "Appender.repair_record",
                "save_newest(self.disk, self.folder, self._recorded_end)",
                "save_newest(self.disk, self.folder, self._end)",
            ),
            (
                "closed log writes its record",
                "replica/wal/log.py",
                "Log.repair_record",
                "self._closed or",
                "",
            ),
        )
    ),
    *(
        Mutant(
            name=name,
            rows="IN-21",
            test=(
                "tests/unit/wal/test_wal_end.py::"
                "test_mark_of_a_lost_end_that_is_damaged_beside_an_open_log_is_written_again"
            ),
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, file, function, before, after in (
            (
                "mark of a lost end stays lost",
                "replica/wal/log.py",
                "Log.repair_record",
                "marked = self._repair_withheld()",
                "marked = False",
            ),
            (
                "earlier mark of a lost end stays",
                "replica/wal/recovery.py",
                "repair_withheld",
                "read_withheld(disk, folder) == withheld",
                "read_withheld(disk, folder) is not None",
            ),
            (
                "mark of an end that is back is made again",
                "replica/wal/log.py",
                "Log.forget_withheld",
                "self._withheld = None",
                "pass",
            ),
        )
    ),
    Mutant(
        name="header with a flipped bit is read",
        rows="IN-21",
        test="tests/unit/wal/test_wal_format.py::test_each_flipped_bit_of_a_header_is_damage_or_nothing",
        file="replica/wal/format.py",
        function="decode_header",
        before='if int(meta["nyala.header_crc"]) != _header_crc(meta, marker):',
        after='if int(meta["nyala.header_crc"]) < 0:',
    ),
    Mutant(
        name="callback before sync",
        rows="CN-05, CN-08",
        test="tests/unit/wal/test_wal_append.py::test_callbacks_before_the_sync_returned_never_come",
        file="replica/wal/appender.py",
        function="Appender.write",
        before="segment.sync()",
        after="pass",
    ),
    Mutant(
        name="closed segment is cut, but not for certain",
        rows="CN-22",
        test=(
            "tests/unit/wal/test_wal_segments.py"
            "::test_half_block_that_found_no_room_is_never_left_in_a_closed_segment[0-within]"
        ),
        file="replica/wal/segment.py",
        function="ActiveSegment.finish",
        before="self.file.sync()",
        after="pass",
    ),
    Mutant(
        name="append waits for the allocator",
        rows="CN-19",
        test=(
            "tests/unit/wal/test_wal_segments.py::test_appends_go_on_in_the_old_segment_while_the_next_is_preallocated"
        ),
        file="replica/wal/appender.py",
        function="Appender._segment_for",
        before="if usable is not None and not self._next.ready:",
        after="if usable is not None and self._next.idle:",
    ),
    Mutant(
        name="long segment or none",
        rows="CN-17",
        test="tests/unit/wal/test_wal_segments.py::test_restart_without_room_for_a_long_segment_goes_on_in_a_short_one",
        file="replica/wal/appender.py",
        function="Appender._segment_for",
        before="if self._next_size == self.options.segment_size_bytes_first:",
        after="if active is None:",
    ),
    Mutant(
        name="segments do not grow",
        rows="CN-17",
        test="tests/unit/wal/test_wal_segments.py::test_new_segments_are_preallocated_and_double_up_to_the_maximum",
        file="replica/wal/appender.py",
        function="Appender._segment_for",
        before="""
            self._next_size = min(2 * self._next_size, self.options.segment_size_bytes_max)
        """,
        after="",
    ),
    Mutant(
        name="roll lets go of a segment that is not cut",
        rows="IN-30",
        test="tests/unit/wal/test_wal_want.py::test_segment_that_cannot_be_closed_now_stays_in_use_and_the_log_goes_on",
        file="replica/wal/appender.py",
        function="Appender.roll",
        before="""
            active.cut()
            self._active = None
        """,
        after="""
            self._active = None
            active.cut()
        """,
    ),
    Mutant(
        name="reservation that is handed over amid a failure hears of it twice",
        rows="CN-08",
        test="tests/unit/wal/test_wal_log.py::test_reservation_that_is_handed_over_while_the_log_fails_hears_of_it_once",
        file="replica/wal/log.py",
        function="Log._fail_all",
        before="told = [slot for slot in failed if slot.on_durable is not None]",
        after="told = failed",
    ),
    Mutant(
        name="close of a log raises a want",
        rows="IN-30",
        test="tests/unit/wal/test_wal_want.py::test_log_that_cannot_tidy_up_its_files_now_is_closed_all_the_same",
        file="replica/wal/appender.py",
        function="Appender._tidy",
        before="except Refused as error:",
        after="except ZeroDivisionError as error:",
    ),
    Mutant(
        name="payload is copied",
        rows="CN-13",
        test="tests/unit/wal/test_wal_segments.py::test_large_payload_is_written_without_being_copied",
        file="replica/wal/appender.py",
        function="_gather",
        before="""
            parts += [b"".join(small), encoded.payload]
            small.clear()
        """,
        after="""
            small.append(encoded.payload)
        """,
    ),
    Mutant(
        name="log of a later build is read",
        rows="none",
        test="tests/unit/wal/test_wal_later.py::test_log_of_a_later_build_is_refused_with_the_reason_and_left_alone",
        file="replica/wal/format.py",
        function="decode_header",
        before='if int(meta["nyala.version"]) != VERSION or meta["nyala.incompatible_features"]:',
        after='if int(meta["nyala.version"]) < VERSION or meta["nyala.incompatible_features"]:',
    ),
    Mutant(
        name="entries are read by the codes schema",
        rows="CN-22",
        test="tests/unit/wal/test_wal_segments.py::test_segment_is_read_by_the_schema_in_its_header",
        file="replica/wal/format.py",
        function="decode_entry",
        before="written: Any = fastavro.schemaless_reader(stream, entry_schema(header.schema_text), None)",
        after="written: Any = fastavro.schemaless_reader(stream, _ENTRY_SCHEMA, None)",
    ),
    Mutant(
        name="older entries lack a field",
        rows="CN-22",
        test="tests/unit/wal/test_wal_segments.py::test_segment_is_read_by_the_schema_in_its_header",
        file="replica/wal/format.py",
        function="decode_entry",
        before="value: Any = _DEFAULTS | written",
        after="value: Any = written",
    ),
    Mutant(
        name="identity crc not checked",
        rows="CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_block_of_another_segment_or_tablet_is_caught",
        file="replica/wal/format.py",
        function="decode_entry",
        before='!= value["identity_crc"]',
        after="== -1",
    ),
    Mutant(
        name="queue without a bound",
        rows="CN-10",
        test="tests/unit/wal/test_wal_append.py::test_reserve_with_a_full_queue_blocks_until_there_is_room",
        file="replica/wal/log.py",
        function="Log.reserve",
        before="while not self.has_room(slot.size_bytes):",
        after="while False and not self.has_room(slot.size_bytes):",
    ),
    Mutant(
        name="reserved when appended",
        rows="CN-11",
        test="tests/unit/wal/test_wal_append.py::test_head_that_is_not_ready_holds_back_ready_ones_behind_it",
        file="replica/wal/log.py",
        function="Log.reserve",
        before="""
            self._queue.append(slot)
        """,
        after="",
        more=(
            Edit(
                file="replica/wal/log.py",
                function="Log.append_async",
                before="""
                    self._offer()
                """,
                after="""
                    self._queue.append(reservation)
                    self._offer()
                """,
            ),
        ),
    ),
    Mutant(
        name="queued out of order",
        rows="CN-04",
        test=(
            "tests/unit/wal/test_wal_append.py::"
            "test_sixteen_writers_with_random_delays_reach_the_disk_in_reservation_order"
        ),
        file="replica/wal/log.py",
        function="Log.reserve",
        before="self._queue.append(slot)",
        after="self._queue.insert(max(0, len(self._queue) - 1), slot)",
    ),
    Mutant(
        name="serialised under the lock",
        rows="CN-07",
        test="tests/unit/wal/test_wal_append.py::test_serialisation_happens_outside_the_lock_of_the_log",
        file="replica/wal/log.py",
        function="Log.append_async",
        before="""
            encoded = self._encode(reservation)
        """,
        after="""
            with self._state:
                encoded = self._encode(reservation)
        """,
    ),
    Mutant(
        name="entry brought back counts as damage",
        rows="IN-20",
        test=(
            "tests/unit/wal/test_wal_misplaced.py::"
            "test_log_with_any_block_in_the_place_of_any_other_opens_no_shorter_without_withholding"
        ),
        file="replica/wal/log.py",
        function="Log._encode",
        before="head = encode_entry(self._tablet_id, first, placed=reservation.rewrites)",
        after="head = encode_entry(self._tablet_id, first, placed=False)",
    ),
    Mutant(
        name="ready ones overtake",
        rows="CN-15",
        test="tests/unit/wal/test_wal_append.py::test_head_that_is_not_ready_holds_back_ready_ones_behind_it",
        file="replica/wal/log.py",
        function="Log._take_ready",
        before="""
            while self._queue and self._queue[0].state is ReservationState.READY:
                batch.append(self._queue.popleft())
        """,
        after="""
            batch = [slot for slot in self._queue if slot.state is ReservationState.READY]
            self._queue = deque(slot for slot in self._queue if slot.state is ReservationState.RESERVED)
        """,
    ),
    Mutant(
        name="one reservation a commit",
        rows="CN-06",
        test="tests/unit/wal/test_wal_append.py::test_group_commit_of_many_reservations_writes_and_syncs_once",
        file="replica/wal/log.py",
        function="Log.drain",
        before="""
            self._commit(batch)
        """,
        after="""
            for slot in batch:
                self._commit([slot])
        """,
    ),
    Mutant(
        name="sync per reservation",
        rows="CN-14",
        test="tests/unit/wal/test_wal_append.py::test_group_commit_of_many_reservations_writes_and_syncs_once",
        file="replica/wal/log.py",
        function="Log.drain",
        before="""
            self._commit(batch)
        """,
        after="""
            for slot in batch:
                self._commit([slot])
        """,
    ),
    Mutant(
        name="reservation that does not serialise fails those behind it only",
        rows="CN-08",
        test="tests/unit/wal/test_wal_log.py::test_entry_that_does_not_serialise_ends_the_log",
        file="replica/wal/log.py",
        function="Log._may_commit",
        before="self._seen = self._seen or list(self._queue)",
        after="self._seen = [slot for slot in list(self._queue)[:1] if slot.state is ReservationState.RESERVED]",
    ),
    Mutant(
        name="writer waits for the callbacks of others",
        test="tests/unit/wal/test_wal_threads.py::test_writer_that_waits_for_room_goes_on_before_the_callbacks",
        file="replica/wal/log.py",
        function="Log._publish",
        before="self._state.notify_all()",
        after="pass",
    ),
    Mutant(
        name="writer waits for ever for a log that ended",
        rows="CN-08",
        test="tests/unit/wal/test_wal_threads.py::test_writer_that_waits_for_room_hears_that_the_log_ended",
        file="replica/wal/log.py",
        function="Log._fail_all",
        before="self._state.notify_all()",
        after="pass",
    ),
    Mutant(
        name="failed log writes its record",
        rows="IN-21",
        test="tests/unit/wal/test_wal_end.py::test_log_that_failed_says_nothing_of_its_end_when_it_is_closed",
        file="replica/wal/log.py",
        function="Log.repair_record",
        before="self._failure is not None or",
        after="",
    ),
    Mutant(
        name="truncation overtakes what is being written",
        test="tests/unit/wal/test_wal_log.py::test_appender_at_work_is_waited_for_and_truncated_behind",
        file="replica/wal/log.py",
        function="Log.truncate_after",
        before="if self._queue or self._busy:",
        after="if self._queue:",
    ),
    Mutant(
        name="want poisons the log",
        rows="IN-30",
        test=(
            "tests/unit/wal/test_wal_want.py::"
            "test_append_that_the_server_has_no_means_for_is_refused_and_the_log_goes_on"
        ),
        file="replica/wal/log.py",
        function="Log._commit",
        before="self._fail_all(batch, error, poison=not is_transient(error))",
        after="self._fail_all(batch, error, poison=True)",
    ),
    Mutant(
        name="failed sync is retried",
        rows="CN-08",
        test="tests/unit/wal/test_wal_append.py::test_append_on_a_failing_disk_poisons_the_log_for_good",
        file="replica/wal/log.py",
        function="Log._commit",
        before="self._fail_all(batch, error, poison=True)",
        after="self._fail_all(batch, error, poison=False)",
    ),
    Mutant(
        name="leader refuses for ever after a roll",
        rows="IN-30",
        test="tests/unit/raft_driver/test_driver_exhausted.py::test_leader_whose_log_could_not_be_rolled_once_goes_on",
        file="replica/wal/log.py",
        function="Log.roll",
        before="""
            if not is_transient(error):
                self._failure = error
        """,
        after="""
            self._failure = error
        """,
    ),
    Mutant(
        name="roll poisons the log for a want",
        rows="IN-30",
        test="tests/unit/wal/test_wal_want.py::test_segment_that_cannot_be_closed_now_stays_in_use_and_the_log_goes_on",
        file="replica/wal/log.py",
        function="Log.roll",
        before="""
            if not is_transient(error):
                self._failure = error
        """,
        after="""
            self._failure = error
        """,
    ),
    Mutant(
        name="log gc begins with the newest",
        rows="none",
        test="tests/unit/wal/test_wal_want.py::test_segment_that_log_gc_cannot_remove_now_leaves_no_hole",
        file="replica/wal/log.py",
        function="Log.gc",
        before="""
            while (info := self._unlist_oldest(keep_from_index)) is not None:
        """,
        after="""
            infos = []
            while (info := self._unlist_oldest(keep_from_index)) is not None:
                infos.append(info)
            for info in reversed(infos):
        """,
    ),
    Mutant(
        name="log gc leaves a hole",
        rows="IN-30",
        test="tests/unit/wal/test_wal_want.py::test_segment_that_log_gc_cannot_remove_now_leaves_no_hole",
        file="replica/wal/log.py",
        function="Log.gc",
        before="self._retention.list_again(info)",
        after="self._removal_unsynced = True",
    ),
    Mutant(
        name="write per part",
        rows="CN-16",
        test="tests/unit/wal/test_wal_append.py::test_group_commit_of_many_reservations_writes_and_syncs_once",
        file="replica/wal/segment.py",
        function="ActiveSegment.write_block",
        before="""
            self.file.pwritev(block, self.written_bytes)
        """,
        after="""
            at = self.written_bytes
            for part in block:
                self.file.pwritev([part], at)
                at += len(part)
        """,
    ),
    Mutant(
        name="always fdatasync",
        rows="CN-18",
        test=(
            "tests/unit/wal/test_wal_segments.py::"
            "test_sync_inside_the_preallocated_length_is_fdatasync_and_beyond_it_fsync"
        ),
        file="replica/wal/segment.py",
        function="ActiveSegment.sync",
        before="if self.written_bytes <= self.preallocated_bytes:",
        after="if self.written_bytes >= 0:",
    ),
    Mutant(
        name="close keeps the preallocated rest",
        rows="CN-21",
        test="tests/unit/wal/test_wal_segments.py::test_closing_cuts_the_segment_to_what_was_written",
        file="replica/wal/segment.py",
        function="ActiveSegment.finish",
        before="if self.preallocated_bytes > self.written_bytes:",
        after="if self.preallocated_bytes < 0:",
    ),
    Mutant(
        name="first segment waits for the preallocations of others",
        rows="CN-19",
        test="tests/unit/wal/test_wal_threads.py::test_segment_without_which_a_log_cannot_go_on_is_made_at_once",
        file="replica/wal/appender.py",
        function="Appender._segment_for",
        before="self._next.start(self._next_size, here=True)",
        after="self._next.start(self._next_size)",
    ),
    Mutant(
        name="log has threads of its own",
        rows="CN-09",
        test="tests/unit/wal/test_wal_threads.py::test_three_hundred_logs_share_a_bounded_number_of_threads",
        file="replica/wal/log.py",
        function="Log.__init__",
        before="self._threads = threads",
        after="self._threads = LogThreads(1, 1) if threads else None",
    ),
    Mutant(
        name="log under way is given to a second thread",
        rows="CN-09",
        test="tests/unit/wal/test_wal_threads.py::test_log_under_way_is_given_to_no_second_thread",
        file="replica/wal/log.py",
        function="Log._offer",
        before="self._threads is not None and not self._offered",
        after="self._threads is not None",
    ),
    Mutant(
        name="busy log goes before those that wait",
        rows="CN-09",
        test="tests/unit/wal/test_wal_threads.py::test_log_with_more_to_do_goes_behind_those_that_wait",
        file="replica/wal/threads.py",
        function="TurnThreads._serve",
        before="self._turns.append(turn)",
        after="self._turns.appendleft(turn)",
    ),
    Mutant(
        name="last log that waits is served first",
        rows="CN-09",
        test="tests/unit/wal/test_wal_threads.py::test_log_with_more_to_do_goes_behind_those_that_wait",
        file="replica/wal/threads.py",
        function="TurnThreads._serve",
        before="self._turns.popleft()",
        after="self._turns.pop()",
    ),
    Mutant(
        name="log that fails takes its thread along",
        rows="CN-08",
        test="tests/unit/wal/test_wal_threads.py::test_log_with_a_slow_or_failing_disk_leaves_the_others_alone",
        file="replica/wal/log.py",
        function="Log._commit",
        before="""
            self._fail_all(batch, error, poison=True)
            return
        """,
        after="""
            self._fail_all(batch, error, poison=True)
            raise SystemExit from error
        """,
    ),
    Mutant(
        name="log is closed beside its last write",
        rows="CN-08",
        test="tests/unit/wal/test_wal_threads.py::test_close_waits_for_the_write_under_way_and_appends_what_is_ready",
        file="replica/wal/log.py",
        function="Log.close",
        before="self._state.wait_for(lambda: not (self._thread or self._busy))",
        after="pass",
    ),
    Mutant(
        name="close waits for the disks of other logs",
        rows="CN-08",
        test="tests/unit/wal/test_wal_threads.py::test_close_does_not_wait_for_a_thread_that_other_logs_keep",
        file="replica/wal/log.py",
        function="Log.close",
        before="not (self._thread or self._busy)",
        after="not (self._offered or self._busy)",
    ),
    Mutant(
        name="log is written after its end",
        rows="CN-08",
        test="tests/unit/wal/test_wal_threads.py::test_close_does_not_wait_for_a_thread_that_other_logs_keep",
        file="replica/wal/log.py",
        function="Log._turn",
        before="if self._closing:",
        after="if self._closed:",
    ),
    Mutant(
        name="process begins without a thread for its logs",
        rows="IN-30",
        test="tests/unit/wal/test_wal_threads.py::test_process_whose_threads_cannot_all_be_started_does_not_begin",
        file="replica/wal/threads.py",
        function="TurnThreads.__init__",
        before="raise exhausted(error) or error from error",
        after="break",
    ),
    Mutant(
        name="segments are not preallocated",
        rows="CN-17",
        test="tests/unit/wal/test_wal_segments.py::test_new_segments_are_preallocated_and_double_up_to_the_maximum",
        file="replica/wal/segment.py",
        function="NextSegment._allocate",
        before="""
            file.preallocate(self._size)
        """,
        after="",
    ),
    Mutant(
        name="preallocation that failed is never told",
        rows="CN-19",
        test=(
            "tests/unit/wal/test_wal_segments.py::"
            "test_preallocation_that_ends_in_a_surprise_ends_the_log_and_is_not_tried_again_for_ever"
        ),
        file="replica/wal/segment.py",
        function="NextSegment.ready",
        before="self._preparing.done()",
        after="self._preparing.done() and not self._preparing.exception()",
    ),
    Mutant(
        name="segment is named before it has a header",
        rows="CN-20,CN-22",
        test="tests/unit/wal/test_wal_recovery.py::test_crash_at_every_point_loses_nothing_that_was_acknowledged",
        file="replica/wal/segment.py",
        function="NextSegment.take",
        before="""
            file.pwrite(data, 0)
            file.sync()
            self.disk.crash_point("wal.before_rename_segment")
            self.disk.rename(self._temp, f"{self.folder}/{segment_name(number)}")
        """,
        after="""
            self.disk.crash_point("wal.before_rename_segment")
            self.disk.rename(self._temp, f"{self.folder}/{segment_name(number)}")
            self.disk.crash_point("wal.after_rename_segment")
            file.pwrite(data, 0)
            file.sync()
        """,
    ),
    Mutant(
        name="header not synced before rename",
        rows="CN-20",
        test="tests/unit/wal/test_wal_recovery.py::test_crash_at_every_point_loses_nothing_that_was_acknowledged",
        file="replica/wal/segment.py",
        function="NextSegment.take",
        before="""
            file.sync()
        """,
        after="",
    ),
    Mutant(
        name="block states its zeros only if all entries have some",
        rows="CN-22",
        test="tests/unit/wal/test_wal_append.py::test_block_of_which_one_entry_has_a_long_run_of_zeros_is_read_back",
        file="replica/wal/appender.py",
        function="Appender.write",
        before="with_trailer = any(encoded.needs_trailer for slot in slots for encoded in slot.encoded)",
        after="with_trailer = all(encoded.needs_trailer for slot in slots for encoded in slot.encoded)",
    ),
)
