"""Mutants: tablet."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="scan without columns begins",
        rows="IN-82",
        test="tests/unit/tablet/test_tablet_scan.py::test_scan_without_columns_is_refused_unless_it_counts",
        file="replica/tablet/tablet.py",
        function="Tablet.scan",
        before="if names == () and not count_only:",
        after="if names == () and not count_only and count < 0:",
    ),
    Mutant(
        name="no map looks like damage",
        rows="IN-30",
        test="tests/unit/tablet/test_tablet_maps.py::test_tablet_without_a_memory_map_left_waits_and_goes_on[open]",
        file="replica/tablet/block.py",
        function="Block.__init__",
        before="if wanted is not None:  # no map, no file, no memory: the block is as good as before",
        after="if wanted is None:  # no map, no file, no memory: the block is as good as before",
        on_disk=True,
    ),
    Mutant(
        name="no memory for a block looks like damage",
        rows="IN-30",
        test="tests/unit/tablet/test_tablet_want.py::test_block_without_memory_is_a_want_and_a_broken_one_is_corruption",
        file="replica/tablet/block.py",
        function="Block.__init__",
        before="if wanted is not None:  # no map, no file, no memory: the block is as good as before",
        after="if wanted is None:  # no map, no file, no memory: the block is as good as before",
    ),
    Mutant(
        name="refused map has no errno",
        rows="IN-30",
        test="tests/unit/tablet/test_tablet_maps.py::test_tablet_without_a_memory_map_left_waits_and_goes_on[open]",
        file="replica/fs/os_errors.py",
        function="_number",
        before="if os.strerror(number) in text}",
        after="if not text}",
        on_disk=True,
    ),
    Mutant(
        name="block opened unread is never checked",
        rows="TC-51",
        test="tests/unit/tablet/test_tablet_rot.py::test_block_opened_unread_is_checked_before_its_first_row_is_served",
        file="replica/tablet/block.py",
        function="Block.page_checks",
        before="self._pages = mapped_pages(self.info.name, self._mapped, self.info.crc)",
        after="self._pages = []",
    ),
    Mutant(
        name="unreadable block ends the server",
        rows="TC-63",
        test=(
            "tests/unit/tablet/test_tablet_crash.py::"
            "test_block_that_the_disk_cannot_read_is_corruption_not_the_end_of_the_server"
        ),
        file="replica/tablet/block_file.py",
        function="data_trouble",
        before="except DiskFailure as e:",
        after="except FileNotFoundError as e:",
    ),
    Mutant(
        name="scrub trusts the page cache",
        rows="TC-63",
        test="tests/unit/tablet/test_tablet_crash.py::test_check_past_the_page_cache_gives_back_what_it_brought",
        file="replica/tablet/block_file.py",
        function="_verified",
        before="""
            if uncached:
                file.uncache()
            starts = range(0, length_bytes, piece_bytes)
        """,
        after="""
            starts = range(0, length_bytes, piece_bytes)
        """,
    ),
    Mutant(
        name="block whose folder is not synced stays half there",
        rows="IN-30",
        test=(
            "tests/unit/tablet/test_tablet_crash.py::"
            "test_block_that_the_disk_cannot_write_is_corruption_and_no_superblock_names_it"
        ),
        file="replica/tablet/block_file.py",
        function="write_block",
        before="""
                    sidecar_length, sidecar_crc = _write_sidecar(disk, sidecar_path, content, block_id)
                    disk.sync_dir(FOLDER)
        """,
        after="""
                    sidecar_length, sidecar_crc = _write_sidecar(disk, sidecar_path, content, block_id)
        """,
        more=(
            Edit(
                file="replica/tablet/block_file.py",
                function="write_block",
                before="""
                    rows = content.batch.num_rows
                """,
                after="""
                    disk.sync_dir(FOLDER)
                    rows = content.batch.num_rows
                """,
            ),
        ),
    ),
    Mutant(
        name="block crc unchecked",
        rows="TC-51",
        test="tests/unit/tablet/test_tablet_crash.py::test_block_with_a_flipped_bit_is_corruption_at_open",
        file="replica/tablet/block_file.py",
        function="_checked",
        before="if found != crc:",
        after="if False and found != crc:",
    ),
    Mutant(
        name="ledger gap of one offset is none",
        rows="none",
        test="tests/unit/tablet/test_tablet_ledger.py::test_ledger_batch_above_a_hole_is_refused_whole",
        file="replica/tablet/ledger.py",
        function="Ledger.admit_source",
        before="if meta.after is not None and meta.after > state.last_offset:",
        after="if meta.after is not None and meta.after > state.last_offset + 1:",
    ),
    Mutant(
        name="ledger error at done is forgotten",
        rows="none",
        test="tests/unit/tablet/test_tablet_ledger.py::test_ledger_error_of_the_very_row_at_done_is_remembered",
        file="replica/tablet/ledger.py",
        function="Ledger.advance_source",
        before="forget_below(state.done)",
        after="forget_below(state.done + 1)",
    ),
    Mutant(
        name="client too many evicts one",
        rows="CN-24",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_evicted_client_goes_on_and_its_older_writes_do_not_come_back"
        ),
        file="replica/tablet/ledger.py",
        function="Ledger.admit_client",
        before="""
            raise Refused(Code.OVERLOADED, "too many clients wrote recently", clients=len(self._clients))
        """,
        after="""
            oldest = next(iter(self._clients))
            self._forget_results(oldest, 1 << 62)
            del self._clients[oldest]
        """,
    ),
    Mutant(
        name="forgotten row errors are told as none",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_row_errors_of_many_clients_are_bounded_and_end_with_any_later_entry"
        ),
        file="replica/tablet/ledger.py",
        function="Ledger.admit_client",
        before="if meta.sequence < state.first_incomplete if known is None else known.forgotten:",
        after="if known is None and meta.sequence < state.first_incomplete:",
    ),
    Mutant(
        name="repeated write is done again under churn",
        rows="CN-24",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_clients_number_that_was_answered_has_that_answer_whatever_body_comes"
        ),
        file="replica/tablet/ledger.py",
        function="Ledger.admit_client",
        before="return known",
        after="return None",
    ),
    Mutant(
        name="number below a forgotten one is new among others",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_number_below_a_forgotten_one_is_expired_however_entries_are_handed_over"
        ),
        file="replica/tablet/ledger.py",
        function="Ledger.new_writes",
        before="if known or sequence < low or room < 0 or left[client] < 0:",
        after="if known or sequence < low or room < 0:",
    ),
    Mutant(
        name="results have no bound over clients",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_results_of_many_clients_are_bounded_and_the_oldest_is_done_no_more"
        ),
        file="replica/tablet/ledger.py",
        function="Ledger._make_room",
        before="while len(self._results) > limits.LEDGER_RESULTS_MAX:",
        after="while len(self._results) > limits.LEDGER_RESULTS_MAX * limits.LEDGER_CLIENTS_MAX:",
    ),
    Mutant(
        name="row errors have no bound over clients",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_row_errors_of_many_clients_are_bounded_and_end_with_any_later_entry"
        ),
        file="replica/tablet/ledger.py",
        function="Ledger._make_room",
        before="while self._failed_bytes > limits.LEDGER_ERRORS_BYTES_MAX:",
        after="while self._failed_bytes > limits.LEDGER_ERRORS_BYTES_MAX * limits.LEDGER_CLIENTS_MAX:",
    ),
    Mutant(
        name="forgotten number is done again",
        rows="CN-24",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_client_results_stay_while_a_repetition_may_come_and_go_then"
        ),
        file="replica/tablet/ledger.py",
        function="Ledger._forget_results",
        before="self._clients[client] = ClientState(first, state.last_used, results)",
        after="self._clients[client] = ClientState(state.first_incomplete, state.last_used, results)",
    ),
    Mutant(
        name="row errors of a write make all others go",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_row_errors_of_many_clients_are_bounded_and_end_with_any_later_entry"
        ),
        file="replica/tablet/ledger.py",
        function="_fitting",
        before="_outline(result) if result.errors.size_bytes > limits.LEDGER_ERRORS_BYTES_MAX else result",
        after="result",
    ),
    Mutant(
        name="late flush saves an old superblock",
        rows="TC-40",
        test=(
            "tests/unit/tablet/test_tablet_rows.py::"
            "test_closed_tablet_leaves_the_files_alone_and_answers_nobody_with_less_than_its_rows"
        ),
        file="replica/tablet/maintenance.py",
        function="Maintenance.flush",
        before="frozen = None if contents.closed else contents.freeze()",
        after="frozen = contents.freeze()",
    ),
    Mutant(
        name="flush position is saved before its block",
        rows="CN-02",
        test=(
            "tests/process/test_storage_points_process.py::"
            "test_server_that_dies_at_each_point_of_flush_compaction_and_log_keeps_every_row_once"
        ),
        file="replica/tablet/maintenance.py",
        function="Maintenance.flush",
        before="""
            written = self._write(superblock, frozen, self._deltas(superblock.flush_time, frozen.time))
        """,
        after="""
            replace(superblock, flush_opid=frozen.opid, flush_time=frozen.time).save(contents.disk)
            written = self._write(superblock, frozen, self._deltas(superblock.flush_time, frozen.time))
        """,
    ),
    Mutant(
        name="flush claims what came meanwhile",
        rows="CN-02",
        test=(
            "tests/unit/tablet/test_tablet_crash.py::"
            "test_tablet_written_at_every_hook_and_crashed_twice_in_a_row_replays_each_change_once"
        ),
        file="replica/tablet/maintenance.py",
        function="Maintenance.flush",
        before="flush_opid=frozen.opid,",
        after="flush_opid=contents.applied,",
    ),
    Mutant(
        name="entry applied in part is flushed",
        rows="IN-30",
        test="tests/unit/tablet/test_tablet_want.py::test_entry_that_was_applied_in_part_never_reaches_the_disk",
        file="replica/tablet/contents.py",
        function="Contents.freeze",
        before="""
            self.check_whole()
        """,
        after="",
    ),
    Mutant(
        name="damaged record fails a flush",
        rows="IN-21",
        test="tests/unit/server/test_server_file_check.py::test_work_over_a_damaged_superblock_goes_by_memory",
        file="replica/tablet/maintenance.py",
        function="Maintenance.flush",
        before="after.save(contents.disk, over=superblock)",
        after="after.save(contents.disk)",
    ),
    *(
        Mutant(
            name=f"superblock lists {what} twice",
            rows="IN-21",
            test="tests/unit/tablet/test_tablet_superblock.py::test_superblock_that_lists_a_block_twice_is_corrupt",
            file="replica/tablet/superblock.py",
            function="Superblock.from_avro",
            before=before,
            after=after,
        )
        for what, before, after in (
            ("a file", "[b.name for b in blocks], ", ""),
            ("a sidecar", "[b.sidecar_name for b in blocks], ", ""),
            ("a block", ", [b.block_id for b in blocks]", ""),
        )
    ),
    Mutant(
        name="damaged record is replaced in silence",
        rows="IN-21",
        test="tests/unit/server/test_server_file_check.py::test_work_over_a_damaged_superblock_goes_by_memory",
        file="replica/tablet/superblock.py",
        function="_is_recorded",
        before=".error(",
        after=".debug(",
    ),
    Mutant(
        name="damaged record of an unflushed tablet is replaced in silence",
        rows="IN-21",
        test=(
            "tests/unit/tablet/test_tablet_superblock.py::"
            "test_record_that_memory_replaces_is_told_unless_it_never_was_there"
        ),
        file="replica/tablet/superblock.py",
        function="_is_recorded",
        before="if isinstance(error, Refused) and record.flush_opid == ZERO_OPID:",
        after="if record.flush_opid == ZERO_OPID:",
    ),
    Mutant(
        name="damaged record fails a merge",
        rows="IN-21",
        test="tests/unit/server/test_server_file_check.py::test_work_over_a_damaged_superblock_goes_by_memory",
        file="replica/tablet/maintenance.py",
        function="Maintenance.compact",
        before="after.save(contents.disk, over=superblock)",
        after="after.save(contents.disk)",
    ),
    Mutant(
        name="entry applied in part is compacted",
        rows="IN-30",
        test="tests/unit/tablet/test_tablet_want.py::test_entry_that_was_applied_in_part_never_reaches_the_disk",
        file="replica/tablet/maintenance.py",
        function="Maintenance.compact",
        before="""
            contents.check_whole()
        """,
        after="",
    ),
    Mutant(
        name="compaction takes damage for right",
        rows="TC-63",
        test=(
            "tests/unit/tablet/test_tablet_crash.py::"
            "test_block_that_went_bad_is_corruption_to_a_compaction_which_changes_nothing"
        ),
        file="replica/tablet/maintenance.py",
        function="Maintenance.compact",
        before="verify_file(contents.disk, path, length_bytes, crc)",
        after="pass",
    ),
    Mutant(
        name="merged blocks go before the swap",
        rows="CN-02",
        test=(
            "tests/unit/tablet/test_tablet_crash.py::"
            "test_tablet_written_at_every_hook_and_crashed_twice_in_a_row_replays_each_change_once"
        ),
        file="replica/tablet/maintenance.py",
        function="Maintenance.compact",
        before="""
            contents.disk.crash_point("tablet.before_compaction_swap")
        """,
        after="""
            for path in [path for b in inputs for path, _, _ in b.info.files]:
                contents.disk.remove(path)
            contents.disk.crash_point("tablet.before_compaction_swap")
        """,
    ),
    Mutant(
        name="small blocks drag a large one along",
        rows="IN-31",
        test=(
            "tests/unit/tablet/test_tablet_merge_rule.py::"
            "test_number_of_blocks_and_bytes_written_again_are_bounded_for_any_size_of_flush"
        ),
        file="replica/tablet/merge_rule.py",
        before="SMALL_BYTES = 64 << 10",
        after="SMALL_BYTES = 16 << 20",
    ),
    Mutant(
        name="merge without a bound",
        rows="IN-31",
        test="tests/unit/tablet/test_tablet_merge_rule.py::test_any_blocks_end_within_the_bound_and_in_few_merges",
        file="replica/tablet/merge_rule.py",
        function="_run",
        before="if total > bytes_max:",
        after="if total < 0:",
    ),
    Mutant(
        name="four must fit",
        rows="IN-31",
        test="tests/unit/tablet/test_tablet_merge_rule.py::test_tablet_with_wide_rows_is_compacted",
        file="replica/tablet/merge_rule.py",
        function="_run",
        before="return similar[:fits] if fits > 1 else []",
        after="return similar[:fits] if fits >= FAN_IN_MIN else []",
    ),
    Mutant(
        name="wide rows leave blocks",
        rows="IN-31",
        test=(
            "tests/unit/tablet/test_tablet_merge_rule.py::"
            "test_number_of_blocks_and_bytes_written_again_are_bounded_for_any_size_of_flush"
        ),
        file="replica/tablet/merge_rule.py",
        function="_run",
        before="return similar[:fits] if fits > 1 else []",
        after="return similar[:fits] if fits >= FAN_IN_MIN else []",
    ),
    Mutant(
        name="string is read by unchecked offsets",
        rows="TC-51",
        test="tests/unit/tablet/test_tablet_rot.py::test_scan_of_a_block_with_any_page_changed_is_right_or_corruption",
        file="replica/tablet/page_crcs.py",
        function="_spans",
        before="""
            yield offsets.address + 4 * start, 4 * (rows + 1)
        """,
        after="",
    ),
    Mutant(
        name="unchecked times hide rows",
        rows="TC-51",
        test="tests/unit/tablet/test_tablet_rot.py::test_rot_hides_no_row_from_a_predicate_a_slice_or_a_count",
        file="replica/tablet/scan.py",
        function="pieces",
        before="""
            checks.check(times[first:last] for times in block.times_read(at))
        """,
        after="",
    ),
    Mutant(
        name="pieces are not asked for",
        rows="IN-62",
        test="tests/unit/server/test_server_callers.py::test_nothing_is_evaluated_after_the_deadline",
        file="replica/tablet/scan.py",
        function="pieces",
        before="""
            stop()
            low, high = chunk.base + start, chunk.base + end
        """,
        after="""
            low, high = chunk.base + start, chunk.base + end
        """,
    ),
    Mutant(
        name="batch becomes as large as its defaults make it",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_filled.py::"
            "test_small_batch_that_becomes_a_large_one_is_refused_before_it_is_in_the_log"
        ),
        file="replica/tablet/write_checks.py",
        function="check_filled",
        before="if stay > most:",
        after="if stay > 100 * most:",
    ),
    Mutant(
        name="deletions are counted as rows that are filled in",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_filled.py::"
            "test_small_batch_that_becomes_a_large_one_is_refused_before_it_is_in_the_log"
        ),
        file="replica/tablet/write_checks.py",
        function="check_filled",
        before="(ops != RowOp.DELETE)",
        after="(ops != 99)",
    ),
    Mutant(
        name="client cuts by what it sends alone",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_filled.py::test_client_cuts_its_batches_as_servers_take_them",
        file="replica/client/batching.py",
        function="cut",
        before="schema.left_out(column_ids, ignore_null).rows_max",
        after="limits.BATCH_ROWS_MAX",
    ),
    Mutant(
        name="row grows without a bound by updates of single columns",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_row_bound.py::"
            "test_row_does_not_grow_past_its_bound_by_updates_of_single_columns"
        ),
        file="replica/tablet/resolve.py",
        function="_too_long",
        before="hit[size > limits.ROW_SIZE_BYTES_MAX]",
        after="hit[:0]",
    ),
    Mutant(
        name="entries of an older build get a rule that they were not written under",
        rows="IN-21",
        test=("tests/unit/tablet/test_tablet_row_bound.py::test_entries_of_before_the_rule_keep_their_outcome"),
        file="replica/tablet/resolve.py",
        function="_apply_pass",
        before="if rows.bounded and (missing or gappy):",
        after="if missing or gappy:",
    ),
    Mutant(
        name="leader does not ask for the bound of rows",
        rows="IN-60",
        test=("tests/unit/server/test_server_writes.py::test_leader_sees_to_it_that_rows_do_not_grow_past_their_bound"),
        file="replica/server/requests/writes.py",
        function="_meta",
        before="rows_bounded=schema.left_out(column_ids, request.ignore_null).may_grow",
        after="rows_bounded=False",
    ),
    Mutant(
        name="leader does not ask for it if nulls leave columns as they are",
        rows="IN-60",
        test=("tests/unit/server/test_server_writes.py::test_leader_sees_to_it_that_rows_do_not_grow_past_their_bound"),
        file="replica/server/requests/writes.py",
        function="_meta",
        before="rows_bounded=schema.left_out(column_ids, request.ignore_null).may_grow",
        after="rows_bounded=schema.left_out(column_ids).may_grow",
    ),
    Mutant(
        name="bytes beneath a null count as a row's",
        rows="CN-24",
        test=("tests/unit/tablet/test_tablet_row_bound.py::test_bytes_beneath_a_null_do_not_count_on_any_replica"),
        file="replica/rows/buffers.py",
        function="lengths_at",
        before="if array.null_count:",
        after="if array.null_count < 0:",
    ),
    Mutant(
        name="what a null leaves as it is does not count",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_row_bound.py::test_nulls_that_leave_a_column_as_it_is_count_what_stays"),
        file="replica/tablet/resolve.py",
        function="_too_long",
        before="np.where(left_as_it_is(array, rows)[hit], stays, lengths_at(array, hit))",
        after="lengths_at(array, hit)",
    ),
    Mutant(
        name="defaults do not count as a row's",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_row_bound.py::test_default_counts_for_the_bound_of_a_new_row"),
        file="replica/tablet/resolve.py",
        function="_too_long",
        before="np.full(len(hit), column.default_length)",
        after="np.full(len(hit), 0)",
    ),
    Mutant(
        name="insert that would be too long is dropped before a deletion",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_row_bound.py::test_default_counts_for_the_bound_of_a_new_row"),
        file="replica/tablet/resolve.py",
        function="in_passes",
        before="if rows.bounded:",
        after="if not rows.bounded:",
    ),
    Mutant(
        name="small writes are bounded as the first of those beside them",
        test=("tests/unit/tablet/test_tablet_row_bound.py::test_small_writes_with_and_without_the_mark_are_not_mixed"),
        file="replica/tablet/combined_writes.py",
        function="_kind",
        before="return meta.column_ids, meta.ignore_null, meta.rows_bounded",
        after="return meta.column_ids, meta.ignore_null, True",
    ),
    Mutant(
        name="made-up keys stay in one place",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_collisions.py::test_hashes_of_one_slot_do_not_stay_in_one_place"),
        file="replica/tablet/hash_index.py",
        function="HashIndex._rebuild",
        before="np.uint64(secrets.randbits(64)), False",
        after="None, False",
    ),
    Mutant(
        name="long probes are not noticed",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::test_hashes_of_one_slot_do_not_stay_in_one_place[1-at-a-time]"
        ),
        file="replica/tablet/hash_index.py",
        function="HashIndex._find_few",
        before="self._crowded or (at - home) & mask > _PROBES_MAX",
        after="self._crowded",
    ),
    Mutant(
        name="long probes of batches are not noticed",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::"
            "test_hashes_of_one_slot_do_not_stay_in_one_place[100-at-a-time]"
        ),
        file="replica/tablet/hash_index.py",
        function="HashIndex.find",
        before="self._crowded or probes > _PROBES_MAX",
        after="self._crowded",
    ),
    Mutant(
        name="crowded index waits until it has to grow",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::test_hashes_of_one_slot_do_not_stay_in_one_place[1-at-a-time]"
        ),
        file="replica/tablet/hash_index.py",
        function="HashIndex.reserve",
        before="and not self._crowded",
        after="",
    ),
    Mutant(
        name="batch of one slot is walked to its end",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::"
            "test_hashes_of_one_slot_do_not_stay_in_one_place[20000-at-a-time]"
        ),
        file="replica/tablet/hash_index.py",
        function="HashIndex.insert",
        before="_PROBES_MAX)",
        after="len(ids))",
    ),
    Mutant(
        name="marks that found no place are lost",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::"
            "test_hashes_of_one_slot_do_not_stay_in_one_place[20000-at-a-time]"
        ),
        file="replica/tablet/hash_index.py",
        function="HashIndex.insert",
        before="np.concatenate([self._slots[self._slots != 0], left])",
        after="self._slots[self._slots != 0]",
    ),
    Mutant(
        name="few hashes are looked for where they were",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::"
            "test_hashes_of_one_slot_do_not_stay_in_one_place[20000-at-a-time]"
        ),
        file="replica/tablet/hash_index.py",
        function="HashIndex._home_of",
        before="mix_one(value ^ int(self._secret))",
        after="value",
    ),
    Mutant(
        name="every index has a secret",
        test="tests/unit/tablet/test_tablet_collisions.py::test_hashes_of_usual_keys_stay_in_order",
        file="replica/tablet/hash_index.py",
        function="HashIndex.find",
        before="probes > _PROBES_MAX",
        after="probes > 3",
    ),
    Mutant(
        name="alias of a key can be computed",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_collisions.py::test_key_costs_as_much_however_many_have_its_hash[memory]"),
        file="replica/tablet/memstore.py",
        function="MemStore._locate_collided",
        before="h[wrong] = _secret_hash([take(k, wrong) for k in keys])",
        after="h[wrong] += np.uint64(1)",
    ),
    Mutant(
        name="flush writes aliases",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_collisions.py::test_keys_of_one_hash_are_told_apart_wherever_they_are"),
        file="replica/tablet/memstore.py",
        function="MemStore.rotated_hashes_of",
        before="if self._aliases:",
        after="if not self._aliases:",
    ),
    Mutant(
        name="aliases are forgotten when they are added",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_collisions.py::test_keys_of_one_hash_are_told_apart_wherever_they_are"),
        file="replica/tablet/memstore.py",
        function="MemStore.append",
        before="self._aliases = self._aliases or located.aliases",
        after="pass",
    ),
    Mutant(
        name="aliases of some rows of a batch are forgotten",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::test_aliases_of_rows_that_are_added_beside_errors_are_known"
        ),
        file="replica/tablet/stores.py",
        function="Stores.add",
        before="None, located.aliases",
        after="None",
    ),
    Mutant(
        name="time that Python has no object for ends a replica",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_collisions.py::test_times_that_python_has_no_object_for_may_share_a_hash"),
        file="replica/tablet/memstore.py",
        function="_secret_hash",
        before="if pa.types.is_temporal(key.type)",
        after="if False",
    ),
    Mutant(
        name="first row of a hash is every key of it",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_collisions.py::test_keys_of_one_hash_are_told_apart_wherever_they_are"),
        file="replica/tablet/block.py",
        function="Block._same_keys",
        before="positions[wrong], same[wrong] = self._last_versions([take(k, wrong) for k in theirs], checks)",
        after="pass",
    ),
    Mutant(
        name="older version of a key is found",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::"
            "test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[few-hashes]"
        ),
        file="replica/tablet/block.py",
        function="Block._last_rows",
        before="last = np.maximum(low - 1, 0)",
        after="last = np.maximum(low - 2, 0)",
    ),
    Mutant(
        name="key that was deleted before a flush lives",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::"
            "test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[few-hashes]"
        ),
        file="replica/tablet/block.py",
        function="Block._last_versions",
        before="found &= self.written_superseded[last] == MAX_HYBRID_TIME",
        after="pass",
    ),
    Mutant(
        name="search by key reads pages unchecked",
        rows="TC-51",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::"
            "test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[few-hashes]"
        ),
        file="replica/tablet/block.py",
        function="_beyond",
        before="checks.check_rows((column,), rows)",
        after="pass",
    ),
    Mutant(
        name="slots of before the index chose others are used",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_collisions.py::"
            "test_no_key_is_lost_when_the_index_chooses_its_slots_anew_within_a_batch"
        ),
        file="replica/tablet/stores.py",
        function="Stores.add",
        before="self.active.slots_of(hashes)",
        after="located.slots[hit]",
    ),
    Mutant(
        name="first column of a key decides its order",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_collisions.py::test_keys_that_differ_in_the_last_column_are_found"),
        file="replica/tablet/block.py",
        function="_beyond",
        before="undecided &= pc.equal(ours, theirs).to_numpy(zero_copy_only=False)",
        after="undecided[:] = False",
    ),
    Mutant(
        name="one key comes as often as a batch has rows",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_batch_that_writes_one_key_too_often_is_refused",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="if passes > most or",
        after="if passes > most << 40 or",
    ),
    Mutant(
        name="one key at each of many places comes as often as at one",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_keys_at_many_places_come_less_often",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="if passes > most or reads > reads_max:",
        after="if passes > most:",
    ),
    Mutant(
        name="reads of many keys are not looked at if few hashes end alike",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_keys_at_many_places_come_less_often",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="if group <= most and min(meta.rows, group * places) * len(schema.key) <= reads_max:",
        after="if group <= most:",
    ),
    Mutant(
        name="each key of an earlier time is searched by itself",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_thread_costs.py::test_get_of_an_earlier_time_does_not_read_the_table[many-rows]",
        file="replica/tablet/block.py",
        function="Block.versions_at",
        before="self._last_rows(keys, checks, up_to=(pa.array(self.ts), times))",
        after="[self._last_rows(keys, checks, up_to=(pa.array(self.ts), times)) for _ in times][-1]",
    ),
    Mutant(
        name="a search of scattered rows does not look at the deadline",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_thread_costs.py::test_get_of_an_earlier_time_does_not_read_the_table[wide-key]",
        file="replica/tablet/page_crcs.py",
        function="PageChecks.check_rows",
        before="self._stop()",
        after="pass",
    ),
    Mutant(
        name="keys are numbered after their caller has left",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_thread_costs.py::test_get_of_an_earlier_time_does_not_read_the_table[wide-key]",
        file="replica/tablet/columns.py",
        function="KeyNumbers.__init__",
        before="stop()",
        after="pass",
    ),
    Mutant(
        name="a row of an earlier time is the last one",
        rows="RD-02",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::"
            "test_rows_by_key_of_an_earlier_time_are_those_of_the_twin[0-number]"
        ),
        file="replica/tablet/block.py",
        function="Block.versions_at",
        before="up_to=(pa.array(self.ts), times)",
        after="up_to=()",
    ),
    Mutant(
        name="a row that had ended before is read at an earlier time",
        rows="RD-02",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::"
            "test_rows_by_key_of_an_earlier_time_are_those_of_the_twin[0-number]"
        ),
        file="replica/tablet/block.py",
        function="Block.versions_at",
        before="self.written_superseded[last[asked]] > at",
        after="self.written_superseded[last[asked]] > 0",
    ),
    Mutant(
        name="a row that has ended since is read at an earlier time",
        rows="RD-02",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::"
            "test_rows_by_key_of_an_earlier_time_are_those_of_the_twin[0-number]"
        ),
        file="replica/tablet/block.py",
        function="Block.versions_at",
        before="self.visible_at(deltas, last[asked], at, checks)",
        after="self.visible_at((), last[asked], at, checks)",
    ),
    Mutant(
        name="an end in a damaged page counts at an earlier time",
        rows="TC-51",
        test="tests/unit/tablet/test_tablet_look_up.py::test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[number]",
        file="replica/tablet/block.py",
        function="Block.versions_at",
        before="checks.check_rows((self.written_superseded,), last[asked])",
        after="pass",
    ),
    Mutant(
        name="each key of one hash is looked for by itself",
        rows="IN-60",
        test=(
            "tests/unit/rpc/test_rpc_thread_costs.py::test_get_of_many_keys_of_one_hash_takes_as_many_steps_as_others"
        ),
        file="replica/tablet/look_up.py",
        function="LookUp._from_history",
        before="at, found = numbers.find(",
        after="at, found = (lambda *told: [numbers.find(*told) for _ in rows][-1])(",
    ),
    Mutant(
        name="checksum goes on after its caller has left",
        rows="IN-60",
        test=("tests/unit/rpc/test_rpc_thread_costs.py::test_checksum_takes_no_more_steps_of_a_thread_than_is_stated"),
        file="replica/tablet/tablet.py",
        function="Tablet.checksum",
        before="sum_of_rows(batch, scan.column_ids, stop)",
        after="sum_of_rows(batch, scan.column_ids)",
    ),
    Mutant(
        name="each value that a row keeps is looked for among all columns",
        rows="IN-60",
        test=(
            "tests/unit/rpc/test_rpc_apply_costs.py::"
            "test_batch_takes_no_more_steps_of_a_thread_than_is_stated[many-columns-that-stay-at-many-places]"
        ),
        file="replica/tablet/columns.py",
        function="Place.column",
        before="pos = self.schema.positions.get(column_id)",
        after="pos = {c.id: pos for pos, c in enumerate(c for c in self.schema.columns)}.get(column_id)",
    ),
    Mutant(
        name="one pass more than the bound",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_batch_that_writes_one_key_too_often_is_refused",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="if passes > most or",
        after="if passes > most + 1 or",
    ),
    Mutant(
        name="passes are counted from zero",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_batch_that_writes_one_key_too_often_is_refused",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="passes, reads = len(sizes),",
        after="passes, reads = len(sizes) - 1,",
    ),
    Mutant(
        name="hashes are told apart by bits that keys choose",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_keys_of_one_hash_count_as_one_key",
        file="replica/tablet/write_checks.py",
        function="_largest_group",
        before=".max())",
        after=".min())",
    ),
    Mutant(
        name="rows that fail for themselves are counted",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_rows_that_fail_for_themselves_do_not_count",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="checked = check(rows, natural)",
        after="checked = check(rows, natural)._replace(rows=rows, hashes=natural)",
    ),
    Mutant(
        name="wide table takes as many passes as a narrow one",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_wide_table_takes_fewer_passes",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="min(limits.BATCH_PASSES_MAX, limits.BATCH_PASS_VALUES_MAX // len(schema.columns))",
        after="limits.BATCH_PASSES_MAX",
    ),
    Mutant(
        name="every batch is hashed twice",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_batch_without_many_rows_is_not_looked_at",
        file="replica/tablet/write_checks.py",
        function="check_passes",
        before="if meta.rows <= most:",
        after="if meta.rows < 0:",
    ),
    Mutant(
        name="hashes of rows that are left out stay",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_hashes_of_one_check_serve_the_next",
        file="replica/tablet/resolve.py",
        function="check_rows",
        before="else natural[good]",
        after="else natural",
    ),
    Mutant(
        name="known hashes are not used",
        test="tests/unit/tablet/test_tablet_write_checks.py::test_hashes_of_one_check_serve_the_next",
        file="replica/tablet/write_checks.py",
        function="check_kept",
        before="check(rows, given.hashes)",
        after="check(rows, None)",
    ),
    Mutant(
        name="rows of a batch keep what they will",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_kept_bound.py::"
            "test_batch_whose_rows_keep_too_much_is_refused_and_its_halves_are_not"
        ),
        file="replica/tablet/write_checks.py",
        function="check_kept",
        before="if kept > most:",
        after="if kept > most << 40:",
    ),
    Mutant(
        name="what is under way is not kept by anybody",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_kept_bound.py::test_key_that_comes_often_counts_as_often",
        file="replica/tablet/kept_bound.py",
        function="kept_bytes",
        before="max(column.default_length, longest_before.get(column.id, 0))",
        after="column.default_length",
    ),
    Mutant(
        name="cheap measure knows nothing of what is under way",
        rows="IN-60",
        test=("tests/unit/tablet/test_tablet_kept_bound.py::test_ceiling_of_a_batch_knows_what_is_under_way"),
        file="replica/tablet/write_checks.py",
        function="check_kept",
        before="longest_of([before, *stores.longest(contents.lock)])",
        after="longest_of(stores.longest(contents.lock))",
    ),
    Mutant(
        name="cheap measure forgets the blocks",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_kept_bound.py::"
            "test_measure_is_exact_where_keys_come_once_and_nothing_is_under_way"
        ),
        file="replica/tablet/stores.py",
        function="Stores.longest",
        before="in_memory + [block.longest for block in blocks]",
        after="in_memory",
    ),
    Mutant(
        name="cheap measure forgets the frozen store",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_kept_bound.py::"
            "test_measure_is_exact_where_keys_come_once_and_nothing_is_under_way"
        ),
        file="replica/tablet/stores.py",
        function="Stores.longest",
        before="(self.frozen, self.active)",
        after="(None, self.active)",
    ),
    Mutant(
        name="key that comes often counts once",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_kept_bound.py::test_key_that_comes_often_counts_as_often",
        file="replica/tablet/kept_bound.py",
        function="kept_bytes",
        before="lengths[key_of_row[LEAVES_NULLS[rows.ops]]].sum()",
        after="lengths.sum()",
    ),
    Mutant(
        name="values of the batch itself are kept by nobody",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_kept_bound.py::test_key_that_comes_often_counts_as_often",
        file="replica/tablet/kept_bound.py",
        function="kept_bytes",
        before="np.maximum.at(lengths, key_of_row, lengths_at(array, np.arange(len(hashes))))",
        after="pass",
    ),
    Mutant(
        name="keys of one hash are one key to the measure",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_kept_bound.py::test_keys_of_one_hash_hide_nothing_from_the_measure",
        file="replica/tablet/kept_bound.py",
        function="kept_bytes",
        before="if len(by_hash) < len(hashes) and _collide(rows.keys(schema), hashes):",
        after="if len(by_hash) > len(hashes):",
    ),
    Mutant(
        name="nothing is measured",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_kept_bound.py::test_batches_that_cannot_keep_too_much_are_not_measured",
        file="replica/tablet/write_checks.py",
        function="may_keep_much",
        before="meta.rows == 1 or",
        after="meta.rows >= 1 or",
    ),
    Mutant(
        name="one row may be refused for what it keeps",
        rows="IN-60",
        test=(
            "tests/unit/server/test_server_writes.py::"
            "test_batch_whose_rows_keep_too_much_is_refused_whatever_is_under_way_before_it"
        ),
        file="replica/tablet/write_checks.py",
        function="may_keep_much",
        before="meta.rows == 1 or",
        after="",
    ),
    Mutant(
        name="kept values are copied all at once",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_row_bound.py::test_update_of_one_column_of_long_rows_copies_a_few_at_a_time"
        ),
        file="replica/tablet/kept.py",
        function="portions",
        before="before + limits.KEPT_BYTES_MAX",
        after="before + (limits.KEPT_BYTES_MAX << 20)",
    ),
    Mutant(
        name="long batches are merged into one",
        test=("tests/unit/tablet/test_tablet_row_bound.py::test_few_long_batches_are_not_merged_into_one"),
        file="replica/tablet/memstore.py",
        function="MemStore._merge_tail",
        before="if size_bytes > _MERGED_BYTES_MAX:",
        after="if size_bytes < 0:",
    ),
    Mutant(
        name="defaults in the place of nulls are not bounded",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_filled.py::"
            "test_nulls_that_leave_a_column_as_it_is_are_bounded_by_its_default"
        ),
        file="replica/rows/schema.py",
        function="TableSchema.left_out",
        before="(ignore_null or c.id not in given)",
        after="c.id not in given",
    ),
    Mutant(
        name="marks of a later build are read as none",
        rows="IN-21",
        test=("tests/formats/test_durable_formats.py::test_meta_of_a_write_of_version_1_reads_back"),
        file="replica/rows/meta.py",
        before="for marks in range(4)}",
        after="for marks in range(256)}",
    ),
    Mutant(
        name="large store becomes one block",
        test=("tests/unit/tablet/test_tablet_crash.py::test_large_store_becomes_several_blocks_or_none"),
        file="replica/tablet/merge_rule.py",
        function="flush_runs",
        before="if pos > first and total + size > bytes_max:",
        after="if pos > first and total + size < 0:",
    ),
    Mutant(
        name="blocks of a flush that found no space stay",
        test=("tests/unit/tablet/test_tablet_crash.py::test_large_store_becomes_several_blocks_or_none"),
        file="replica/tablet/maintenance.py",
        function="Maintenance._write",
        before="contents.disk.remove(path)",
        after="contents.disk.exists(path)",
    ),
    Mutant(
        name="each block of a flush has the same deltas",
        test=("tests/unit/tablet/test_tablet_crash.py::test_large_store_becomes_several_blocks_or_none"),
        file="replica/tablet/maintenance.py",
        function="Maintenance._write",
        before="deltas = {}",
        after="deltas = dict(deltas)",
    ),
    Mutant(
        name="what ended during a flush is looked for in its first block",
        test=(
            "tests/unit/tablet/test_tablet_crash.py::"
            "test_tablet_written_at_every_hook_and_crashed_twice_in_a_row_replays_each_change_once"
        ),
        file="replica/tablet/contents.py",
        function="Contents.install_flushed",
        before="superseded[start : start + len(positions)]",
        after="superseded[: len(positions)]",
    ),
    Mutant(
        name="pieces are cut by the mean of their rows",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_cuts.py::"
            "test_scan_of_short_rows_and_giant_ones_stays_below_what_a_call_is_charged"
        ),
        file="replica/tablet/cuts.py",
        function="RunSizes.of",
        before="sum(int(o[end]) - int(o[start]) for o in self._offsets)",
        after="sum((int(o[-1]) - int(o[0])) * (end - start) // (len(o) - 1) for o in self._offsets)",
    ),
    Mutant(
        name="scan's message is as long as the texts among it",
        rows="IN-60, IN-80",
        test="tests/unit/server/test_server_lists.py::test_messages_of_a_scan_are_no_longer_than_stated",
        file="replica/tablet/cuts.py",
        function="runs",
        before="if sizes.of(start, most) > limits.SCAN_BATCH_BYTES:",
        after="if sizes.of(start, most) > 16 * limits.SCAN_BATCH_BYTES:",
    ),
    Mutant(
        name="values that are filled in are not counted",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_cuts.py::test_values_that_a_later_column_fills_in_are_counted",
        file="replica/tablet/cuts.py",
        function="RunSizes.__init__",
        before="self._row_bits += 8 * filled(column, 1).nbytes",
        after="self._row_bits += 8",
    ),
    Mutant(
        name="columns that nobody reads are counted",
        test="tests/unit/tablet/test_tablet_cuts.py::test_columns_that_are_not_read_do_not_make_pieces_short",
        file="replica/tablet/cuts.py",
        function="RunSizes.__init__",
        before="if column.id not in ids:",
        after="if column.id not in ids and column.id not in arrays:",
    ),
    Mutant(
        name="rows without bytes are in one piece",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_cuts.py::test_runs_of_small_rows_are_bounded_in_number",
        file="replica/tablet/cuts.py",
        function="runs",
        before="min(start + limits.SCAN_PIECE_ROWS_MAX, last)",
        after="last",
    ),
    Mutant(
        name="unchecked keys leave a row out",
        rows="TC-51",
        test=("tests/unit/tablet/test_tablet_rot.py::test_rot_hides_no_row_from_a_predicate_a_slice_or_a_count"),
        file="replica/tablet/key_ranges.py",
        function="SortedKey._edge",
        before="self._checks.check((cell,))",
        after="pass",
    ),
    Mutant(
        name="second column is searched where the first one varies",
        rows="RD-01",
        test=(
            "tests/unit/tablet/test_tablet_key_ranges.py::"
            "test_second_column_is_searched_where_the_first_has_one_value_and_nowhere_else"
        ),
        file="replica/tablet/key_ranges.py",
        function="SortedKey.runs",
        before='if not any(term.op == "in" for term in of_column):',
        after="if not found:",
    ),
    Mutant(
        name="lists on a key are searched times one another",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_key_ranges.py::test_lists_on_a_key_are_searched_no_more_often_than_pays",
        file="replica/tablet/key_ranges.py",
        function="SortedKey.runs",
        before="if searches > min(SEARCHES_MAX, rows // SEARCH_ROWS):",
        after="if searches > 100 * SEARCHES_MAX:",
    ),
    Mutant(
        name="long block is searched without a bound",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_key_ranges.py::test_search_is_bounded_whatever_the_block_has",
        file="replica/tablet/key_ranges.py",
        function="SortedKey.runs",
        before="min(SEARCHES_MAX, rows // SEARCH_ROWS)",
        after="rows // SEARCH_ROWS",
    ),
    Mutant(
        name="search of a key goes on for a caller that left",
        rows="IN-60",
        test=(
            "tests/unit/rpc/test_rpc_thread_costs.py::test_scan_takes_no_more_steps_of_a_thread_than_is_stated"
            "[two-lists-on-the-second-column]"
        ),
        file="replica/tablet/key_ranges.py",
        function="SortedKey._meeting",
        before="""
            stop()
        """,
        after="",
    ),
    Mutant(
        name="pages are checked for a caller that left",
        rows="IN-60",
        test=(
            "tests/unit/tablet/test_tablet_key_ranges.py::"
            "test_scan_looks_at_the_deadline_before_each_page_that_it_checks"
        ),
        file="replica/tablet/page_crcs.py",
        function="PageChecks._check",
        before="""
            self._stop()
        """,
        after="",
    ),
    Mutant(
        name="batches of a look-up are measured for a caller that left",
        rows="IN-60",
        test=(
            "tests/unit/rpc/test_rpc_thread_costs.py::test_get_takes_no_more_steps_of_a_thread_than_is_stated"
            "[of-memory-now]"
        ),
        file="replica/tablet/look_up.py",
        function="LookUp._fitting",
        before="""
            stop()
            sizes[place.mine] = _bytes_of(place, columns)
        """,
        after="""
            sizes[place.mine] = _bytes_of(place, columns)
        """,
    ),
    Mutant(
        name="batches of a look-up are copied for a caller that left",
        rows="IN-60",
        test=(
            "tests/unit/rpc/test_rpc_thread_costs.py::test_get_takes_no_more_steps_of_a_thread_than_is_stated"
            "[of-memory-now]"
        ),
        file="replica/tablet/look_up.py",
        function="LookUp._fitting",
        before="""
            stop()
            return place.values(columns)
        """,
        after="""
            return place.values(columns)
        """,
    ),
    Mutant(
        name="fence itself is passed over",
        rows="RD-01",
        test=(
            "tests/unit/tablet/test_tablet_key_ranges.py::"
            "test_conditions_on_a_key_of_two_columns_find_what_a_filter_finds"
        ),
        file="replica/tablet/key_ranges.py",
        function="SortedKey._edge",
        before="end = rows[fence]",
        after="end = rows[fence] - 1",
    ),
    Mutant(
        name="run is visible by the times of another",
        rows="RD-01",
        test=(
            "tests/unit/tablet/test_tablet_key_ranges.py::"
            "test_conditions_on_a_key_of_two_columns_find_what_a_filter_finds"
        ),
        file="replica/tablet/scan.py",
        function="pieces",
        before="mask = None if visible is None else visible[start - first : end - first]",
        after="mask = None if visible is None else visible[: end - start]",
    ),
    Mutant(
        name="ends of other rows hide those of a run",
        rows="RD-01",
        test=(
            "tests/unit/tablet/test_tablet_key_ranges.py::"
            "test_conditions_on_a_key_of_two_columns_find_what_a_filter_finds"
        ),
        file="replica/tablet/block.py",
        function="Block.visible",
        before="mask[ended[(ended >= start) & (ended < end)] - start] = False",
        after="mask[ended[(ended > start) & (ended < end)] - start] = False",
    ),
    Mutant(
        name="block is not searched",
        rows="RD-01",
        test="tests/unit/tablet/test_tablet_key_ranges.py::test_scan_by_key_looks_at_few_rows",
        file="replica/tablet/scan.py",
        function="pieces",
        before="wanted = block.sorted_key(checks).runs(terms, stop) if terms[0] else [(0, block.rows)]",
        after="wanted = [(0, block.rows)]",
    ),
    Mutant(
        name="runs far apart are one",
        rows="RD-01",
        test="tests/unit/tablet/test_tablet_key_ranges.py::test_scan_by_key_looks_at_few_rows",
        file="replica/tablet/key_ranges.py",
        function="_joined",
        before="if low - end > JOINED_ROWS:",
        after="if low - end > 100 * JOINED_ROWS:",
    ),
    Mutant(
        name="scan reads unchecked pages",
        rows="TC-51",
        test="tests/unit/tablet/test_tablet_rot.py::test_scan_of_a_block_with_any_page_changed_is_right_or_corruption",
        file="replica/tablet/scan.py",
        function="_masked",
        before="if piece.checks is not None:",
        after="if piece.checks is not None and not piece.batch:",
    ),
    Mutant(
        name="witness of an earlier build is opened as a tablet",
        rows="CC-47",
        test="tests/formats/test_server_directory.py::test_server_starts_on_a_witness_of_version_1",
        file="replica/tablet/superblock.py",
        before='WITNESS_FEATURE = "witness"',
        after='WITNESS_FEATURE = "log-only"',
    ),
    Mutant(
        name="superblock any move",
        rows="TC-15, TC-16",
        test="tests/unit/tablet/test_tablet_superblock.py::test_superblock_data_state_moves_only_as_documented",
        file="replica/tablet/superblock.py",
        before="""
            (DataState.DELETED, DataState.DELETED),
        """,
        after="""
            (DataState.READY, DataState.COPYING),
            (DataState.DELETED, DataState.DELETED),
        """,
    ),
    Mutant(
        name="tablet whose id looks like a temporary file is forgotten",
        rows="TC-34",
        test=(
            "tests/unit/server/test_server_tablet_ids.py::"
            "test_tablet_of_any_id_that_is_allowed_is_there_after_a_restart"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.list_tablets",
        before="return disk.listdir(FOLDER)",
        after='return [n for n in disk.listdir(FOLDER) if ".tmp" not in n]',
    ),
    Mutant(
        name="id begins like a file on its way",
        rows="TC-34",
        test=("tests/unit/server/test_server_tablet_ids.py::test_name_of_a_file_on_its_way_is_no_id_and_no_tablet"),
        file="replica/types/names.py",
        before='_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")',
        after='_ID = re.compile(r"[A-Za-z0-9._-]+")',
    ),
    Mutant(
        name="superblock of a later build is damage",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_superblock.py::"
            "test_superblock_in_force_is_written_again_only_where_it_is_gone_or_hurt"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.load",
        before='raise LaterFormat("the superblock is of a later build", path=path, reason=str(e)) from e',
        after='raise Corruption("the superblock is of a later build", path=path, reason=str(e)) from e',
    ),
    Mutant(
        name="lost folder of superblocks is made anew",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_folder_that_is_lost_under_a_running_server_is_not_made_anew_with_one_file"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.repair",
        before="""
            if not disk.exists(FOLDER):
        """,
        after="""
            disk.mkdir(FOLDER)
            if not disk.exists(FOLDER):
        """,
    ),
    Mutant(
        name="lost superblock stays lost",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_small_file_that_is_lost_under_a_running_server_is_written_again"
        ),
        file="replica/tablet/superblock.py",
        function="_is_recorded",
        before="""
            if isinstance(error, Refused) and error.code is not Code.TABLET_NOT_FOUND:
                raise
        """,
        after="""
            raise
        """,
    ),
    Mutant(
        name="earlier record stays in place",
        rows="IN-21",
        test=(
            "tests/unit/tablet/test_tablet_superblock.py::"
            "test_superblock_in_force_replaces_one_that_differs_in_any_field"
        ),
        file="replica/tablet/superblock.py",
        function="_is_recorded",
        before="if replace(found, history_horizon=record.history_horizon).encode() == record.encode():",
        after="if found.tablet_id == record.tablet_id:",
    ),
    Mutant(
        name="earlier record judges a flush",
        rows="IN-21",
        test=(
            "tests/unit/tablet/test_tablet_superblock.py::"
            "test_superblock_in_force_replaces_one_that_differs_in_any_field"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.save",
        before="_is_recorded(disk, over)",
        after="previous = Superblock.load(disk, self.tablet_id)",
    ),
    Mutant(
        name="horizon in memory is written each minute",
        rows="IN-21",
        test=(
            "tests/unit/tablet/test_tablet_superblock.py::"
            "test_superblock_in_force_replaces_one_that_differs_in_any_field"
        ),
        file="replica/tablet/superblock.py",
        function="_is_recorded",
        before="replace(found, history_horizon=record.history_horizon)",
        after="found",
    ),
    Mutant(
        name="flushed entries are not the end",
        rows="CC-45",
        test=(
            "tests/unit/tools/test_forced_config.py::"
            "test_forced_config_stands_behind_what_is_flushed_and_gone_from_the_log"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.end_of",
        before="return max(logged, self.flush_opid)",
        after="return logged",
    ),
    Mutant(
        name="older build takes a witness for an empty tablet",
        rows="CC-47",
        test=(
            "tests/formats/test_server_directory.py::"
            "test_superblock_with_a_feature_is_read_and_written_for_ever_and_refused_where_it_is_unknown"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.to_avro",
        before="""
            *([WITNESS_FEATURE] if self.witness else []),
        """,
        after="",
    ),
    Mutant(
        name="restart makes a whole replica of a witness",
        rows="CC-47",
        test="tests/unit/server/test_server_witness.py::test_witness_keeps_term_vote_and_log_over_restarts",
        file="replica/tablet/superblock.py",
        function="Superblock.from_avro",
        before='witness=WITNESS_FEATURE in raw["incompatible_features"],',
        after="witness=False,",
    ),
    Mutant(
        name="sweep keeps orphans",
        rows="TC-64",
        test="tests/unit/tablet/test_tablet_superblock.py::test_orphans_sweep_removes_only_what_no_superblock_names",
        file="replica/tablet/superblock.py",
        function="sweep_orphans",
        before="for path in orphans:",
        after="for path in orphans[1:]:",
    ),
    Mutant(
        name="late scan finds nothing",
        rows="TC-39",
        test=(
            "tests/unit/tablet/test_tablet_rows.py::"
            "test_closed_tablet_leaves_the_files_alone_and_answers_nobody_with_less_than_its_rows"
        ),
        file="replica/tablet/contents.py",
        function="Contents.check_open",
        before="if self.closed:",
        after="if self.closed and not self.stores:",
    ),
    Mutant(
        name="refused entry tears the tablet",
        rows="IN-30",
        test="tests/unit/tablet/test_tablet_want.py::test_entry_that_is_refused_leaves_the_tablet_whole",
        file="replica/tablet/tablet.py",
        function="Tablet._changing",
        before="self._contents.partly_applied = self._contents.partly_applied or not answer",
        after="self._contents.partly_applied = True",
    ),
    Mutant(
        name="ledger takes no memory",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_row_errors_of_many_clients_are_bounded_and_end_with_any_later_entry"
        ),
        file="replica/tablet/tablet.py",
        function="Tablet.memory_bytes",
        before="return self.row_bytes + self._contents.ledger.memory_bytes",
        after="return self.row_bytes",
    ),
    Mutant(
        name="clients expire by writes of clients alone",
        rows="none",
        test=(
            "tests/unit/tablet/test_tablet_ledger.py::"
            "test_ledger_row_errors_of_many_clients_are_bounded_and_end_with_any_later_entry"
        ),
        file="replica/tablet/tablet.py",
        function="Tablet._advance",
        before="""
            self._contents.ledger.expire(time)
        """,
        after="",
    ),
    Mutant(
        name="want is an answer of apply",
        rows="IN-30",
        test=(
            "tests/unit/tablet/test_tablet_want.py::"
            "test_entry_that_meets_a_want_has_no_result_and_is_applied_by_the_next_object"
        ),
        file="replica/tablet/tablet.py",
        function="Tablet._apply_write",
        before="""
            except ResourcesExhausted:
                raise  # as above
        """,
        after="",
    ),
    Mutant(
        name="acknowledged row is dropped now and then",
        rows="CN-26",
        test=(
            "tests/process/test_chaos_soak.py::"
            "test_soak_of_mixed_trouble_ends_with_every_row_right_and_nothing_left_behind"
        ),
        file="replica/tablet/tablet.py",
        function="Tablet._apply_rows",
        before="""
            checked = self._check(schema, len(entry.payload), rows)
        """,
        after="""
            if entry.opid.index % 50 == 0 and len(rows.ops) > 1:
                rows = rows.take(np.arange(1, len(rows.ops)))
            checked = self._check(schema, len(entry.payload), rows)
        """,
    ),
    Mutant(
        name="column is read twice",
        rows="IN-61",
        test=(
            "tests/unit/server/test_server_hostile_requests.py::test_costly_scans_are_refused_and_reads_of_others_go_on"
        ),
        file="replica/tablet/tablet.py",
        function="Tablet.scan",
        before="if names is not None and len(set(names)) != len(names):",
        after="if len(set(names)) != len(names) and len(names) > 2:",
    ),
    Mutant(
        name="history horizon is not checked",
        rows="CN-24",
        test="tests/unit/tablet/test_tablet_rows.py::test_scan_below_the_history_horizon_is_refused_not_partial",
        file="replica/tablet/tablet.py",
        function="Tablet._check_history",
        before="if snapshot_time is not None and snapshot_time < self.history_horizon:",
        after="if snapshot_time is not None and snapshot_time < 0:",
    ),
    Mutant(
        name="history in hybrid times",
        rows="IN-71",
        test="tests/unit/tablet/test_tablet_rows.py::test_refusal_of_a_read_below_the_history_speaks_of_days_and_times",
        file="replica/tablet/tablet.py",
        function="Tablet._check_history",
        before="utc_text(snapshot_time)",
        after="snapshot_time",
    ),
    Mutant(
        name="log gc follows what is counted",
        rows="CC-55",
        test="tests/unit/server/test_server_witness.py::test_witness_keeps_its_log_while_its_data_is_slow",
        file="replica/tablet/witness.py",
        function="Witness.flush_opid",
        before="return self._base",
        after="return self._applied",
    ),
    Mutant(
        name="superblock makes its folder",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_folder_that_is_lost_under_a_running_server_is_not_made_anew_with_one_file"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.save",
        before="""
            disk.replace(self.path, self.encode())
        """,
        after="""
            disk.mkdir(FOLDER)
            disk.replace(self.path, self.encode())
        """,
    ),
    Mutant(
        name="rows that end twice end the server",
        rows="TC-51",
        test="tests/unit/tablet/test_tablet_sweep.py::test_superblock_that_names_a_sidecar_twice_is_corruption",
        file="replica/tablet/tablet.py",
        function="_end_rows",
        before="except (InvariantViolation, IndexError) as error:",
        after="except IndexError as error:",
    ),
    Mutant(
        name="ledger with wrong content ends the server",
        rows="IN-21",
        test="tests/unit/tablet/test_ledger_rules.py::test_ledger_that_holds_what_none_can_is_corruption",
        file="replica/tablet/ledger.py",
        function="Ledger.from_avro",
        before="except ValueError as error:",
        after="except KeyError as error:",
    ),
    Mutant(
        name="memory does not settle a deleted key",
        rows="RD-02",
        test="tests/unit/tablet/test_tablet_look_up.py::test_rows_by_key_are_those_of_the_twin[1-number]",
        file="replica/tablet/look_up.py",
        function="LookUp.__init__",
        before="self._left[rows[known]] = False",
        after="self._left[rows[known & (store.superseded[newest] > at)]] = False",
    ),
    Mutant(
        name="frozen rows are not looked up",
        rows="RD-02",
        test="tests/unit/tablet/test_tablet_look_up.py::test_rows_that_a_flush_has_in_hand_are_found_by_key",
        file="replica/tablet/look_up.py",
        function="LookUp.__init__",
        before="for store in (stores.active, stores.frozen):",
        after="for store in (stores.active,):",
    ),
    Mutant(
        name="rows of one place come in its own order",
        rows="RD-02",
        test="tests/unit/tablet/test_tablet_look_up.py::test_rows_by_key_are_those_of_the_twin[0-number]",
        file="replica/tablet/look_up.py",
        function="_until",
        before="order = np.argsort(place.mine)",
        after="order = np.arange(len(place.mine))",
    ),
    Mutant(
        name="keys of one hash are one key in memory",
        rows="RD-02",
        test="tests/unit/tablet/test_tablet_look_up.py::test_rows_by_key_are_those_of_the_twin[0-one-hash]",
        file="replica/tablet/memstore.py",
        function="MemStore._locate_collided",
        before="h[wrong] = _secret_hash([take(k, wrong) for k in keys])",
        after="return located",
    ),
    Mutant(
        name="version that ended is found by key",
        rows="RD-02",
        test="tests/unit/tablet/test_tablet_look_up.py::test_row_by_key_is_that_of_the_moment_whatever_comes_after",
        file="replica/tablet/block.py",
        function="Block.visible_at",
        before="mask[ended[np.isin(positions[ended], rows[times <= at])]] = False",
        after="pass",
    ),
    *(
        Mutant(
            name=name,
            rows="RD-02",
            test=(
                "tests/unit/tablet/test_tablet_look_up.py::"
                f"test_rows_by_key_of_an_earlier_time_are_those_of_the_twin[{case}]"
            ),
            file=f"replica/tablet/{file}.py",
            function=function,
            before=before,
            after=after,
        )
        for name, case, file, function, before, after in (
            (
                "read by key takes a version that ended later for one that had ended",
                "0-number",
                "block",
                "Block.visible_at",
                "rows[times <= at]",
                "rows",
            ),
            (
                "read by key takes a version of a block that began later",
                "0-number",
                "block",
                "Block.visible_at",
                "mask = self.ts[positions] <= at",
                "pass",
            ),
            (
                "read by key takes a version in memory that began later",
                "0-number",
                "look_up",
                "LookUp.__init__",
                "visible_mask(store.ts[newest], store.superseded[newest], at)",
                "(store.superseded[newest] > at)",
            ),
            (
                "read by key misses what memory has replaced since",
                "0-number",
                "look_up",
                "LookUp.__init__",
                "self._replaced[rows[known]] = store.ts[newest[known]] > at",
                "pass",
            ),
            (
                "read by key misses what a flush has buried since",
                "0-number",
                "look_up",
                "LookUp.rows",
                "if self._flushed_since:",
                "if False:",
            ),
            (
                "read by key finds an older row for one of two equal keys",
                "0-number",
                "look_up",
                "LookUp._from_history",
                """count = np.searchsorted(ascending, found, side="right") - first""",
                "count = np.ones_like(first)",
            ),
            (
                "read by key takes an older row of another key of one hash",
                "0-one-hash",
                "columns",
                "KeyNumbers.find",
                "same = known[numbers] == wanted",
                "same = known[numbers] == known[numbers]",
            ),
            (
                "read by key of gone history",
                "0-number",
                "tablet",
                "Tablet.get",
                "self._check_history(snapshot_time)",
                "pass",
            ),
        )
    ),
    Mutant(
        name="answer by key has no bound",
        rows="RD-02",
        test="tests/unit/tablet/test_tablet_look_up.py::test_rows_beyond_the_bound_are_for_the_next_read",
        file="replica/tablet/look_up.py",
        function="LookUp._fitting",
        before="answered = max(1, int(beyond[0])) if len(beyond) else self._keys.rows",
        after="answered = self._keys.rows",
    ),
    Mutant(
        name="giant row is never answered",
        rows="RD-02",
        test="tests/unit/tablet/test_tablet_look_up.py::test_rows_beyond_the_bound_are_for_the_next_read",
        file="replica/tablet/look_up.py",
        function="LookUp._fitting",
        before="max(1, int(beyond[0]))",
        after="int(beyond[0])",
    ),
    Mutant(
        name="filter of a sidecar is not checked",
        rows="TC-51",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[number]"
        ),
        file="replica/tablet/block.py",
        function="Block.find",
        before="of_sidecar.check_rows((bloom,), words)",
        after="pass",
    ),
    Mutant(
        name="hashes of a sidecar are not checked",
        rows="TC-51",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[number]"
        ),
        file="replica/tablet/block.py",
        function="Block._searched",
        before="checks.check_rows((hashes,), np.concatenate([low, np.minimum(high, len(hashes) - 1)]))",
        after="pass",
    ),
    Mutant(
        name="search led astray finds nothing",
        rows="TC-51",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[number]"
        ),
        file="replica/tablet/block.py",
        function="Block._searched",
        before="if bool(((at < low) | (at > high)).any()):",
        after="if len(at) < 0:",
    ),
    Mutant(
        name="positions of a sidecar are not checked",
        rows="TC-51",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[number]"
        ),
        file="replica/tablet/block.py",
        function="Block._with_keys",
        before="checks[1].check_rows((sidecar.positions,), at)",
        after="pass",
    ),
    Mutant(
        name="values by key are not checked",
        rows="TC-51",
        test=(
            "tests/unit/tablet/test_tablet_look_up.py::test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key[number]"
        ),
        file="replica/tablet/look_up.py",
        function="LookUp.rows",
        before="_check(place, columns, checks)",
        after="pass",
    ),
    Mutant(
        name="keys may be any number",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_look_up.py::test_keys_that_are_none_are_refused",
        file="replica/tablet/tablet.py",
        function="Tablet.keys",
        before="if batch.num_rows > limits.GET_KEYS_MAX:",
        after="if batch.num_rows < 0:",
    ),
    Mutant(
        name="key may have nulls",
        rows="IN-60",
        test="tests/unit/tablet/test_tablet_look_up.py::test_keys_that_are_none_are_refused",
        file="replica/tablet/tablet.py",
        function="Tablet.keys",
        before="if any(column.null_count for column in batch.columns):",
        after="if not batch.columns:",
    ),
    Mutant(
        name="block of other columns is opened",
        rows="IN-21",
        test=(
            "tests/unit/tablet/test_tablet_rot.py"
            "::test_block_without_the_columns_of_its_superblocks_schema_is_corrupt[type]"
        ),
        file="replica/tablet/block.py",
        function="Block.__init__",
        before="if own.get(c.name) != c.arrow_type]",
        after="if c.name not in own]",
    ),
    Mutant(
        name="block is described by any values",
        rows="IN-21",
        test=(
            "tests/unit/tablet/test_tablet_superblock.py"
            "::test_superblock_with_a_block_described_by_other_values_is_corrupt"
        ),
        file="replica/tablet/superblock.py",
        function="BlockInfo.from_avro",
        before="if kinds != [str, str, int, int]:",
        after="if len(kinds) != 4:",
    ),
)
