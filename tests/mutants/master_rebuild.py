"""Mutants: the catalog that is made of what tablet servers hold."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNIT = "tests/unit/master/test_master_rebuilding.py"
PURE = "replica/master/catalog/rebuilding.py"
SOURCES = "replica/master/catalog/sources.py"
EVIDENCE = "tests/unit/tools/test_server_evidence.py"
POSITIONS = f"{UNIT}::test_position_is_ahead_of_no_tablet_and_its_generation_below_none"
PROBLEMS = f"{UNIT}::test_what_does_not_agree_is_named_and_no_catalog_is_written"
SERVERS = f"{EVIDENCE}::test_servers_that_are_not_those_of_one_cluster_are_named"
PAGES = f"{EVIDENCE}::test_every_page_is_read_and_a_tablet_without_a_leader_is_named"

MUTANTS = tuple(
    Mutant(name=name, rows="OP-06", test=test, file=file, function=function, before=before, after=after)
    for name, test, file, function, before, after in (
        (
            "position is that of the tablet that has most",
            POSITIONS, PURE, "_positions",
            "done = max(lowest, min(highest, allowed.first_kept.get(key, 0)))", "done = highest",
        ),
        (
            "position is above what Kafka still has",
            POSITIONS, PURE, "_positions",
            "min(highest, allowed.first_kept.get(key, 0))", "allowed.first_kept.get(key, 0)",
        ),
        (
            "generation is one that tablets refuse",
            POSITIONS, PURE, "_positions",
            "generation = max(s.generation for _, s in of_key)", "generation = min(s.generation for _, s in of_key)",
        ),
        (
            "tablets of an earlier generation count",
            POSITIONS, PURE, "_positions", "for tablet_id, s in of_key if s.generation == generation}",
            "for tablet_id, s in of_key}",
        ),
        (
            "reset meets a generation that a query began before",
            POSITIONS, SOURCES, "reset_source",
            "max(record.generation, record.unseen_generation) + 1", "record.generation + 1",
        ),
        (
            "topic keeps the name that was guessed",
            POSITIONS, SOURCES, "open_sources", "topic=wanted.topic or record.topic,", "topic=record.topic,",
        ),
        (
            "topic that was replaced is in force",
            f"{UNIT}::test_topic_names_come_from_kafka_and_a_topic_that_was_replaced_is_retired",
            PURE, "_retired", "if renewed else position", "if False else position",
        ),
        (
            "decisions of the lost masters are newer",
            f"{UNIT}::test_term_is_above_each_decision_and_above_an_earlier_rebuild",
            "replica/master/group/rebuilt_catalog.py", "first_term",
            "next_generation(decision_term)", "decision_term",
        ),
        (
            "second catalog has the term of the first",
            f"{UNIT}::test_term_is_above_each_decision_and_above_an_earlier_rebuild",
            "replica/master/group/rebuilt_catalog.py", "first_term", " + now_us // MINUTE_US", "",
        ),
        (
            "half-written directory starts an empty master",
            f"{UNIT}::test_directory_of_a_rebuild_that_was_cut_off_starts_no_master",
            "replica/tools/rebuild.py", "write_master", "uuid=own.uuid, cluster_id=cluster_id)", "uuid=own.uuid)",
        ),
        (
            "member that was not asked is not named",
            PROBLEMS, PURE, "_unseen_members", "if m.uuid not in found.servers}", "if False}",
        ),
        (
            "two tables of one name",
            PROBLEMS, PURE, "_same_names", "if len(ids) > 1:", "if False:",
        ),
        (
            "two tablets of one place",
            PROBLEMS, PURE, "_disagreements", "if place in seen:", "if False:",
        ),
        (
            "missing tablet is not told",
            PROBLEMS, PURE, "rebuild_catalog", "if table.missing and not allowed.missing:", "if False:",
        ),
        (
            "number of voters is that of a tablet in a change",
            f"{UNIT}::test_replication_factor_is_the_odd_number_of_voters_that_most_tablets_have",
            PURE, "_replication_factor", "number if number % 2 else max(3, number - 1)", "number",
        ),
        (
            "one server is named twice",
            SERVERS, "replica/tools/server_evidence.py", "server_problems", "if count > 1)", "if False)",
        ),
        (
            "servers of two clusters",
            SERVERS, "replica/tools/server_evidence.py", "server_problems",
            "if len(clusters) > 1 else ()", "if False else ()",
        ),
        (
            "decision of a tombstone is not seen",
            PAGES, "replica/tools/server_evidence.py", "read_tablets",
            "for _, s in statuses for c in _configs(s))",
            "for _, s in statuses if s.data_state == 3 for c in _configs(s))",
        ),
    )
)  # fmt: skip
