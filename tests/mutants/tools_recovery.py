"""Mutants: recovery of what lost its majority."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="kept last opid is not read",
        rows="CC-41",
        test=(
            "tests/unit/tools/test_recovery_plan.py::"
            "test_evidence_of_a_directory_names_what_tombstones_kept_and_what_cannot_be_read"
        ),
        file="replica/tools/directory_evidence.py",
        function="_of_tablet",
        before="return replace(base, last=superblock.last_logged or ZERO_OPID, commit_index=0)",
        after="return replace(base, last=superblock.flush_opid, commit_index=0)",
    ),
    Mutant(
        name="blocks are looked for but not read",
        rows="CC-40, CC-41",
        test=(
            "tests/unit/tools/test_recovery_plan.py::"
            "test_replica_with_a_damaged_block_is_no_survivor_and_no_part_of_a_majority"
        ),
        file="replica/tools/directory_evidence.py",
        function="_block_problem",
        before="verify_file(disk, path, length_bytes, crc)",
        after="disk.open(path).close()",
    ),
    Mutant(
        name="forced config is not logged",
        rows="CC-45",
        test="tests/unit/tools/test_forced_config.py::test_forced_config_is_the_logs_last_entry_and_committed",
        file="replica/tools/forced_config.py",
        function="force_config",
        before="if last != config.opid:",
        after="if last.index >= config.opid.index and last != config.opid:",
    ),
    Mutant(
        name="rewrite cannot be repeated",
        rows="CC-44",
        test="tests/unit/tools/test_forced_config.py::test_rewrite_cut_off_anywhere_ends_the_same_when_repeated",
        file="replica/tools/forced_config.py",
        function="force_config",
        before="if last != config.opid:",
        after="if True:",
    ),
    Mutant(
        name="rewrite does not come into force",
        rows="MF-26, MF-28",
        test="tests/process/test_master_migration_process.py::test_single_master_becomes_three_with_every_table",
        file="replica/tools/forced_config.py",
        function="force_config",
        before="""
            meta.force(config, config.opid.term)
        """,
        after="",
    ),
    Mutant(
        name="even masters are forced",
        rows="MF-22",
        test="tests/process/test_master_migration_process.py::test_migration_is_refused_what_would_end_badly",
        file="replica/tools/forced_config.py",
        function="rewrite_config",
        before="len(members) not in limits.MASTERS",
        after="False",
    ),
    Mutant(
        name="witness is rewritten to a member with rows",
        rows="CC-44",
        test="tests/unit/tools/test_forced_config.py::test_witness_is_not_rewritten_to_a_member_with_rows",
        file="replica/tools/forced_config.py",
        function="rewrite_config",
        before="if superblock.witness and any(m.uuid == before.uuid and m.holds_data for m in members):",
        after="if superblock.witness and any(m.uuid == before.uuid and m.promote for m in members):",
    ),
    Mutant(
        name="second config after a cut off rewrite",
        rows="CC-44",
        test="tests/unit/tools/test_forced_config.py::test_rewrite_cut_off_anywhere_ends_the_same_when_repeated",
        file="replica/tools/forced_config.py",
        function="rewrite_config",
        before="if waiting is not None and waiting == config.with_opid(waiting.opid):",
        after="if waiting is not None and waiting == config:",
    ),
    Mutant(
        name="rewrite is not logged",
        rows="MF-27",
        test=(
            "tests/process/test_master_migration_process.py::"
            "test_config_rewrite_that_dies_is_finished_and_never_falls_back"
        ),
        file="replica/tools/forced_config.py",
        function="rewrite_config",
        before="undo = keep_undo(disk, tablet_id, data)",
        after='undo = ""',
    ),
    Mutant(
        name="last term of a generation is set",
        rows="CC-44",
        test=(
            "tests/unit/tools/test_forced_config.py::"
            "test_term_is_only_raised_within_its_generation_and_the_undo_is_kept"
        ),
        file="replica/tools/forced_config.py",
        function="raise_term",
        before="if offset_in_generation(term) > _OFFSET_BY_HAND_MAX:",
        after="if term > next_generation(term):",
    ),
    Mutant(
        name="whole majority is given up",
        rows="CC-38",
        test=(
            "tests/unit/tools/test_recovery_plan.py::"
            "test_tablet_whose_majority_is_whole_is_left_alone_and_the_majority_named"
        ),
        file="replica/tools/living.py",
        function="living_majority",
        before="if len(present) < config.majority:",
        after="if len(present) <= config.majority:",
    ),
    Mutant(
        name="stuck config hides one that goes on",
        rows="CC-38",
        test=(
            "tests/unit/tools/test_living_majority.py::"
            "test_newer_config_that_is_stuck_does_not_hide_an_older_one_that_goes_on"
        ),
        file="replica/tools/living.py",
        function="living_majority",
        before="stuck = stuck or LivingMajority(config=config, present=uuids, obstacles=obstacles)",
        after="return LivingMajority(config=config, present=uuids, obstacles=obstacles)",
    ),
    Mutant(
        name="everybody has to be behind",
        rows="CC-38",
        test="tests/unit/tools/test_living_majority.py::test_rows_need_the_votes_of_a_majority_and_not_of_everybody",
        file="replica/tools/living.py",
        function="_leader",
        before="config.majority",
        after="len(present)",
    ),
    Mutant(
        name="working leader is not believed",
        rows="CC-38",
        test="tests/unit/tools/test_living_majority.py::test_leader_needs_no_election",
        file="replica/tools/living.py",
        function="_leader",
        before="return next(iter([*leading, *able]), None)",
        after="return next(iter(able), None)",
    ),
    Mutant(
        name="rows alone may lead",
        rows="CC-38, CC-53",
        test="tests/unit/tools/test_living_majority.py::test_only_a_voter_whose_rows_the_config_knows_can_be_elected",
        file="replica/tools/living.py",
        function="_may_lead",
        before="member.holds_data and not",
        after="not",
    ),
    Mutant(
        name="rows behind by index are enough",
        rows="CC-38",
        test=(
            "tests/unit/tools/test_living_majority.py::"
            "test_majority_with_a_witness_goes_on_only_if_the_rows_are_not_behind_its_log"
        ),
        file="replica/tools/living.py",
        function="_votes_for",
        before="return [r for r in present if r.last <= candidate.last and not _silenced(r)]",
        after="return [r for r in present if r.last.index <= candidate.last.index and not _silenced(r)]",
    ),
    Mutant(
        name="witness is a living member",
        rows="CC-38",
        test=(
            "tests/unit/tools/test_living_majority.py::"
            "test_majority_with_a_witness_goes_on_only_if_the_rows_are_not_behind_its_log"
        ),
        file="replica/tools/living.py",
        function="_votes_for",
        before="return [r for r in present if r.last <= candidate.last and not _silenced(r)]",
        after="return [r for r in present if not _silenced(r)]",
    ),
    Mutant(
        name="damaged end votes",
        rows="CC-38",
        test=(
            "tests/unit/tools/test_living_majority.py::test_voter_that_lost_the_end_of_its_log_neither_leads_nor_votes"
        ),
        file="replica/tools/living.py",
        function="_silenced",
        before="return replica.withheld > replica.last",
        after="return False",
    ),
    Mutant(
        name="other plan takes over",
        rows="CC-38",
        test="tests/unit/tools/test_recover_offline.py::test_another_plan_or_a_missing_directory_changes_nothing",
        file="replica/tools/plan_file.py",
        function="save_journal",
        before="elif found.fingerprint != plan.fingerprint:",
        after="elif not found.fingerprint:",
    ),
    Mutant(
        name="members that went on are compared again",
        rows="CC-44",
        test="tests/unit/tools/test_recover_offline.py::test_recovery_cut_off_anywhere_keeps_servers_out_and_goes_on",
        file="replica/tools/recover.py",
        function="Recovery.run",
        before="if self.only_fences_left:",
        after="if self.only_fences_left and all(disk.exists(FENCE) for disk in self._disks.values()):",
    ),
    Mutant(
        name="recovery tells the masters nothing",
        rows="IN-42",
        test=(
            "tests/unit/tools/test_recover_offline.py::"
            "test_recovery_tells_the_masters_each_forced_config_before_any_server_starts"
        ),
        file="replica/tools/recover.py",
        function="Recovery.run",
        before="""
            self.confirm_configs()
        """,
        after="",
    ),
    Mutant(
        name="server starts on half a recovery",
        rows="CC-43, CC-44",
        test="tests/unit/tools/test_recover_offline.py::test_recovery_cut_off_anywhere_keeps_servers_out_and_goes_on",
        file="replica/tools/recover.py",
        function="Recovery.fence",
        before="""
            save_journal(disk, self._plan)
        """,
        after="""
            if disk is self._disks[self._plan.tablets[0].survivor]:
                save_journal(disk, self._plan)
        """,
    ),
    Mutant(
        name="damaged survivor is copied over others",
        rows="CC-44",
        test="tests/unit/tools/test_recover_offline.py::test_survivor_that_went_bad_since_the_plan_changes_nothing",
        file="replica/tools/recover.py",
        function="Recovery.copy",
        before="if late and (lack := self._lack(tablet.survivor, tablet)):",
        after="if not late and (lack := self._lack(tablet.survivor, tablet)):",
    ),
    Mutant(
        name="damaged survivor is rewritten",
        rows="CC-44",
        test="tests/unit/tools/test_recover_offline.py::test_survivor_that_went_bad_since_the_plan_changes_nothing",
        file="replica/tools/recover.py",
        function="Recovery.rewrite",
        before="""
            for uuid in (tablet.survivor, *_others(tablet))
            if (lack := self._lack(uuid, tablet))
        """,
        after="""
            for uuid in _others(tablet)
            if (lack := self._lack(uuid, tablet))
        """,
    ),
    Mutant(
        name="rewrite does not wait for the copies",
        rows="CC-42",
        test=(
            "tests/unit/tools/test_recover_offline.py::"
            "test_rewrite_before_every_copy_is_there_is_refused_and_changes_nothing"
        ),
        file="replica/tools/recover.py",
        function="Recovery.rewrite",
        before="if (lack := self._lack(uuid, tablet))",
        after="if uuid == tablet.survivor and (lack := self._lack(uuid, tablet))",
    ),
    Mutant(
        name="member that went bad is not read back",
        rows="CC-46",
        test=(
            "tests/unit/tools/test_recover_offline.py::"
            "test_member_that_went_bad_after_its_rewrite_is_copied_anew_when_repeated"
        ),
        file="replica/tools/recover.py",
        function="Recovery.verify",
        before="_lacks(found, tablet) or found.config",
        after="found.config",
    ),
    Mutant(
        name="log is not read back",
        rows="CC-46",
        test=(
            "tests/unit/tools/test_recover_offline.py::"
            "test_log_that_lost_the_forced_config_after_its_rewrite_is_not_taken_for_recovered"
        ),
        file="replica/tools/recover.py",
        function="Recovery.verify",
        before="tablet.config or found.last != tablet.config.opid",
        after="tablet.config",
    ),
    Mutant(
        name="dropped source keeps the fences up",
        rows="CC-46",
        test="tests/unit/tools/test_recover_offline.py::test_source_of_a_dropped_table_keeps_no_recovery_from_its_end",
        file="replica/tools/recover.py",
        function="Recovery.lower_sources",
        before="if refusal.code is not Code.NOT_FOUND:",
        after="if refusal.code is not Code.NOT_READY:",
    ),
    Mutant(
        name="half rewritten recovery is abandoned",
        rows="CC-38, CC-44",
        test="tests/unit/tools/test_recover_offline.py::test_recovery_is_abandoned_only_before_a_config_is_rewritten",
        file="replica/tools/recover.py",
        function="_is_rewritten",
        before="read_offline(survivor, wal_folder(tablet.tablet_id), tablet.tablet_id).last == tablet.config.opid",
        after="False",
    ),
    Mutant(
        name="damaged target is taken for a copy",
        rows="CC-42",
        test=(
            "tests/unit/tools/test_recover_offline.py::"
            "test_target_whose_log_ends_alike_and_whose_rows_are_not_there_is_copied_over"
        ),
        file="replica/tools/recover.py",
        function="_look",
        before='return next(of_directory(disk, uuid, "", [tablet.tablet_id]), nothing)',
        after='return next(of_directory(disk, uuid, "", [tablet.tablet_id], blocks=False), nothing)',
    ),
    Mutant(
        name="witness is taken for a copy",
        rows="CC-42",
        test=(
            "tests/unit/tools/test_recover_offline.py::"
            "test_target_whose_log_ends_alike_and_whose_rows_are_not_there_is_copied_over"
        ),
        file="replica/tools/recover.py",
        function="_lacks",
        before="if found.witness:",
        after="if found.witness and not found.usable:",
    ),
    Mutant(
        name="tablets in no directory are passed over",
        rows="CC-39",
        test=(
            "tests/unit/tools/test_recovery_plan.py::test_tablets_of_a_table_come_from_directories_and_from_the_catalog"
        ),
        file="replica/tools/recovery_plan.py",
        function="chosen_tablets",
        before="held, *(t for name in tables for t in catalog.get(name, ()))",
        after="held",
    ),
    Mutant(
        name="running survivor is built upon",
        rows="CC-43",
        test="tests/unit/tools/test_recovery_plan.py::test_survivor_that_runs_has_to_be_stopped_first",
        file="replica/tools/recovery_plan.py",
        function="decide",
        before="if best.running:",
        after="if best.running and not best.place:",
    ),
    Mutant(
        name="copy goes over what cannot be read",
        rows="CC-42",
        test=(
            "tests/unit/tools/test_recovery_plan.py::"
            "test_target_that_may_have_promised_more_than_the_survivor_has_is_refused_before_anything_is_fenced"
        ),
        file="replica/tools/recovery_plan.py",
        function="decide",
        before="if replica.unreadable:",
        after="if replica.unreadable and replica.running:",
    ),
    Mutant(
        name="made of nothing",
        rows="CC-39",
        test=(
            "tests/unit/tools/test_recovery_plan.py::test_tablet_without_a_survivor_is_refused_with_what_is_left_of_it"
        ),
        file="replica/tools/recovery_plan.py",
        function="most_up_to_date",
        before="usable = [r for r in replicas if r.usable and not r.witness]",
        after="usable = [r for r in replicas if r.config is not None]",
    ),
    Mutant(
        name="config is believed over the disk",
        rows="CC-39",
        test="tests/unit/tools/test_recovery_plan.py::test_witness_whose_rows_are_there_is_built_upon",
        file="replica/tools/recovery_plan.py",
        function="most_up_to_date",
        before="not r.witness",
        after="all(m.holds_data for c in r.configs for m in c.members if m.uuid == r.server_uuid)",
    ),
    Mutant(
        name="longer log of an older term wins",
        rows="CC-40",
        test=(
            "tests/unit/tools/test_recovery_plan.py::"
            "test_survivor_is_the_one_whose_last_entry_has_the_higher_term_not_the_longer_log"
        ),
        file="replica/tools/recovery_plan.py",
        function="most_up_to_date",
        before="r.last",
        after="r.last.index",
    ),
    Mutant(
        name="term of an old member is used again",
        rows="CC-44",
        test=(
            "tests/unit/tools/test_recovery_plan.py::"
            "test_new_config_names_survivor_and_targets_and_begins_above_every_term_that_was_seen"
        ),
        file="replica/tools/recovery_plan.py",
        function="_plan_of",
        before="r.config is not None",
        after="r.usable",
    ),
    Mutant(
        name="tombstones tell nothing",
        rows="CC-41",
        test="tests/unit/tools/test_recovery_plan.py::test_plan_says_which_entries_are_known_to_be_lost_and_since_when",
        file="replica/tools/recovery_plan.py",
        function="_plan_of",
        before="known=max((_known(r) for r in replicas), default=ZERO_OPID),",
        after="known=max((_known(r) for r in replicas if r.usable), default=ZERO_OPID),",
    ),
    Mutant(
        name="plan does not say why a majority is not enough",
        rows="CC-38, CC-41",
        test="tests/unit/tools/test_living_majority.py::test_plan_says_why_nobody_can_be_elected_and_what_is_lost",
        file="replica/tools/recovery_plan.py",
        function="_plan_of",
        before='stuck=living.what if living is not None else "",',
        after='stuck="",',
    ),
    Mutant(
        name="unseen members are not named",
        rows="CC-38",
        test="tests/unit/tools/test_recovery_plan.py::test_members_of_which_nothing_was_seen_are_named",
        file="replica/tools/recovery_plan.py",
        function="_unseen",
        before="members = {m.uuid for r in replicas for c in r.configs for m in c.members}",
        after="members = {m.uuid for r in replicas if r.running for c in r.configs for m in c.members}",
    ),
    Mutant(
        name="position stays where it was",
        rows="CC-46",
        test="tests/unit/tools/test_recovery_plan.py::test_source_position_goes_back_to_what_the_survivor_has",
        file="replica/tools/recovery_plan.py",
        function="lower_sources",
        before="to = min(to, max((m.position for m in marks), default=0))",
        after="to = min(to, max((m.position for m in marks), default=to))",
    ),
    Mutant(
        name="fingerprint leaves the survivor out",
        rows="CC-38",
        test=(
            "tests/unit/tools/test_recovery_plan.py::"
            "test_fingerprint_names_the_decisions_and_the_plan_survives_its_file"
        ),
        file="replica/tools/recovery_plan.py",
        function="_fingerprint",
        before="t.tablet_id, t.survivor, str(t.config.opid), [m.uuid for m in t.config.members]",
        after="t.tablet_id",
    ),
    Mutant(
        name="plan replaces what a recovery could save",
        rows="CC-38",
        test=(
            "tests/unit/tools/test_replacement_plan.py::"
            "test_tablet_of_which_a_running_server_holds_rows_is_left_to_a_recovery"
        ),
        file="replica/tools/replacement.py",
        function="plan_replacement",
        before="if holders and not despite_replicas:",
        after="if info.running and not despite_replicas:",
    ),
    Mutant(
        name="plan promises what kafka has no more",
        rows="CC-46",
        test=(
            "tests/unit/tools/test_replacement_plan.py::"
            "test_replacement_says_what_is_read_again_and_what_kafka_has_no_more"
        ),
        file="replica/tools/replacement.py",
        function="_sources",
        before="if kept_from > p.start:",
        after="if kept_from > p.done:",
    ),
    Mutant(
        name="confirmed replacement throws more away",
        rows="CC-38",
        test="tests/unit/tools/test_replacement_plan.py::test_fingerprint_of_a_replacement_names_what_is_given_up",
        file="replica/tools/replacement.py",
        function="_fingerprint",
        before="given_up = [[t.tablet_id, list(t.members), list(t.with_rows)] for t in plan.tablets]",
        after="given_up = [[t.tablet_id, list(t.members)] for t in plan.tablets]",
    ),
)
