"""Mutants: copies that arrive, and deletion."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="progress is not counted",
        rows="TC-10",
        test="tests/unit/tablet_copy/test_copy_promises.py::test_copy_progress_tells_phase_and_bytes",
        file="replica/tablet_copy/attempt.py",
        function="CopyProgress.add",
        before="self.bytes_done += length_bytes",
        after="self.bytes_done = length_bytes",
    ),
    Mutant(
        name="copy begins two sessions",
        rows="TC-27",
        test="tests/unit/server/test_server_one_copy.py::test_fifty_requests_at_once_leave_what_one_leaves",
        file="replica/tablet_copy/attempt.py",
        function="CopyAttempt.session",
        before="""
            manifest = self.source.begin(self.tablet_id, self.uuid, allow_leaderless, wanted)
        """,
        after="""
            self.source.begin(self.tablet_id, self.uuid, allow_leaderless, wanted)
            manifest = self.source.begin(self.tablet_id, self.uuid, allow_leaderless, wanted)
        """,
    ),
    Mutant(
        name="copy has no log",
        rows="MF-13, MF-14",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_lost_master_is_replaced_by_a_copy_while_nobody_else_is_restarted"
        ),
        file="replica/tablet_copy/attempt.py",
        function="CopyAttempt.fetch_log",
        before="segments = [f for f in manifest.files if f.kind is FileKind.WAL_SEGMENT]",
        after="segments: list[CopyFile] = []",
    ),
    Mutant(
        name="ready copy keeps the last opid",
        rows="TC-50",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_ends_ready_and_equal_to_its_source",
        file="replica/tablet_copy/attempt.py",
        function="CopyAttempt.fetch_blocks",
        before="last_logged=None,",
        after="last_logged=local.last_logged,",
    ),
    Mutant(
        name="rows before the log are left out",
        rows="TC-01",
        test=(
            "tests/unit/server/test_server_vivify.py::test_blank_server_gets_all_rows_though_the_first_segment_is_gone"
        ),
        file="replica/tablet_copy/attempt.py",
        function="CopyAttempt.fetch_blocks",
        before="blocks=renamed.blocks,",
        after="blocks=(),",
    ),
    Mutant(
        name="failed copy leaves its blocks",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_copy_whose_bytes_do_not_arrive_ends_as_a_tombstone_and_is_retried"
        ),
        file="replica/tablet_copy/attempt.py",
        function="CopyAttempt.remove_blocks",
        before="self.disk.remove(path)",
        after="self.disk.exists(path)",
    ),
    Mutant(
        name="block that stays keeps the tombstone away",
        rows="TC-12",
        test=(
            "tests/unit/tablet_copy/test_copy_target.py::test_copy_whose_blocks_cannot_be_removed_ends_deleted_all_the_same"
        ),
        file="replica/tablet_copy/attempt.py",
        function="CopyAttempt.remove_blocks",
        before="""
            about(_log, self.tablet_id, self.uuid).warning("a copied block stays for now: %s", error)
        """,
        after="""
            raise
            about(_log, self.tablet_id, self.uuid).warning("a copied block stays for now: %s", error)
        """,
    ),
    Mutant(
        name="log stands elsewhere",
        rows="TC-33",
        test="tests/unit/server/test_server_files.py::test_created_tablet_has_its_files_where_they_are_documented",
        file="replica/tablet_copy/deletion.py",
        function="wal_folder",
        before='return f"wals/{tablet_id}"',
        after='return f"wals/log-{tablet_id}"',
    ),
    Mutant(
        name="quarantined superblock is not synced",
        rows="TC-44",
        test="tests/unit/tablet_copy/test_copy_promises.py::test_quarantine_is_durable_before_the_deletion_commits",
        file="replica/tablet_copy/deletion.py",
        function="delete_replica",
        before="""
            disk.replace(f"{quarantine}/superblock", superblock.encode())
        """,
        after="""
            kept = disk.open(f"{quarantine}/superblock", create=True)
            kept.pwrite(superblock.encode(), 0)
            kept.close()
        """,
    ),
    Mutant(
        name="deletion commits a step early",
        rows="TC-39",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_cut_off_at_any_step_goes_one_way",
        file="replica/tablet_copy/deletion.py",
        function="delete_replica",
        before="""
            disk.crash_point("delete.3")
            tombstone = as_tombstone(superblock, last_opid, quarantine, known=known)
            tombstone.save(disk, over=superblock)
        """,
        after="""
            tombstone = as_tombstone(superblock, last_opid, quarantine, known=known)
            tombstone.save(disk, over=superblock)
            disk.crash_point("delete.3")
        """,
    ),
    Mutant(
        name="refused deletion keeps naming live blocks",
        rows="TC-46",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_that_did_not_happen_puts_nothing_aside",
        file="replica/tablet_copy/deletion.py",
        function="delete_replica",
        before="disk.remove_tree(quarantine)  # it",
        after="# it",
    ),
    Mutant(
        name="deletion forgets the last opid",
        rows="TC-36",
        test="tests/unit/tablet_copy/test_copy_promises.py::test_deletion_keeps_term_vote_and_last_opid_over_restarts",
        file="replica/tablet_copy/deletion.py",
        function="as_tombstone",
        before="last_logged=last_opid,",
        after="last_logged=ZERO_OPID,",
    ),
    Mutant(
        name="tombstone keeps the flush index only",
        rows="TC-40",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_cut_off_at_any_step_goes_one_way",
        file="replica/tablet_copy/deletion.py",
        function="as_tombstone",
        before="last_logged=last_opid,",
        after="last_logged=superblock.flush_opid,",
    ),
    Mutant(
        name="tombstone without its quarantine",
        rows="TC-37",
        test=(
            "tests/unit/tablet_copy/test_copy_promises.py::"
            "test_superblock_of_a_tombstone_names_its_state_last_opid_and_quarantine"
        ),
        file="replica/tablet_copy/deletion.py",
        function="as_tombstone",
        before="quarantine=quarantine,",
        after='quarantine="",',
    ),
    Mutant(
        name="metadata is moved not copied",
        rows="TC-41",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_cut_off_at_any_step_goes_one_way",
        file="replica/tablet_copy/deletion.py",
        function="redo_deletion",
        before='disk.replace(f"{quarantine}/cmeta", disk.read(path_of(tablet_id)))',
        after='disk.rename(path_of(tablet_id), f"{quarantine}/cmeta")',
    ),
    Mutant(
        name="log is copied not moved",
        rows="TC-42",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_cut_off_at_any_step_goes_one_way",
        file="replica/tablet_copy/deletion.py",
        function="redo_deletion",
        before="""
            disk.rename(wal_folder(tablet_id), f"{quarantine}/wal")
        """,
        after="""
            disk.mkdir(f"{quarantine}/wal")
            for name in disk.listdir(wal_folder(tablet_id)):
                disk.replace(f"{quarantine}/wal/{name}", disk.read(f"{wal_folder(tablet_id)}/{name}"))
        """,
    ),
    Mutant(
        name="log is destroyed",
        rows="TC-38",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_quarantine_rebuilds_every_row_offline",
        file="replica/tablet_copy/deletion.py",
        function="redo_deletion",
        before="""
            disk.rename(wal_folder(tablet_id), f"{quarantine}/wal")
        """,
        after="""
            disk.remove_tree(wal_folder(tablet_id))
            disk.mkdir(f"{quarantine}/wal")
        """,
    ),
    Mutant(
        name="unknown acknowledgements are forgotten",
        rows="CC-47",
        test=(
            "tests/unit/tablet_copy/test_copy_witness.py::"
            "test_witness_of_who_cannot_tell_its_acknowledgements_gets_the_log_too"
        ),
        file="replica/tablet_copy/target.py",
        function="TargetCopy.__init__",
        before="self._want(own_last_opid if own_last_known else MAX_OPID)",
        after="self._want(own_last_opid)",
    ),
    Mutant(
        name="failed copy stays copying",
        rows="TC-12",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_cancelled_at_any_moment_ends_as_before_or_deleted",
        file="replica/tablet_copy/target.py",
        function="TargetCopy.run",
        before="""
            self._back_to_deleted(error)
        """,
        after="",
    ),
    *(
        Mutant(
            name=name,
            rows="IN-21",
            test=(
                "tests/unit/tablet_copy/test_copy_target.py::"
                "test_copy_whose_superblock_is_damaged_meanwhile_ends_as_any_other"
            ),
            file="replica/tablet_copy/target.py",
            function=function,
            before=before,
            after=after,
        )
        for name, function, before, after in (
            (
                "damaged record fails a whole copy",
                "TargetCopy._copy",
                "ready.save(disk, over=copying)",
                "ready.save(disk)",
            ),
            (
                "record of a failed copy stays damaged",
                "TargetCopy._back_to_deleted",
                "end_unfinished_copy(self._disk, self.in_force)",
                "end_unfinished_copy(self._disk, Superblock.load(self._disk, self._tablet_id))",
            ),
        )
    ),
    Mutant(
        name="copy forgets the last opid",
        rows="TC-47",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_cut_off_at_any_step",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._mark_copying",
        before="last_logged=(local.last_logged if local else None) or ZERO_OPID,",
        after="last_logged=ZERO_OPID,",
    ),
    Mutant(
        name="failed copy takes a bound for the end",
        rows="TC-36, TC-61",
        test="tests/unit/tablet_copy/test_copy_promises.py::test_copy_that_fails_leaves_a_tombstone_as_ignorant_as_it_was",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._mark_copying",
        before="last_logged_known=local is None or local.last_logged_known,",
        after="last_logged_known=True,",
    ),
    Mutant(
        name="copy begins without its mark",
        rows="TC-30",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_cut_off_at_any_step",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._mark_copying",
        before="""
            copying.save(disk, over=local)
        """,
        after="",
    ),
    Mutant(
        name="metadata comes after the log",
        rows="TC-48",
        test="tests/unit/tablet_copy/test_copy_promises.py::test_death_right_after_the_merge_finds_the_merged_promises",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._copy",
        before="""
            if self._merge is not None:
                self._merge(manifest.cmeta)
            else:
                ConsensusMeta.adopt(disk, self._tablet_id, self._uuid, manifest.cmeta, lost=took_part)
            disk.crash_point("copy.2")
        """,
        after="""
            disk.crash_point("copy.2")
            if self._merge is not None:
                self._merge(manifest.cmeta)
            else:
                ConsensusMeta.adopt(disk, self._tablet_id, self._uuid, manifest.cmeta, lost=took_part)
        """,
    ),
    Mutant(
        name="ready before the log",
        rows="TC-49",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_cut_off_within_a_file_is_never_ready",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._copy",
        before="""
            self._attempt.fetch_log(manifest)
        """,
        after="""
            replace(remote, last_logged=None, blocks=(), next_block=copying.next_block).save(disk)
            self._attempt.fetch_log(manifest)
        """,
    ),
    Mutant(
        name="ready before the blocks",
        rows="TC-49",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_cut_off_within_a_file_is_never_ready",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._copy",
        before="""
            ready = self._attempt.fetch_blocks(manifest, remote, copying)
        """,
        after="""
            replace(remote, last_logged=None, blocks=(), next_block=copying.next_block).save(disk)
            ready = self._attempt.fetch_blocks(manifest, remote, copying)
        """,
    ),
    Mutant(
        name="blocks of a failed copy leave no room for its tombstone",
        rows="TC-12",
        test=(
            "tests/unit/tablet_copy/test_copy_target.py::"
            "test_copy_that_fills_the_disk_with_blocks_makes_room_for_its_own_tombstone"
        ),
        file="replica/tablet_copy/target.py",
        function="TargetCopy._back_to_deleted",
        before="""
            self._attempt.remove_blocks()
            self.in_force = end_unfinished_copy(self._disk, self.in_force)
        """,
        after="""
            self.in_force = end_unfinished_copy(self._disk, self.in_force)
            self._attempt.remove_blocks()
        """,
    ),
    Mutant(
        name="what was fetched stays",
        rows="CC-09",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_whose_source_dies_starts_again_from_the_beginning",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._back_to_deleted",
        before="""
            self._attempt.remove_blocks()
        """,
        after="",
    ),
    Mutant(
        name="rewrite before the blocks",
        rows="CC-53",
        test="tests/unit/tablet_copy/test_copy_witness.py::test_join_cut_off_at_any_step_leaves_a_witness_or_a_whole_replica",
        file="replica/tablet_copy/joining.py",
        function="WitnessJoin._join",
        before="""
            disk.crash_point("join.2")
        """,
        after="""
            whole.save(disk)
            disk.crash_point("join.2")
        """,
    ),
    Mutant(
        name="rewrite does not wait for the log",
        rows="CC-55",
        test="tests/unit/tablet_copy/test_copy_witness.py::test_join_waits_for_blocks_that_reach_the_witness_log",
        file="replica/tablet_copy/joining.py",
        function="WitnessJoin._join",
        before="""
            self.await_log(whole.flush_opid)
        """,
        after="",
    ),
    Mutant(
        name="gap between blocks and log",
        rows="CC-55",
        test="tests/unit/tablet_copy/test_copy_witness.py::test_join_waits_for_blocks_that_reach_the_witness_log",
        file="replica/tablet_copy/joining.py",
        function="WitnessJoin._accept",
        before="if remote.flush_opid < base:",
        after="if remote.flush_opid.term < base.term:",
    ),
    Mutant(
        name="vanished quarantine ends the look",
        rows="TC-45",
        test="tests/unit/tablet_copy/test_copy_quarantine.py::test_quarantine_that_goes_away_meanwhile_is_left_out",
        file="replica/tablet_copy/quarantine.py",
        function="_size",
        before="return 0",
        after="raise",
    ),
    Mutant(
        name="end kept over a copy is not trusted",
        rows="TC-78",
        test=(
            "tests/unit/server/test_server_votes_of_the_absent.py::"
            "test_voter_that_died_in_its_copy_still_votes_by_what_it_kept"
        ),
        file="replica/tablet_copy/quarantine.py",
        function="end_unfinished_copy",
        before="delete_replica(disk, copying, last, stop=lambda: None)",
        after="delete_replica(disk, copying, last, stop=lambda: None, known=False)",
    ),
    Mutant(
        name="start forgets the kept last opid",
        rows="TC-61",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_of_an_unfinished_copy_refuses_another_last_opid",
        file="replica/tablet_copy/quarantine.py",
        function="end_unfinished_copy",
        before="copying.last_logged or ZERO_OPID",
        after="ZERO_OPID",
    ),
    Mutant(
        name="log of a failed copy leaves no room for its tombstone",
        rows="TC-12",
        test=(
            "tests/unit/tablet_copy/test_copy_target.py::"
            "test_copy_that_fills_the_disk_with_its_log_makes_room_for_its_own_tombstone"
        ),
        file="replica/tablet_copy/quarantine.py",
        function="end_unfinished_copy",
        before="if error.code is not Code.NO_SPACE or not disk.exists(wal_folder(tablet_id)):",
        after="if error.code is not None:",
    ),
    Mutant(
        name="deleted replica leaves quarantine with a failed copy",
        rows="TC-64, TC-38",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copies_that_never_end_take_the_room_of_one",
        file="replica/tablet_copy/quarantine.py",
        function="_drop_unfinished_copies",
        before="if kept is not None and kept.data_state is DataState.COPYING:",
        after="if kept is not None:",
    ),
    Mutant(
        name="every unfinished copy stays in quarantine",
        rows="TC-64",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copies_that_never_end_take_the_room_of_one",
        file="replica/tablet_copy/quarantine.py",
        function="_drop_unfinished_copies",
        before="if kept is not None and kept.data_state is DataState.COPYING:",
        after="if kept is not None and kept.data_state is DataState.DOES_NOT_EXIST:",
    ),
    Mutant(
        name="start drops an earlier deletion",
        rows="TC-46",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_that_did_not_happen_puts_nothing_aside",
        file="replica/tablet_copy/quarantine.py",
        function="drop_undone_deletions",
        before="(kept.data_state, kept.wal_generation) == (DataState.READY, ready.wal_generation)",
        after="kept.data_state is DataState.READY",
    ),
    Mutant(
        name="purge takes live blocks",
        rows="TC-45",
        test="tests/unit/tablet_copy/test_copy_quarantine.py::test_purge_tells_only_the_room_that_it_gave",
        file="replica/tablet_copy/quarantine.py",
        function="_to_purge",
        before="names -= block_names(own)",
        after="pass",
        more=(
            Edit(
                file="replica/tablet_copy/quarantine.py",
                function="_to_purge",
                before="names -= block_names(Superblock.load(disk, other))",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="purge forgets what a superblock that went away meanwhile needs",
        rows="TC-46",
        test=(
            "tests/unit/tablet_copy/test_copy_quarantine.py::"
            "test_purge_removes_nothing_that_a_superblock_which_goes_away_meanwhile_needs"
        ),
        file="replica/tablet_copy/quarantine.py",
        function="_to_purge",
        before="names -= block_names(own)",
        after="pass",
    ),
    Mutant(
        name="purge takes the blocks of a superblock that went away for those of a lost one",
        rows="TC-46",
        test=(
            "tests/unit/tablet_copy/test_copy_quarantine.py::"
            "test_purge_removes_nothing_that_a_superblock_which_goes_away_meanwhile_needs"
        ),
        file="replica/tablet_copy/quarantine.py",
        function="_to_purge",
        before="_spared(disk, own)",
        after="spared_blocks(disk, block_numbers(tablet_id, disk.listdir('data')))",
        more=(
            Edit(
                file="replica/tablet_copy/quarantine.py",
                before="from .blocks import DATA, block_numbers,",
                after="from .blocks import DATA, spared_blocks, block_numbers,",
            ),
            Edit(
                file="replica/tablet_copy/quarantine.py",
                function="_to_purge",
                before="names -= block_names(own)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="purge counts what it removed as left",
        rows="TC-45",
        test="tests/unit/tablet_copy/test_copy_quarantine.py::test_purge_says_how_much_is_left_to_the_next_one",
        file="replica/tablet_copy/quarantine.py",
        function="purge_quarantine",
        before="freed, remaining = 0, len(blocks) + len(folders)",
        after="freed, remaining = 0, 2 * len(blocks) + len(folders)",
    ),
    Mutant(
        name="purge says that nothing is left",
        rows="TC-45",
        test="tests/unit/tablet_copy/test_copy_quarantine.py::test_purge_says_how_much_is_left_to_the_next_one",
        file="replica/tablet_copy/quarantine.py",
        function="purge_quarantine",
        before="return Purged(sorted(removed), freed, remaining)",
        after="return Purged(sorted(removed), freed)",
    ),
    Mutant(
        name="command does not say that more remains",
        rows="IN-71",
        test="tests/unit/infra/test_quarantine_commands.py::test_purge_tells_what_remains_and_to_repeat_it",
        file="infra/cli/quarantine.py",
        function="purge",
        before="if reply.remaining:",
        after="if False:",
    ),
    Mutant(
        name="program is not told what remains",
        rows="IN-71",
        test="tests/unit/infra/test_quarantine_commands.py::test_purge_tells_what_remains_and_to_repeat_it",
        file="infra/cli/quarantine.py",
        function="purge",
        before='"remaining": reply.remaining',
        after='"remaining": 0',
    ),
    Mutant(
        name="server does not say what remains",
        rows="TC-45",
        test="tests/unit/server/test_server_callers.py::test_purge_of_more_than_one_purge_removes_says_what_remains",
        file="replica/server/requests/quarantine.py",
        function="quarantine_purge",
        before="remaining=remaining",
        after="remaining=0",
    ),
    Mutant(
        name="purge without a superblock is told no remedy",
        rows="TC-45",
        test="tests/unit/tablet_copy/test_copy_quarantine.py::test_purge_without_a_superblock_is_refused_with_what_to_do",
        file="replica/tablet_copy/quarantine.py",
        function="_to_purge",
        before="raise no_superblock(tablet_id) from error",
        after="raise",
    ),
    Mutant(
        name="superblock that goes away as it is read is no answer",
        rows="TC-46",
        test=(
            "tests/unit/tablet_copy/test_copy_quarantine.py::"
            "test_purge_removes_nothing_that_a_superblock_which_goes_away_meanwhile_needs"
        ),
        file="replica/tablet/superblock.py",
        function="Superblock.load",
        before="except FileNotFoundError as e:",
        after="except ZeroDivisionError as e:",
    ),
    Mutant(
        name="purge of a tablet that the server does not know tells no remedy",
        rows="TC-45",
        test="tests/unit/server/test_server_callers.py::test_purge_of_a_tablet_without_a_superblock_is_an_answer",
        file="replica/server/requests/quarantine.py",
        function="quarantine_purge",
        before="""
        if hosted is None:
            raise no_superblock(tablet_id)
        """,
        after="""
        hosted = manager.get(tablet_id)
        """,
    ),
    Mutant(
        name="purge tells live blocks as freed",
        rows="TC-45",
        test="tests/unit/tablet_copy/test_copy_quarantine.py::test_purge_tells_only_the_room_that_it_gave",
        file="replica/tablet_copy/quarantine.py",
        function="purge_quarantine",
        before="size = _wal_size(disk, path)",
        after="size = _wal_size(disk, path) + _look_at(disk, path, tablet_id).block_bytes",
    ),
    Mutant(
        name="restart forgets a tombstones vote",
        rows="TC-13",
        test="tests/unit/tablet_copy/test_copy_promises.py::test_deletion_keeps_term_vote_and_last_opid_over_restarts",
        file="replica/tablet_copy/startup.py",
        function="settle_at_startup",
        before="""
            return redo_deletion(disk, superblock)
        """,
        after="""
            disk.remove(f"consensus-meta/{superblock.tablet_id}")
            return redo_deletion(disk, superblock)
        """,
    ),
    Mutant(
        name="start writes a finished tombstone again",
        rows="TC-59",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_tombstone_deleted_again_keeps_its_last_opid",
        file="replica/tablet_copy/startup.py",
        function="settle_at_startup",
        before="""
            return redo_deletion(disk, superblock)
        """,
        after="""
            superblock.save(disk)
            return redo_deletion(disk, superblock)
        """,
    ),
    Mutant(
        name="start leaves a deletion half done",
        rows="TC-59, TC-41, TC-42",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_cut_off_at_any_step_goes_one_way",
        file="replica/tablet_copy/startup.py",
        function="settle_at_startup",
        before="return redo_deletion(disk, superblock)",
        after="return superblock",
    ),
    Mutant(
        name="half made witness is kept",
        rows="CC-47",
        test="tests/unit/tablet_copy/test_copy_witness.py::test_making_of_a_witness_cut_off_at_any_step",
        file="replica/tablet_copy/startup.py",
        function="settle_at_startup",
        before="if superblock.data_state is DataState.COPYING:",
        after="if superblock.data_state is DataState.COPYING and not superblock.witness:",
    ),
    Mutant(
        name="unfinished copy stays copying",
        rows="TC-60",
        test="tests/unit/tablet_copy/test_copy_target.py::test_copy_cut_off_at_any_step",
        file="replica/tablet_copy/startup.py",
        function="settle_at_startup",
        before="if superblock.data_state is DataState.COPYING:",
        after="if superblock.data_state is DataState.DOES_NOT_EXIST:",
    ),
    Mutant(
        name="deletion cut off keeps naming live blocks",
        rows="TC-46",
        test="tests/unit/tablet_copy/test_copy_deletion.py::test_deletion_that_did_not_happen_puts_nothing_aside",
        file="replica/tablet_copy/startup.py",
        function="settle_at_startup",
        before="""
            drop_undone_deletions(disk, superblock)
        """,
        after="",
    ),
    Mutant(
        name="copied log has any time",
        rows="IN-50",
        test="tests/unit/tablet_copy/test_copy_times.py::test_copy_whose_times_are_too_far_ahead_installs_nothing",
        file="replica/tablet_copy/attempt.py",
        function="CopyAttempt.fetch_log",
        before="""
            self.check_time("log", latest)
        """,
        after="",
    ),
    Mutant(
        name="copied rows have any time",
        rows="IN-50",
        test="tests/unit/tablet_copy/test_copy_times.py::test_copy_whose_times_are_too_far_ahead_installs_nothing",
        file="replica/tablet_copy/target.py",
        function="TargetCopy._accept",
        before="""
            self._attempt.check_time("rows", remote.flush_time)
        """,
        after="",
    ),
    Mutant(
        name="joined rows have any time",
        rows="IN-50",
        test=(
            "tests/unit/tablet_copy/test_copy_times.py::test_rows_whose_times_are_too_far_ahead_do_not_join_a_witness"
        ),
        file="replica/tablet_copy/joining.py",
        function="WitnessJoin._accept",
        before="""
            self.attempt.check_time("rows", remote.flush_time)
        """,
        after="",
    ),
    Mutant(
        name="time at the bound is too far",
        rows="IN-50",
        test="tests/unit/tablet_copy/test_copy_times.py::test_copy_whose_times_are_too_far_ahead_installs_nothing",
        file="replica/tablet_copy/checks.py",
        function="time_refusal",
        before="if ahead_us <= limits.CLOCK_AHEAD_OF_PEERS_US_MAX:",
        after="if ahead_us < limits.CLOCK_AHEAD_OF_PEERS_US_MAX:",
    ),
    Mutant(
        name="copied log need not open",
        rows="TC-51",
        test="tests/unit/tablet_copy/test_copy_times.py::test_copied_log_that_does_not_open_is_refused[block]",
        file="replica/wal/offline.py",
        function="latest_time",
        before="if broken is not None:",
        after="if False:",
    ),
    Mutant(
        name="latest time is that of the last entry",
        rows="IN-50",
        test="tests/unit/wal/test_wal_offline.py::test_latest_time_is_that_of_all_entries_that_were_written",
        file="replica/wal/recovery.py",
        function="_walk.visit",
        before="out.latest_time = max(out.latest_time, entry.hybrid_time)",
        after="out.latest_time = entry.hybrid_time",
    ),
)
