"""Mutants: term, vote and config on disk."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="witness is read as a member with rows",
        rows="none",
        test=(
            "tests/unit/consensus_metadata/test_cmeta_view.py::"
            "test_members_as_json_read_back_and_what_a_later_build_adds_is_left_out"
        ),
        file="replica/consensus_metadata/config_codec.py",
        function="members_from_json",
        before='each.get("holds_data", True)',
        after="True",
    ),
    Mutant(
        name="reserved bytes of a config are ignored",
        rows="none",
        test=(
            "tests/unit/consensus_metadata/test_cmeta_view.py::"
            "test_metadata_of_a_later_build_is_told_from_damage_and_is_not_taken_for_lost"
        ),
        file="schemas/records.py",
        function="config_from_avro",
        before='if value["reserved"] or any(member["reserved"] for member in value["members"]):',
        after='if value["reserved"] and not value["members"]:',
    ),
    Mutant(
        name="hint replaces the config",
        rows="CN-35",
        test=(
            "tests/unit/consensus_metadata/test_consensus_meta.py::test_config_given_at_creation_is_a_hint_for_a_server_without_one"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.create",
        before="tablet_id):",
        after="tablet_id) and cls.load(disk, tablet_id).committed_config == config:",
    ),
    Mutant(
        name="metadata of a killed process is not synced",
        rows="TC-14, I1",
        test=(
            "tests/unit/consensus_metadata/test_consensus_meta.py::"
            "test_metadata_that_a_killed_process_left_unsynced_is_durable_once_it_is_loaded"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.load",
        before="""
            disk.sync_dir(FOLDER)
        """,
        after="",
    ),
    Mutant(
        name="orphaned metadata is ignored",
        rows="TC-34",
        test=(
            "tests/unit/server/test_server_files.py::"
            "test_tablet_without_a_superblock_does_not_exist_but_its_promises_count"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.adopt",
        before="""
            meta.merge(remote)
        """,
        after="""
            disk.remove(path_of(tablet_id))
            return cls.adopt(disk, tablet_id, uuid, remote)
        """,
    ),
    Mutant(
        name="lost metadata votes again",
        rows="TC-14, TC-55",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_metadata_that_were_lost_are_adopted_with_a_vote_floor",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.adopt",
        before="floor = source.term if lost else 0",
        after="floor = 0",
    ),
    Mutant(
        name="offline copy over lost metadata has no floor",
        rows="TC-55",
        test="tests/unit/tools/test_tools_offline.py::test_replica_without_its_promises_is_replaced_and_abstains",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.adopt",
        before="floor = source.term if lost else 0",
        after="floor = source.term if lost and not cls.exists(disk, tablet_id) else 0",
    ),
    Mutant(
        name="damaged metadata are never replaced",
        rows="TC-55",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_metadata_that_were_lost_are_adopted_with_a_vote_floor",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.load_if_present",
        before="if not or_lost or isinstance(error, LaterFormat):",
        after="if True:",
    ),
    Mutant(
        name="later promises are taken for lost",
        rows="TC-55",
        test="tests/unit/tools/test_tools_offline.py::test_promises_that_a_later_build_wrote_are_not_taken_for_lost",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.load_if_present",
        before="if not or_lost or isinstance(error, LaterFormat):",
        after="if not or_lost:",
    ),
    Mutant(
        name="vote changed within a term",
        rows="TC-14",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_promises_are_never_taken_back",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.save_hard_state",
        before="old.voted_for in (None, voted_for),",
        after="True or old.voted_for in (None, voted_for),",
    ),
    Mutant(
        name="merge takes no lock at all",
        rows="TC-57",
        test=(
            "tests/unit/server/test_server_vote_race.py::"
            "test_vote_request_that_meets_the_merge_of_a_copy_is_answered_once_per_term"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.merge",
        before="with self._lock:",
        after="if True:",
        more=(
            Edit(
                file="replica/server/copies/copy_jobs.py",
                function="CopyJobs._copy.merge",
                before="with hosted.cmeta_lock:",
                after="if True:",
            ),
        ),
    ),
    Mutant(
        name="vote and merge overlap",
        rows="TC-57",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_vote_in_the_midst_of_a_merge_waits_for_it_and_stays",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.merge",
        before="with self._lock:",
        after="if True:",
    ),
    Mutant(
        name="merge forgets the own vote",
        rows="TC-54",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_merge_follows_the_rules",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.merge",
        before="vote = own.voted_for if source.term <= own.term else None",
        after="vote = own.voted_for if source.term < own.term else None",
    ),
    Mutant(
        name="merge takes the sources vote",
        rows="TC-55",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_merge_follows_the_rules",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.merge",
        before="vote = own.voted_for if source.term <= own.term else None",
        after="vote = own.voted_for if source.term <= own.term else source.voted_for",
    ),
    Mutant(
        name="merge takes the sources term",
        rows="TC-53",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_merge_follows_the_rules",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.merge",
        before="term = max(own.term, source.term)",
        after="term = source.term",
    ),
    Mutant(
        name="merge keeps the local config",
        rows="TC-56",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_merge_follows_the_rules",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.merge",
        before="self._save(replace(own, term=term, voted_for=vote, config=source.config))",
        after="self._save(replace(own, term=term, voted_for=vote, config=own.config))",
    ),
    Mutant(
        name="lost folder of metadata is made anew",
        rows="IN-21",
        test=(
            "tests/unit/server/test_server_file_check.py::"
            "test_folder_that_is_lost_under_a_running_server_is_not_made_anew_with_one_file"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.repair",
        before="""
            if not self._disk.exists(FOLDER):
        """,
        after="""
            self._disk.mkdir(FOLDER)
            if not self._disk.exists(FOLDER):
        """,
    ),
    Mutant(
        name="memory changes before the flush",
        rows="TC-57",
        test="tests/unit/consensus_metadata/test_consensus_meta.py::test_failed_flush_changes_nothing_in_memory",
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta._save",
        before="""
            self._flush(content)
            self._content = content
        """,
        after="""
            self._content = content
            self._flush(content)
        """,
    ),
    Mutant(
        name="term without a vote is not saved",
        rows="TC-14",
        test=(
            "tests/unit/consensus_metadata/test_consensus_meta.py::"
            "test_crash_during_a_vote_leaves_the_old_vote_or_the_new_one"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta._save",
        before="""
            self._flush(content)
        """,
        after="""
            if content.voted_for is not None:
                self._flush(content)
        """,
    ),
    Mutant(
        name="vote needs a free block",
        test=(
            "tests/unit/consensus_metadata/test_consensus_meta.py::"
            "test_replica_that_voted_before_votes_on_a_full_disk_after_every_restart"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta._flush",
        before="keep_room=True",
        after="keep_room=False",
    ),
    Mutant(
        name="vote overwrites a file that a power cut may bring back",
        rows="TC-14",
        test=(
            "tests/unit/consensus_metadata/test_consensus_meta.py::"
            "test_two_crashes_in_a_row_leave_a_vote_that_was_asked_for_or_the_one_before"
        ),
        file="replica/consensus_metadata/consensus_meta.py",
        function="ConsensusMeta.load",
        before="""
            disk.sync_dir(FOLDER)
        """,
        after="",
    ),
    Mutant(
        name="replica opened again goes by an earlier file of promises",
        rows="none",
        test="tests/unit/server/test_server_file_check.py::test_replica_that_is_opened_again_keeps_the_vote_that_memory_has",
        file="replica/server/tablets/opening.py",
        function="Opener.bootstrap",
        before="hosted.cmeta.repair()",
        after="pass",
    ),
)
