"""Mutants: the manager, its clocks and its maintenance."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="stopped replica forgets why it failed",
        rows="TC-63",
        test="tests/unit/server/test_server_open.py::test_failed_replica_says_why_while_it_is_being_deleted",
        file="replica/server/tablets/replica_shutdown.py",
        function="ReplicaShutdown.halt",
        before="hosted.error = replica.error or hosted.error",
        after="pass",
    ),
    Mutant(
        name="refused flush keeps merges waiting",
        rows="IN-32",
        test="tests/unit/server/test_server_flush_rule.py::test_refused_flush_does_not_keep_a_merge_waiting",
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance.once",
        before="if hosted is not None and await self.flush(hosted):",
        after="if hosted is not None and (await self.flush(hosted) or True):",
    ),
    *(
        Mutant(
            name=name,
            rows="IN-62",
            test=f"tests/unit/server/test_server_left_callers.py::{test}",
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, test, file, function, before, after in (
            (
                "creation ends with its caller",
                "test_work_on_a_tablet_goes_on_when_its_caller_leaves_and_a_repetition_waits[create-None-10-True]",
                "replica/server/tablets/manager.py",
                "TabletManager.create",
                "await self._later.finish(self._create(superblock, config, campaign=campaign))",
                "await self._create(superblock, config, campaign=campaign)",
            ),
            (
                "deletion ends with its caller",
                "test_deletion_whose_caller_leaves_at_any_step_ends_by_itself",
                "replica/server/tablets/manager.py",
                "TabletManager.delete",
                "await self._later.finish(work)",
                "await work",
            ),
            (
                "error without a caller is lost",
                "test_error_of_work_whose_caller_left_is_told_unless_it_is_an_answer[error1-True]",
                "replica/server/runtime/tasks.py",
                "Tasks.finish",
                "task.add_done_callback(self._left)",
                "pass",
            ),
            (
                "corruption without a caller is fatal",
                "test_error_of_work_whose_caller_left_is_told_unless_it_is_an_answer[error2-False]",
                "replica/server/runtime/tasks.py",
                "Tasks._left",
                "Refused | Corruption | None",
                "Refused | None",
            ),
            (
                "refusal without a caller is fatal",
                "test_error_of_work_whose_caller_left_is_told_unless_it_is_an_answer[error0-False]",
                "replica/server/runtime/tasks.py",
                "Tasks._left",
                "isinstance(error := task.exception(), Refused | Corruption | None)",
                "(error := task.exception()) is None",
            ),
        )
    ),
    Mutant(
        name="loop starts a thread when one is needed",
        rows="IN-30",
        test="tests/tidy/test_layers.py::test_loop_of_a_server_has_its_threads_from_the_beginning",
        file="replica/server/process.py",
        function="TabletServer.run",
        before="""
            loop.set_default_executor(started_pool(limits.LOOP_THREADS, "loop"))
        """,
        after="",
        on_disk=True,
    ),
    Mutant(
        name="servers look masters up once",
        rows="MF-07",
        test="tests/process/test_names_process.py::test_master_is_replaced_by_its_name_and_nobody_is_told",
        file="replica/server/runtime/channels.py",
        function="Channels.get",
        before="""
            channel = self._channels[address, to] = async_channel_to(address, to=to)
        """,
        after="""
            import socket

            host, _, port = address.rpartition(":")
            place = f"{socket.gethostbyname(host)}:{port}"
            channel = self._channels[address, to] = async_channel_to(place, to=to)
        """,
    ),
    Mutant(
        name="stale read trusts the clocks",
        rows="CN-24",
        test="tests/unit/server/test_server_freshness.py::test_time_needed_counts_the_clocks_against_the_replica",
        file="replica/types/freshness.py",
        function="time_needed",
        before="oldest_us = us_of_hybrid(now) - staleness_us + limits.CLOCK_DIFFERENCE_US_MAX",
        after="oldest_us = us_of_hybrid(now) - staleness_us",
    ),
    Mutant(
        name="stale read forgets what its caller has seen",
        rows="CN-24",
        test="tests/unit/server/test_server_freshness.py::test_time_needed_is_never_below_what_the_caller_has_seen",
        file="replica/types/freshness.py",
        function="time_needed",
        before="return max(1, seen, hybrid_from_us(max(0, oldest_us)))",
        after="return max(1, hybrid_from_us(max(0, oldest_us)))",
    ),
    *(
        Mutant(
            name=name,
            rows="RD-02",
            test=(
                "tests/unit/server/test_server_freshness.py::"
                "test_later_calls_of_a_read_by_key_are_of_the_time_of_the_first"
            ),
            file="replica/server/requests/scans.py",
            function="Scans.get",
            before=before,
            after=after,
        )
        for name, before, after in (
            ("read by key forgets its time", "snapshot_time=at", "snapshot_time=None"),
            (
                "read by key does not wait for its time",
                "request.staleness_us, request.snapshot_time)",
                "request.staleness_us, 0)",
            ),
        )
    ),
    Mutant(
        name="stale read of an empty replica",
        rows="CN-24",
        test="tests/unit/server/test_server_freshness.py::test_time_needed_of_a_very_old_read_is_not_the_beginning",
        file="replica/types/freshness.py",
        function="time_needed",
        before="return max(1, seen, hybrid_from_us(max(0, oldest_us)))",
        after="return max(seen, hybrid_from_us(max(0, oldest_us)))",
    ),
    Mutant(
        name="busy machine taken for a held lock",
        rows="CC-35",
        test="tests/unit/server/test_server_gil_watch.py::test_hold_is_the_lateness_that_no_busy_processor_explains",
        file="replica/server/runtime/gil_watch.py",
        function="held_ms",
        before="return max(0.0, slept_s - wanted_s - max(0.0, waited_for_cpu_s)) * 1000",
        after="return max(0.0, slept_s - wanted_s) * 1000",
    ),
    Mutant(
        name="hold of the lock is not seen",
        rows="CC-35",
        test=(
            "tests/unit/server/test_server_gil_watch.py::"
            "test_hold_of_the_lock_is_seen_and_forgotten_by_the_recent_figure_only"
        ),
        file="replica/server/runtime/gil_watch.py",
        function="GilWatch._run",
        before="self.note(held_ms(now - before, PERIOD_S, now_waited - waited))",
        after="(held_ms(now - before, PERIOD_S, now_waited - waited))",
    ),
    Mutant(
        name="pause of an earlier round counts",
        rows="CC-35",
        test="tests/unit/server/test_server_recent_maximum.py::test_maximum_of_a_span_forgets_what_came_before_it",
        file="replica/server/runtime/recent_maximum.py",
        function="RecentMaximum.within",
        before="return max((value for second, value in list(self._seconds) if second >= first), default=0.0)",
        after="return max((value for second, value in list(self._seconds) if first), default=0.0)",
    ),
    Mutant(
        name="session of a dead target stays",
        rows="CC-17, TC-10",
        test=(
            "tests/unit/server/test_server_vivify.py::"
            "test_session_of_a_dead_target_is_seen_idle_and_let_go_although_nobody_asks"
        ),
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance.once",
        before="""
            await self._manager.in_thread(self._manager.sessions.expire)
        """,
        after="",
    ),
    *(
        Mutant(
            name=name,
            rows="IN-82",
            test=(
                "tests/unit/server/test_server_creations.py::"
                "test_creation_with_a_bad_field_is_refused_with_the_value_and_changes_nothing"
            ),
            file="replica/server/requests/creations.py",
            function=function,
            before=before,
            after=after,
        )
        for name, function, before, after in (
            (
                "creation without a table",
                "checked_creation",
                'check_id(request.table.table_id, "a tablet\'s table")',
                "pass",
            ),
            (
                "creation of a table without a name",
                "checked_creation",
                'check_token(request.table.name, "the name of a tablet\'s table")',
                "pass",
            ),
            ("numbers of a table that is created are any", "checked_creation", "check_numbers(table)", "pass"),
            (
                "schemas of a tablet have any ids",
                "_check_versions",
                "ids[0] < 1 or ids != sorted(set(ids))",
                "ids[0] < 0 or ids != sorted(ids)",
            ),
            (
                "first config was decided",
                "_check_first",
                "(config.opid, config.decision, config.unsafe) != (ZERO_OPID, (0, 0), False)",
                "(config.opid, config.unsafe) != (ZERO_OPID, False)",
            ),
            (
                "first config has a position",
                "_check_first",
                "(config.opid, config.decision, config.unsafe) != (ZERO_OPID, (0, 0), False)",
                "(config.decision, config.unsafe) != ((0, 0), False)",
            ),
            (
                "first config is unsafe",
                "_check_first",
                "(config.opid, config.decision, config.unsafe) != (ZERO_OPID, (0, 0), False)",
                "(config.opid, config.decision) != (ZERO_OPID, (0, 0))",
            ),
            (
                "first config of any number of members",
                "_check_first",
                "members > limits.CONFIG_MEMBERS_PROPOSED_MAX",
                "members > 1 << 30",
            ),
            (
                "first config of nobody is told by the value of another check",
                "_check_first",
                "if why := unheld_reason(config):",
                "if (why := unheld_reason(config)) and members:",
            ),
            ("first members hold no data", "_check_first", "not member.holds_data", "False"),
            ("first members have no address", "_check_first", "if not member.addresses:", "if False:"),
            (
                "first members have an address without a host or port",
                "_check_first",
                "if why := unheld_reason(config):",
                'if (why := unheld_reason(config)) and "a host or a port" not in why:',
            ),
            (
                "first leader does not vote",
                "_check_first",
                "leader_hint not in config.voters",
                "config.member(leader_hint) is None",
            ),
            ("first leader is a stranger", "_check_first", "leader_hint not in config.voters", "False"),
        )
    ),
    Mutant(
        name="creation over a superblock",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_creations.py::"
            "test_creation_over_files_of_an_earlier_replica_is_refused_and_leaves_them"
        ),
        file="replica/server/tablets/opening.py",
        function="create_files",
        before="Superblock.exists(disk, tablet_id) or was_here(disk, tablet_id)",
        after="was_here(disk, tablet_id)",
    ),
    Mutant(
        name="creation over promises",
        rows="TC-13",
        test=(
            "tests/unit/server/test_server_creations.py::"
            "test_creation_over_files_of_an_earlier_replica_is_refused_and_leaves_them"
        ),
        file="replica/server/tablets/opening.py",
        function="create_files",
        before="Superblock.exists(disk, tablet_id) or was_here(disk, tablet_id)",
        after="Superblock.exists(disk, tablet_id)",
    ),
    Mutant(
        name="creation over rows",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_creations.py::"
            "test_creation_over_all_files_but_the_superblock_keeps_the_blocks"
        ),
        file="replica/server/tablets/opening.py",
        function="create_files",
        before="Superblock.exists(disk, tablet_id) or was_here(disk, tablet_id)",
        after="Superblock.exists(disk, tablet_id)",
    ),
    Mutant(
        name="creation that was cut off cannot be repeated",
        rows="TC-34",
        test=("tests/unit/server/test_server_creations.py::test_creation_that_was_cut_off_is_done_again"),
        file="replica/server/tablets/opening.py",
        function="create_files",
        before="Superblock.exists(disk, tablet_id) or was_here(disk, tablet_id)",
        after="Superblock.exists(disk, tablet_id) or ConsensusMeta.exists(disk, tablet_id)",
    ),
    Mutant(
        name="flush ends with its caller",
        rows="IN-62",
        test="tests/unit/server/test_server_left_callers.py::test_maintenance_goes_on_when_its_caller_leaves_and_others_wait",
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance._work",
        before="return await self._under_way.finish(self._begun(hosted, work, then))",
        after="return await self._begun(hosted, work, then)",
    ),
    Mutant(
        name="others need not wait for a flush whose caller left",
        rows="IN-62",
        test="tests/unit/server/test_server_left_callers.py::test_maintenance_goes_on_when_its_caller_leaves_and_others_wait",
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance._work",
        before="hosted.unattended.clear()",
        after="pass",
    ),
    Mutant(
        name="error of a flush whose caller left is lost",
        rows="IN-62",
        test="tests/unit/server/test_server_left_callers.py::test_error_of_maintenance_whose_caller_left_is_acted_on",
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance._work",
        before="return await self._under_way.finish(self._begun(hosted, work, then))",
        after="return await asyncio.shield(asyncio.ensure_future(self._begun(hosted, work, then)))",
    ),
    Mutant(
        name="flush begins for a caller that left before its turn",
        rows="IN-62",
        test="tests/unit/server/test_server_left_callers.py::test_maintenance_whose_caller_leaves_before_its_turn_does_not_begin",
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance.flush",
        before="await self._work(hosted, tablet.flush, self._flushed)",
        after="await self._under_way.finish(self._work(hosted, tablet.flush, self._flushed))",
    ),
    Mutant(
        name="nobody looks",
        rows="IN-32",
        test="tests/unit/server/test_server_resources.py::test_server_counts_them_in_its_metrics_and_warns_in_its_log",
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance.count_resources",
        before="await asyncio.get_running_loop().run_in_executor(self._pool, self.resources.look)",
        after="await asyncio.sleep(0)",
    ),
    Mutant(
        name="maintenance of a replica that stopped",
        rows="IN-30",
        test=(
            "tests/unit/server/test_server_exhausted.py::"
            "test_replica_that_stopped_while_maintenance_waited_for_its_turn_is_left_alone"
        ),
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance._work",
        before="not hosted.running or hosted.tablet",
        after="hosted.tablet",
    ),
    Mutant(
        name="maintenance ends for want of memory",
        rows="IN-30",
        test="tests/unit/server/test_server_exhausted.py::test_maintenance_that_finds_no_memory_waits",
        file="replica/server/maintenance/maintenance.py",
        function="Maintenance._result",
        before="if wanted is None:",
        after="if wanted is not None:",
    ),
    Mutant(
        name="ready tablets are not opened",
        rows="TC-62",
        test="tests/unit/server/test_server_vivify.py::test_copied_replica_starts_and_its_match_rises",
        file="replica/server/tablets/manager.py",
        function="TabletManager.start",
        before="hosted.opening = settled.data_state is DataState.READY",
        after="hosted.opening = settled.data_state is DataState.COPYING",
    ),
    Mutant(
        name="replicated writes do not count",
        rows="TC-11",
        test=(
            "tests/unit/server/test_server_copy_pace.py::"
            "test_writes_of_clients_slow_copies_at_the_leader_and_where_they_are_replicated"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.deliver",
        before="self.copy_rate.written()",
        after="pass",
    ),
    Mutant(
        name="failure is not noted",
        rows="IN-03",
        test=(
            "tests/process/test_defect_process.py::"
            "test_tablet_whose_replicas_failed_at_a_defect_is_back_with_a_build_without_it"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.on_change",
        before="self._note_failure(hosted, replica)",
        after="self.changed.add(tablet_id)",
    ),
    Mutant(
        name="creation again makes a candidate",
        rows="CN-35",
        test=(
            "tests/unit/server/test_server_opening.py::"
            "test_config_and_leader_that_a_creation_names_are_nothing_to_a_replica_that_has_a_config"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._create",
        before="""
                    raise Refused(Code.UNAVAILABLE, "the tablet could not be created", tablet=superblock.tablet_id)
        """,
        after="""
                    raise Refused(Code.UNAVAILABLE, "the tablet could not be created", tablet=superblock.tablet_id)
            if campaign and hosted.replica is not None:
                hosted.replica._executor.core.campaign()
        """,
    ),
    Mutant(
        name="creation again replaces the config",
        rows="CN-35",
        test=(
            "tests/unit/server/test_server_opening.py::"
            "test_config_and_leader_that_a_creation_names_are_nothing_to_a_replica_that_has_a_config"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._create",
        before="""
                    raise Refused(Code.UNAVAILABLE, "the tablet could not be created", tablet=superblock.tablet_id)
        """,
        after="""
                    raise Refused(Code.UNAVAILABLE, "the tablet could not be created", tablet=superblock.tablet_id)
            if hosted.cmeta is not None:
                hosted.cmeta.save_config(config)
        """,
    ),
    Mutant(
        name="copied while it is created",
        rows="TC-27",
        test="tests/unit/server/test_server_open.py::test_tablet_that_is_being_created_is_not_copied_into",
        file="replica/server/tablets/manager.py",
        function="TabletManager._create",
        before="""
            hosted = self._add(superblock)
            hosted.opening = True
            async with hosted.transition:
                try:
                    await self.in_thread(lambda: create_files(self.disk, self.uuid, superblock, config))
                except BaseException:
                    self.tablets.pop(superblock.tablet_id, None)
                    raise
        """,
        after="""
            await self.in_thread(lambda: create_files(self.disk, self.uuid, superblock, config))
            hosted = self._add(superblock)
            hosted.opening = True
            async with hosted.transition:
        """,
    ),
    Mutant(
        name="damaged replica deletes itself",
        rows="TC-63",
        test="tests/unit/server/test_server_open.py::test_server_with_one_unreadable_block_serves_its_other_tablets",
        file="replica/server/tablets/manager.py",
        function="TabletManager.open",
        before="""
            if is_transient(error):
        """,
        after="""
            if isinstance(error, Corruption):
                self._later.start(self.delete(hosted.tablet_id, None, "damaged"))
            if is_transient(error):
        """,
    ),
    Mutant(
        name="opening is tried once",
        rows="IN-30",
        test=(
            "tests/unit/server/test_server_exhausted.py::"
            "test_replica_that_cannot_be_opened_for_a_want_waits_and_is_never_failed"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.open",
        before="if is_transient(error):",
        after="if isinstance(error, Refused) and error.code is Code.NO_SPACE:",
    ),
    Mutant(
        name="pause does not grow over a replay",
        rows="IN-30",
        test=(
            "tests/unit/server/test_server_exhausted.py::"
            "test_entry_that_meets_a_want_at_each_start_is_tried_ever_more_rarely"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.open",
        before="""
            if opened.tablet is None or opened.log.last.index <= opened.tablet.flush_opid.index:
                hosted.attempts = 0  # nothing is replayed
        """,
        after="""
            hosted.attempts = 0
        """,
    ),
    Mutant(
        name="pause never shrinks without a replay",
        rows="IN-30",
        test=(
            "tests/unit/server/test_server_exhausted.py::"
            "test_replica_that_cannot_be_opened_for_a_want_waits_and_is_never_failed"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.open",
        before="hosted.attempts = 0  # nothing is replayed",
        after="pass",
    ),
    Mutant(
        name="a tombstone without room is no failure",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_copy_that_finds_no_room_for_its_tombstone_either_is_one_later"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager.settle",
        before="if hosted.superblock.data_state is DataState.COPYING:",
        after="if False:",
    ),
    Mutant(
        name="start without room for a tombstone is final",
        rows="TC-12",
        test="tests/unit/server/test_server_open.py::test_start_that_finds_no_room_for_a_tombstone_makes_it_later",
        file="replica/server/tablets/manager.py",
        function="TabletManager._unsettled",
        before="if is_transient(error):",
        after="if error is None:",
    ),
    Mutant(
        name="pause never shrinks after a replay",
        rows="IN-30",
        test=(
            "tests/unit/server/test_server_exhausted.py::"
            "test_entry_that_meets_a_want_at_each_start_is_tried_ever_more_rarely"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._replayed",
        before="""
            self.post(lambda: self._started_well(tablet_id))
        """,
        after="",
    ),
    Mutant(
        name="late deletion ends a copy",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copy_faults.py::"
            "test_deletion_ends_a_copy_under_way_unless_it_is_for_a_later_config"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._delete",
        before="""
            _check_config(hosted, cas, committed)
            about(_log, tablet_id, self.uuid).info("a deletion ends its copy: %s", reason or "no reason given")
        """,
        after="""
            about(_log, tablet_id, self.uuid).info("a deletion ends its copy: %s", reason or "no reason given")
        """,
    ),
    Mutant(
        name="deletion waits behind a copy",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_deletion_ends_a_job_that_waits_and_then_the_replica_that_is_here"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._delete",
        before="await hosted.copy.end()",
        after="await hosted.copy.ended.wait()",
    ),
    Mutant(
        name="order of a copy in place looks once",
        rows="TC-63",
        test="tests/unit/server/test_server_renewal.py::test_order_that_waits_for_another_ones_turn_looks_again",
        file="replica/server/tablets/manager.py",
        function="TabletManager._delete",
        before="""
            if damaged_only:
                _check_damaged(hosted)
        """,
        after="",
    ),
    Mutant(
        name="damage is forgotten where no room is",
        rows="TC-63",
        test="tests/unit/server/test_server_renewal.py::test_order_that_found_no_room_may_come_again",
        file="replica/server/tablets/manager.py",
        function="TabletManager._delete",
        before="""
            hosted.unreadable = hosted.damaged  # if the disk is full, the order comes again
        """,
        after="",
    ),
    Mutant(
        name="half made tombstone waits for a restart",
        rows="TC-40",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_deletion_without_room_forgets_nothing_and_ends_once_there_is_room"
        ),
        file="replica/server/tablets/manager.py",
        function="TabletManager._delete",
        before="""
            if hosted.superblock.data_state is DataState.DELETED:  # only files are left to move
                await self.settle(hosted)
        """,
        after="",
    ),
    Mutant(
        name="rolled back config keeps an abandoned replica",
        rows="CC-10",
        test="tests/unit/server/test_server_vivify.py::test_config_that_was_rolled_back_keeps_no_abandoned_replica",
        file="replica/server/tablets/manager.py",
        function="_check_config",
        before="pending > committed:  #",
        after="pending > ZERO_OPID:  #",
    ),
    Mutant(
        name="deletion overlooks a config that may be committed",
        rows="CC-29",
        test="tests/unit/server/test_server_vivify.py::test_config_that_was_rolled_back_keeps_no_abandoned_replica",
        file="replica/server/tablets/manager.py",
        function="_check_config",
        before="> committed",
        after="< ZERO_OPID",
    ),
    Mutant(
        name="deletion ignores what the copy is for",
        rows="TC-12",
        test=(
            "tests/unit/server/test_server_copies.py::"
            "test_deletion_ends_a_job_that_waits_and_then_the_replica_that_is_here"
        ),
        file="replica/server/tablets/manager.py",
        function="_check_config",
        before="known = max(known, hosted.copy.config)",
        after="known = max(known, ZERO_OPID)",
    ),
    Mutant(
        name="late deletion hits the readded replica",
        rows="CC-29",
        test="tests/unit/server/test_server_vivify.py::test_late_deletion_misses_a_replica_that_was_added_again",
        file="replica/server/tablets/manager.py",
        function="_check_config",
        before="if known > cas:",
        after="if known.index > cas.index + (1 << 40):",
    ),
    Mutant(
        name="late order deletes a whole replica",
        rows="TC-63, TC-13",
        test="tests/unit/server/test_server_renewal.py::test_order_of_a_copy_in_place_hits_a_damaged_replica_only",
        file="replica/server/tablets/manager.py",
        function="_check_damaged",
        before="if not hosted.damaged:",
        after="if False:",
    ),
    Mutant(
        name="check says nothing of limits that are near",
        rows="IN-32",
        test="tests/unit/tools/test_tools_check.py::test_check_tells_of_a_server_that_is_near_a_limit_of_its_process",
        file="replica/tools/check.py",
        function="judge",
        before="if (text := ResourceUse(use.used, use.limit).near_limit(name))",
        after="if (text := ResourceUse(use.used, 0).near_limit(name))",
    ),
    Mutant(
        name="masters drop what a server says of its memory maps",
        rows="IN-32",
        test="tests/unit/master/test_master_belief.py::test_open_files_and_maps_of_a_server_are_shown_as_it_says",
        file="replica/rpc/heartbeats.py",
        function="heartbeat_from_pb",
        before="ResourceUse(request.memory_maps.used, request.memory_maps.limit)",
        after="ResourceUse()",
    ),
    Mutant(
        name="heartbeats say open files for memory maps",
        rows="IN-32",
        test="tests/unit/server/test_server_heartbeat.py::test_tablet_that_is_gone_without_a_trace_is_told_by_a_full_report",
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._beat",
        before="memory_maps=pb.ResourceUse(**self._resources.maps._asdict()),",
        after="memory_maps=pb.ResourceUse(**self._resources.files._asdict()),",
    ),
    Mutant(
        name="use is told at the limit",
        rows="IN-32",
        test=(
            "tests/unit/server/test_server_resources.py::test_use_is_told_once_from_four_fifths_on_and_again_after_it_fell"
        ),
        file="replica/types/resource_use.py",
        before="NEAR_FROM = 0.8",
        after="NEAR_FROM = 1.0",
    ),
    Mutant(
        name="use is told all day",
        rows="IN-32",
        test=(
            "tests/unit/server/test_server_resources.py::test_use_is_told_once_from_four_fifths_on_and_again_after_it_fell"
        ),
        file="replica/server/runtime/resources.py",
        function="warning_due",
        before="if (text := use.near_limit(name)) and not told:",
        after="if text := use.near_limit(name):",
    ),
    Mutant(
        name="deadly entry is copied again",
        rows="TC-63",
        test="tests/unit/server/test_server_renewal.py::test_only_damage_that_a_copy_heals_is_told",
        file="replica/server/startup/replay_watch.py",
        function="EntryCrashesReplay",
        before="copy_heals = False",
        after="copy_heals = True",
    ),
    Mutant(
        name="another build does not try again",
        rows="IN-03",
        test=(
            "tests/unit/server/test_server_replay_watch.py::test_entry_that_killed_one_build_is_tried_again_by_another"
        ),
        file="replica/server/startup/replay_watch.py",
        function="ReplayMarker.after_crash",
        before="if self.is_proof and self.build == build:",
        after="if self.is_proof:",
    ),
    Mutant(
        name="second death convicts a suspect entry",
        rows="IN-05",
        test="tests/unit/server/test_server_replay_watch.py::"
        "test_server_that_is_killed_over_and_over_as_it_starts_loses_no_replica",
        file="replica/server/startup/replay_watch.py",
        function="ReplayMarker.is_proof",
        before="self.first > 0 and self._was_alone and self.died_alone == self.first",
        after="self.first > 0 and self._was_alone",
    ),
    Mutant(
        name="what was suspect stays suspect",
        rows="IN-05",
        test="tests/unit/server/test_server_replay_watch.py::test_death_in_a_long_replay_makes_few_entries_suspect",
        file="replica/server/startup/replay_watch.py",
        function="ReplayMarker.after_crash",
        before="first, last = self.first, self.last",
        after="first, last = 1, 1000",
    ),
    Mutant(
        name="entry that kills does so for ever",
        rows="IN-05",
        test="tests/unit/server/test_server_replay_watch.py::"
        "test_third_death_at_one_entry_leaves_only_that_replica_offline",
        file="replica/server/startup/replay_watch.py",
        function="ReplayMarker.after_crash",
        before="died_alone = self.first if self._was_alone else 0",
        after="died_alone = 0",
    ),
    Mutant(
        name="note outlives the entry",
        rows="IN-03",
        test="tests/unit/server/test_server_replay_watch.py::test_failure_is_noted_until_the_entry_is_applied",
        file="replica/server/startup/replay_watch.py",
        function="ReplayWatch.note_failure",
        before="0, last=0, failed_index=index",
        after="index, last=index, failed_index=0",
    ),
    Mutant(
        name="scrub looks at the open segment",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_damage_of_a_closed_segment_is_found_and_costs_one_replica",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._at_rest",
        before="if info.closed:",
        after="if info.number:",
    ),
    Mutant(
        name="scrub passes logs by",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_damage_of_a_closed_segment_is_found_and_costs_one_replica",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._at_rest",
        before="if info.closed:",
        after="if info.closed and info.number < 0:",
    ),
    Mutant(
        name="scrub skips sidecars",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_flipped_bit_at_rest_is_found_and_costs_one_replica",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._block.files",
        before="for path, length_bytes, crc in block.files:",
        after="for path, length_bytes, crc in block.files[:1]:",
    ),
    Mutant(
        name="scrub takes a freed segment for lost",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_segment_that_goes_away_during_the_check_is_no_damage",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._segment.is_there",
        before="return hosted.running and hosted.log is log and info in log.segments()",
        after="return hosted.running and hosted.log is log",
    ),
    Mutant(
        name="scrub takes a merged block for lost",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_block_that_goes_away_during_the_check_is_no_damage",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._check",
        before="if one.is_there():",
        after="if True:",
    ),
    Mutant(
        name="scrub fails nobody",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_flipped_bit_at_rest_is_found_and_costs_one_replica",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._check",
        before="self._manager.damaged(one.hosted, error)",
        after="pass",
    ),
    Mutant(
        name="scrub takes all of a core",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_scrub_takes_no_more_than_its_share_of_a_core",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._read",
        before="drawn = self._rate.draw(cost_bytes(length_bytes, cpu_s, self._rate.bytes_per_s))",
        after="drawn = self._rate.draw(cost_bytes(length_bytes, 0.0, self._rate.bytes_per_s))",
    ),
    Mutant(
        name="scrub has no rate",
        rows="TC-63",
        test="tests/unit/server/test_server_scrub.py::test_scrub_holds_its_rate_and_reads_in_pieces",
        file="replica/server/maintenance/scrub.py",
        function="Scrub._read",
        before="while pause_s:",
        after="while pause_s and not pause_s:",
    ),
    Mutant(
        name="scrub begins with the youngest",
        rows="TC-63",
        test=(
            "tests/unit/server/test_server_scrub_rule.py::"
            "test_block_that_waited_longest_is_first_and_equal_ones_go_by_name"
        ),
        file="replica/server/maintenance/scrub.py",
        function="due",
        before="n: (whole_s",
        after="n: (-whole_s",
    ),
    Mutant(
        name="late ticks are made up for",
        rows="CC-35",
        test="tests/unit/server/test_server_ticking.py::test_loop_that_was_blocked_makes_up_for_no_ticks",
        file="replica/server/tablets/ticking.py",
        function="RaftTimer.run_forever",
        before="due = max(due + period_s, now)",
        after="due += period_s",
    ),
    Mutant(
        name="elections all at once",
        rows="CN-28",
        test="tests/unit/server/test_server_ticking.py::test_loss_of_a_server_spreads_the_elections_of_its_tablets",
        file="replica/server/tablets/ticking.py",
        function="RaftTimer._liveness_changed",
        before="replica.server_silent(change.uuid, change.silent_ticks, woken // WAKES_PER_TICK)",
        after="replica.server_silent(change.uuid, change.silent_ticks, 0)",
    ),
    Mutant(
        name="loss of a server ends leaderships of others",
        rows="CN-03",
        test=(
            "tests/process/test_many_groups_process.py::"
            "test_three_servers_in_twenty_groups_lead_some_and_follow_in_others_each_for_itself"
        ),
        file="replica/server/tablets/ticking.py",
        function="RaftTimer._liveness_changed",
        before="""
            woken += rests
        """,
        after="""
            woken += rests
            if replica.is_leader:
                others = {m.uuid for m in replica.active_config.members} - {self._uuid, change.uuid}
                replica.transfer(min(others), lambda _: None)
        """,
    ),
    Mutant(
        name="running server never looks at its instance file",
        rows="IN-21",
        test="tests/unit/server/test_server_instance.py::test_running_server_writes_its_instance_file_again",
        file="replica/server/process.py",
        function="TabletServer._watch_folders",
        before="if looks * LOOK_AT_FOLDERS_S >= CHECK_EVERY_S:",
        after="if looks < 0:",
    ),
    Mutant(
        name="files are looked at later than the page says",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::test_page_for_operators_has_each_file_and_the_times_of_this_code"
        ),
        file="replica/server/maintenance/file_check.py",
        before="CHECK_EVERY_S = 60.0",
        after="CHECK_EVERY_S = 600.0",
    ),
    Mutant(
        name="call that is given up ends the server",
        rows="IN-62",
        test="tests/unit/server/test_server_lanes.py::test_caller_that_left_while_it_waited_for_a_lane_ends_nothing",
        file="replica/server/runtime/lanes.py",
        function="drained",
        before="lambda result: None if done.done() else done.set_result(None)",
        after="lambda result: done.set_result(None)",
    ),
)
