"""Mutants: disk."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="flipped bit of the format version is a later build's",
        rows="IN-21",
        test=(
            "tests/formats/test_durable_formats.py::test_framed_file_flipped_or_cut_anywhere_is_refused "
            "tests/unit/server/test_server_file_check.py::"
            "test_small_file_that_is_lost_under_a_running_server_is_written_again"
        ),
        file="schemas/loader.py",
        function="unframe",
        before="version < _VERSION or (len(datum), found) == (length, crc)",
        after="version < _VERSION",
    ),
    Mutant(
        name="later format is damage",
        rows="IN-21",
        test="tests/formats/test_durable_formats.py::test_framed_file_flipped_or_cut_anywhere_is_refused",
        file="schemas/loader.py",
        function="unframe",
        before='raise UnsupportedFrame(f"{what} is not',
        after='raise ValueError(f"{what} is not',
    ),
    Mutant(
        name="granted maps are forgotten until the next count",
        rows="IN-32",
        test="tests/unit/fs/test_fs_map_reserve.py::test_reserve_is_kept_and_counted_once_a_second",
        file="replica/fs/map_reserve.py",
        function="MapReserve.take",
        before="self._use = after",
        after="pass",
    ),
    Mutant(
        name="refused maps count as granted",
        rows="IN-32",
        test="tests/unit/fs/test_fs_map_reserve.py::test_reserve_is_kept_and_counted_once_a_second",
        file="replica/fs/map_reserve.py",
        function="MapReserve.take",
        before="if after.share > share:",
        after="self._use = after if after.share > share else self._use\n            if after.share > share:",
    ),
    Mutant(
        name="maps are counted at each grant",
        rows="IN-32",
        test="tests/unit/fs/test_fs_map_reserve.py::test_reserve_is_kept_and_counted_once_a_second",
        file="replica/fs/map_reserve.py",
        function="MapReserve.take",
        before=">= COUNT_EVERY_S",
        after=">= 0",
    ),
    Mutant(
        name="maps are counted once",
        rows="IN-32",
        test="tests/unit/fs/test_fs_map_reserve.py::test_reserve_is_kept_and_counted_once_a_second",
        file="replica/fs/map_reserve.py",
        function="MapReserve.take",
        before="now - self._counted_at >= COUNT_EVERY_S",
        after="self._counted_at < 0",
    ),
    Mutant(
        name="block is opened with the last maps",
        rows="IN-32",
        test="tests/unit/tablet/test_tablet_maps.py::test_tablet_is_opened_only_if_its_blocks_leave_the_last_maps",
        file="replica/tablet/tablet.py",
        function="Tablet.open",
        before="RESERVE.take(MAPS_PER_BLOCK, limits.MAPS_SHARE_TO_OPEN_MAX if new else limits.MAPS_SHARE_TO_FLUSH_MAX)",
        after="pass",
    ),
    Mutant(
        name="restart leaves out what was open",
        rows="IN-30",
        test="tests/unit/server/test_server_exhausted.py::test_restart_opens_every_tablet_that_was_open_before",
        file="replica/server/tablets/opening.py",
        function="Opener.bootstrap",
        before="new=hosted.copied",
        after="new=True",
    ),
    Mutant(
        name="copied replica takes the maps of flushes at the second try",
        rows="IN-30",
        test="tests/unit/server/test_server_exhausted.py::test_restart_opens_every_tablet_that_was_open_before",
        file="replica/server/tablets/manager.py",
        function="TabletManager.open",
        before="hosted.copied |= checked",
        after="hosted.copied = checked",
    ),
    Mutant(
        name="flush of several blocks takes maps for one",
        rows="IN-32",
        test="tests/unit/tablet/test_tablet_maps.py::test_flush_takes_maps_for_each_block_that_it_makes",
        file="replica/tablet/maintenance.py",
        function="Maintenance.flush",
        before="max(1, len(self._runs(frozen)))",
        after="1",
    ),
    Mutant(
        name="flush takes the last maps",
        rows="IN-32",
        test="tests/unit/tablet/test_tablet_maps.py::test_flush_takes_maps_for_each_block_that_it_makes",
        file="replica/tablet/maintenance.py",
        function="Maintenance.flush",
        before="RESERVE.take(blocks * MAPS_PER_BLOCK, limits.MAPS_SHARE_TO_FLUSH_MAX)",
        after="pass",
    ),
    Mutant(
        name="text of a library's error is not read",
        rows="IN-30",
        test="tests/unit/fs/test_fs_exhausted.py::test_error_of_a_library_without_an_errno_is_told_by_its_text",
        file="replica/fs/os_errors.py",
        function="_number",
        before="if os.strerror(number) in text}",
        after="if not text}",
    ),
    Mutant(
        name="too many files of the host are those of the process",
        rows="IN-30",
        test="tests/unit/fs/test_fs_exhausted.py::test_error_of_a_library_without_an_errno_is_told_by_its_text",
        file="replica/fs/os_errors.py",
        function="_number",
        before="max(found, key=len)",
        after="min(found, key=len)",
    ),
    Mutant(
        name="parser without memory met a malformed message",
        rows="IN-30",
        test="tests/unit/fs/test_fs_exhausted.py::test_message_that_the_parser_has_no_memory_for_is_not_malformed",
        file="replica/fs/os_errors.py",
        function="exhausted",
        before=" or _is_of_the_parser(error):",
        after=":",
    ),
    Mutant(
        name="any text of a missing arena counts",
        rows="IN-30",
        test="tests/unit/fs/test_fs_exhausted.py::test_message_that_the_parser_has_no_memory_for_is_not_malformed",
        file="replica/fs/os_errors.py",
        function="_is_of_the_parser",
        before='type(error).__name__ == "DecodeError" and',
        after="type(error).__name__ and",
    ),
    Mutant(
        name="lost folder is not noticed",
        rows="TC-72",
        test="tests/unit/fs/test_disk_trouble.py::test_folder_that_was_taken_away_is_noticed",
        file="replica/fs/folder_watch.py",
        function="FolderWatch.check",
        before="if self._identity(folder) != known:",
        after="if self._identity(folder) is None:",
    ),
    *(
        Mutant(
            name=name,
            rows="IN-21",
            test=(
                "tests/unit/server/test_server_file_check.py::"
                "test_only_tablets_last_file_that_is_missing_at_a_start_concerns_that_tablet_alone"
            ),
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, file, function, before, after in (
            (
                "last file that is removed is an unmounted disk",
                "replica/server/startup/durable_state.py",
                "check_durable_state",
                "if folder in wanted and not has_mark(disk, folder, instance)",
                "if folder in wanted",
            ),
            (
                "mark of another server counts",
                "replica/fs/instance.py",
                "has_mark",
                "== instance.uuid.encode()",
                '> b""',
            ),
            (
                "folder of an earlier build gets no mark",
                "replica/fs/instance.py",
                "open_or_format",
                "mark_folders(disk, instance, [folder for folder in RAFT_FOLDERS if disk.listdir(folder)])",
                "pass",
            ),
            (
                "new folder gets no mark",
                "replica/fs/instance.py",
                "format_directory",
                "mark_folders(disk, instance)",
                "pass",
            ),
        )
    ),
    *(
        Mutant(
            name=name,
            rows="IN-21",
            test=(
                "tests/unit/server/test_server_file_check.py::"
                "test_folders_that_are_empty_mount_points_keep_a_server_down"
            ),
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, file, function, before, after in (
            (
                "mount point gets a mark",
                "replica/fs/instance.py",
                "open_or_format",
                "for folder in RAFT_FOLDERS if disk.listdir(folder)]",
                "for folder in RAFT_FOLDERS]",
            ),
            (
                "empty mount points beside blocks are a new server",
                "replica/server/startup/durable_state.py",
                "check_durable_state",
                "wanted.update(RAFT_FOLDERS)",
                "pass",
            ),
            (
                "votes of tombstones are forgotten with their folder",
                "replica/server/startup/durable_state.py",
                "check_durable_state",
                'wanted.add("consensus-meta")',
                "pass",
            ),
            (
                "folder that lost its mark is a new one",
                "replica/fs/instance.py",
                "check_folders",
                "instance.kind == TABLET_SERVER and has_mark",
                "False and has_mark",
            ),
            (
                "nobody notes that all folders have marks",
                "replica/fs/instance.py",
                "mark_folders",
                '_mark(disk, "", instance)',
                "pass",
            ),
            (
                "note that all have marks is written too early",
                "replica/fs/instance.py",
                "mark_folders",
                "all(has_mark",
                "any(has_mark",
            ),
            (
                "check of files does not ask what a start asks",
                "replica/tools/fs_check.py",
                "_refusal_of_start",
                "check_durable_state(disk, instance)",
                "pass",
            ),
        )
    ),
    Mutant(
        name="folder of another server is taken over",
        rows="IN-21",
        test="tests/unit/server/test_server_file_check.py::test_folder_of_another_server_keeps_a_server_down",
        file="replica/fs/instance.py",
        function="check_folders",
        before="_refuse_foreign(disk, folder, instance)",
        after="pass",
    ),
    Mutant(
        name="damaged mark is another server's",
        rows="IN-21",
        test="tests/unit/server/test_server_file_check.py::test_folder_of_another_server_keeps_a_server_down",
        file="replica/fs/instance.py",
        function="_refuse_foreign",
        before="if len(found) == len(instance.uuid) and found",
        after="if found",
    ),
    Mutant(
        name="identity of a later build is called damage",
        rows="IN-93",
        test="tests/unit/master/test_master_upgrade.py::test_directory_of_a_level_is_opened_by_builds_that_know_it",
        file="replica/fs/instance.py",
        function="read_instance",
        before="except UnsupportedFrame as error:",
        after="except UnicodeError as error:",
    ),
    Mutant(
        name="formatted directory is formatted",
        rows="MF-24",
        test="tests/unit/server/test_server_instance.py::test_directory_is_formatted_once_and_keeps_its_uuid",
        file="replica/fs/instance.py",
        function="format_directory",
        before="if disk.exists(INSTANCE):",
        after="if False:",
    ),
    Mutant(
        name="masters lost folder is made anew",
        rows="TC-72",
        test="tests/unit/master/test_master_group.py::test_master_that_lost_a_folder_of_promises_does_not_start",
        file="replica/fs/instance.py",
        function="check_folders",
        before="raise lost_raft_folders(instance, lost)",
        after="pass",
    ),
    Mutant(
        name="lost identity stays lost",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_instance_file_is_written_again_by_a_running_server_and_refuses_a_start_with_the_command"
        ),
        file="replica/fs/instance.py",
        function="_holds",
        before="return False",
        after="return True",
    ),
    Mutant(
        name="earlier identity stays under a running server",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_identity_and_marks_of_a_running_server_that_differ_are_written_again"
        ),
        file="replica/fs/instance.py",
        function="repair_instance",
        before="read_instance(disk) == instance",
        after="read_instance(disk) is not None",
    ),
    Mutant(
        name="running server makes a mark in a mount point",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_identity_and_marks_of_a_running_server_that_differ_are_written_again"
        ),
        file="replica/fs/instance.py",
        function="repair_instance",
        before="if disk.exists(path) and not",
        after="if not",
    ),
    Mutant(
        name="identity that finds no room ends the check",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_identity_and_marks_of_a_running_server_that_differ_are_written_again"
        ),
        file="replica/fs/instance.py",
        function="repair_instance",
        before="with suppress(Refused):",
        after="with suppress(KeyError):",
    ),
    Mutant(
        name="short write is the end",
        rows="none",
        test="tests/unit/fs/test_disk_trouble.py::test_log_is_whole_though_each_call_writes_and_reads_a_few_bytes",
        file="replica/fs/real.py",
        function="RealFile.pwritev",
        before="if done < length:",
        after="if done < length < 0:",
    ),
    Mutant(
        name="short write begins again",
        rows="none",
        test="tests/unit/fs/test_disk_trouble.py::test_log_is_whole_though_each_call_writes_and_reads_a_few_bytes",
        file="replica/fs/real.py",
        function="RealFile._write_rest",
        before="step = os.pwrite(self._fd, view[done:], byte_offset + done)",
        after="step = os.pwrite(self._fd, view, byte_offset + done)",
    ),
    Mutant(
        name="short read is the end",
        rows="none",
        test="tests/unit/fs/test_disk_trouble.py::test_log_is_whole_though_each_call_writes_and_reads_a_few_bytes",
        file="replica/fs/real.py",
        function="RealFile.pread",
        before="if len(data) in (0, length_bytes):",
        after="if len(data) <= length_bytes:",
    ),
    Mutant(
        name="segment is a length without blocks",
        rows="CN-17",
        test=(
            "tests/unit/wal/test_wal_segments.py::"
            "test_each_new_segment_has_its_whole_length_on_the_disk_when_it_is_created"
        ),
        file="replica/fs/real.py",
        function="RealFile.preallocate",
        before="os.posix_fallocate(self._fd, 0, length_bytes)",
        after="os.ftruncate(self._fd, max(size, length_bytes))",
    ),
    Mutant(
        name="failed preallocation keeps the disk",
        rows="CN-17",
        test="tests/unit/fs/test_disk_trouble.py::test_preallocation_without_room_gives_back_what_it_took",
        file="replica/fs/real.py",
        function="RealFile.preallocate",
        before="""
            os.ftruncate(self._fd, size)
        """,
        after="",
    ),
    Mutant(
        name="file is not there for want of memory",
        rows="IN-30",
        test="tests/unit/fs/test_fs_exhausted.py::test_real_disk_tells_a_want_as_one_in_every_call_and_changes_nothing",
        file="replica/fs/real.py",
        function="RealDisk.exists",
        before="except (FileNotFoundError, NotADirectoryError):",
        after="except OSError:",
    ),
    Mutant(
        name="folder is not synced after a replacement",
        rows="TC-14",
        test="tests/unit/fs/test_fs_exhausted.py::test_real_disk_syncs_what_it_says_is_durable_and_in_that_order",
        file="replica/fs/real.py",
        function="RealDisk.replace",
        before="""
            _sync(folder, full.parent)
        """,
        after="",
    ),
    Mutant(
        name="kept file is emptied first",
        test="tests/unit/fs/test_disk_trouble.py::test_file_that_was_replaced_twice_is_replaced_without_another_block",
        file="replica/fs/real.py",
        function="_open_temp",
        before="os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC",
        after="os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_TRUNC",
    ),
    Mutant(
        name="former file is not kept",
        test="tests/unit/fs/test_disk_trouble.py::test_file_that_was_replaced_twice_is_replaced_without_another_block",
        file="replica/fs/real.py",
        function="RealDisk.replace",
        before="if not (keep_room and _exchange(temp, full)):",
        after="if True:",
    ),
    Mutant(
        name="removed file leaves its room",
        test="tests/unit/tools/test_tools_offline.py::test_kept_room_for_a_vote_is_no_strangers_file",
        file="replica/fs/real.py",
        function="RealDisk.remove",
        before="_temp_of(full).unlink(missing_ok=True)",
        after="pass",
    ),
    Mutant(
        name="older content stays behind a shorter one",
        test=(
            "tests/unit/fs/test_disk_behaviour.py::"
            "test_replace_that_keeps_room_leaves_the_whole_new_content_and_no_stray_name"
        ),
        file="replica/fs/real.py",
        function="RealDisk.replace",
        before="file.truncate(len(data))",
        after="pass",
    ),
    Mutant(
        name="file that may come back is overwritten",
        rows="TC-14",
        test="tests/unit/fs/test_disk_trouble.py::test_former_file_is_not_overwritten_if_its_replacement_may_not_be_durable",
        file="replica/fs/real.py",
        function="RealDisk.replace",
        before="if not keep_room or isinstance(error, DiskFailure):",
        after="if not keep_room:",
    ),
    Mutant(
        name="backup of hard links changes",
        test="tests/unit/fs/test_disk_trouble.py::test_backup_of_hard_links_keeps_what_it_had",
        file="replica/fs/real.py",
        function="_open_temp",
        before="st_nlink == 1",
        after="st_nlink > 0",
    ),
    Mutant(
        name="file system without an exchange fails",
        test="tests/unit/fs/test_disk_trouble.py::test_file_system_that_cannot_exchange_names_renames",
        file="replica/fs/real.py",
        function="_exchange",
        before="if number in _CANNOT_EXCHANGE:",
        after="if number == errno.ENOENT:",
    ),
    Mutant(
        name="failed exchange is a success",
        test="tests/unit/fs/test_disk_trouble.py::test_error_of_an_exchange_is_the_disks_and_changes_nothing",
        file="replica/fs/real.py",
        function="_exchange",
        before="raise OSError(number, os.strerror(number))",
        after="return True",
    ),
    Mutant(
        name="start on a read-only disk ends in a traceback",
        test="tests/unit/fs/test_disk_trouble.py::test_directory_that_cannot_be_locked_says_what_to_look_at",
        file="replica/fs/root_lock.py",
        function="lock_root",
        before="""
            except OSError as error:
                raise error_from_os(error, "lock", str(folder)) from error
        """,
        after="""
            except BlockingIOError as error:
                raise error_from_os(error, "lock", str(folder)) from error
        """,
    ),
    Mutant(
        name="lock lies in the open",
        rows="TC-33",
        test="tests/process/test_server_process.py::test_created_tablet_is_all_that_ls_shows",
        file="replica/fs/root_lock.py",
        before='LOCK_NAME = ".lock"',
        after='LOCK_NAME = "lock"',
    ),
    Mutant(
        name="want is a failing disk",
        rows="IN-30",
        test="tests/unit/fs/test_fs_exhausted.py::test_errno_is_told_as_what_it_is",
        file="replica/fs/os_errors.py",
        function="error_from_os",
        before="""
            if wanted is not None:
                return ResourcesExhausted(wanted.what, action=action, path=path, cause=str(error))
        """,
        after="""
            if wanted is None and False:
                return ResourcesExhausted("", action=action, path=path, cause=str(error))
        """,
    ),
)
