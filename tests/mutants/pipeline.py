"""Mutants: pipeline."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TLS = "tests/unit/pipeline/test_tls_options.py::"

MUTANTS = (
    Mutant(
        name="offsets are asked for once in the whole time",
        test=(
            "tests/unit/pipeline/test_kafka_timeouts.py::"
            "test_offsets_are_asked_for_again_within_the_time_since_one_request_may_stay_with_a_dead_broker"
        ),
        file="pipeline/kafka_timeouts.py",
        function="spark_options",
        before="min(whole, max(whole // OFFSET_ATTEMPTS, OFFSET_ATTEMPT_MS_MIN))",
        after="whole",
    ),
    Mutant(
        name="attempt for offsets ends before a dead broker is noticed",
        test=("tests/unit/pipeline/test_kafka_timeouts.py::test_at_the_default_a_second_attempt_meets_the_new_leader"),
        file="pipeline/kafka_timeouts.py",
        function="spark_options",
        before="max(whole // OFFSET_ATTEMPTS, OFFSET_ATTEMPT_MS_MIN)",
        after="OFFSET_ATTEMPT_MS_MIN",
    ),
    Mutant(
        name="outcome stands before its decision",
        test="tests/unit/pipeline/test_decision_story.py::test_outcome_never_stands_before_its_decision",
        file="pipeline/decision_story.py",
        function="story",
        before="max(event.at_us, first.at_us) if first else event.at_us",
        after="event.at_us",
    ),
    Mutant(
        name="time that nobody measured",
        test="tests/unit/pipeline/test_decision_story.py::test_outcome_never_stands_before_its_decision",
        file="pipeline/decision_story.py",
        function="story",
        before="if before and took_us >= 0",
        after="if before",
    ),
    Mutant(
        name="doubled record is a second step",
        test="tests/unit/pipeline/test_decision_story.py::test_decision_that_was_written_twice_is_one",
        file="pipeline/decision_story.py",
        function="_identity",
        before="return _thing(event) if event.step in _BEGINS.values() else (event,)",
        after="return (event,)",
    ),
    Mutant(
        name="story in the order of reading",
        test="tests/unit/pipeline/test_decision_story.py::test_order_and_repetition_of_records_change_nothing",
        file="pipeline/decision_story.py",
        function="story",
        before="in sorted(set(events), key=_order)",
        after="in events",
    ),
    Mutant(
        name="unrelated decisions are steps of a plan",
        test="tests/unit/pipeline/test_decision_story.py::test_decisions_without_a_plan_are_no_steps_of_one",
        file="pipeline/decision_story.py",
        function="story",
        before="if event.plan_id:",
        after="if True:",
    ),
    Mutant(
        name="decision of another tablet is an outcome's own",
        test="tests/unit/pipeline/test_decision_story.py::test_outcomes_without_their_decision_are_counted",
        file="pipeline/decision_story.py",
        function="_thing",
        before="return event.subject, event.subject_id, event.tablet_id",
        after="return event.subject, event.subject_id.partition('@')[2] or event.subject_id",
    ),
    Mutant(
        name="event keeps a foreign text whole",
        test="tests/unit/pipeline/test_decision_story.py::test_texts_of_foreign_records_are_bounded",
        file="pipeline/decision_story.py",
        function="event_of",
        before="reason=record.message[:TEXT_CHARS_MAX]",
        after="reason=record.message",
    ),
    Mutant(
        name="withdrawal is no step",
        test="tests/unit/pipeline/test_decision_log.py::test_every_record_is_an_event_or_is_counted",
        file="pipeline/decision_log.py",
        function="DecisionLog._event",
        before="yield event_of(None, tablet_id, at_us)",
        after="pass",
    ),
    Mutant(
        name="unusable record is not counted",
        test="tests/unit/pipeline/test_decision_log.py::test_every_record_is_an_event_or_is_counted",
        file="pipeline/decision_log.py",
        function="DecisionLog._event",
        before="self.skipped[record.topic, found.fault.value] += 1",
        after="pass",
    ),
    Mutant(
        name="records of other tablets are decoded",
        test="tests/unit/pipeline/test_decision_log.py::test_records_of_other_tablets_are_left_out_undecoded",
        file="pipeline/decision_log.py",
        function="DecisionLog._event",
        before="if record.key is not None and not of_none and not self._wanted(tablet_id):",
        after="if False:",
    ),
    Mutant(
        name="removed records are not told",
        test="tests/unit/pipeline/test_decision_log.py::test_topics_that_are_missing_and_records_that_are_gone_are_told",
        file="pipeline/decision_log.py",
        function="DecisionLog._begin",
        before="if 0 < first[place] == begin[place]:",
        after="if False:",
    ),
    Mutant(
        name="time is no place to begin",
        test="tests/unit/pipeline/test_decision_log.py::test_reading_begins_at_a_time_or_at_the_newest_records",
        file="pipeline/decision_log.py",
        function="DecisionLog._begin",
        before="self._consumer.seek(place, begin[place])",
        after="pass",
    ),
    Mutant(
        name="list that is not whole looks whole",
        test="tests/unit/pipeline/test_decision_log.py::test_kafka_that_goes_away_ends_a_list_and_not_a_tail",
        file="pipeline/decision_log.py",
        function="DecisionLog._records",
        before="raise QueryInterrupted(",
        after="return (",
    ),
    Mutant(
        name="tail tells an outage at each poll",
        test="tests/unit/pipeline/test_decision_log.py::test_kafka_that_goes_away_ends_a_list_and_not_a_tail",
        file="pipeline/decision_log.py",
        function="DecisionLog.follow",
        before="if not away:",
        after="if True:",
    ),
    Mutant(
        name="largest row is no event",
        rows="IN-82",
        test=(
            "tests/unit/pipeline/test_publish_failures.py::"
            "test_row_or_key_that_no_table_takes_is_refused_before_it_is_sent"
        ),
        file="pipeline/decode.py",
        function="RowDecoder.decode",
        before="limits.ROW_EVENT_BYTES_MAX",
        after="limits.ROW_SIZE_BYTES_MAX",
    ),
    Mutant(
        name="publisher takes rows that no table takes",
        rows="IN-82",
        test=(
            "tests/unit/pipeline/test_publish_failures.py::"
            "test_row_or_key_that_no_table_takes_is_refused_before_it_is_sent"
        ),
        file="pipeline/publish.py",
        function="_check_size",
        before="if size > most:",
        after="if size > 2 * most:",
    ),
    Mutant(
        name="topic does not take the largest row",
        rows="IN-82",
        test=(
            "tests/unit/pipeline/test_publish_failures.py::"
            "test_row_or_key_that_no_table_takes_is_refused_before_it_is_sent"
        ),
        file="replica/types/kafka_topics.py",
        function="",
        before="str(2 * limits.ROW_SIZE_BYTES_MAX)",
        after="str(limits.ROW_SIZE_BYTES_MAX)",
    ),
    *(
        Mutant(
            name=f"{sink} takes no large row",
            rows="IN-02",
            test=(
                "tests/unit/pipeline/test_publish_failures.py::"
                "test_no_record_that_a_topic_of_rows_takes_is_refused_by_a_publishers_client"
            ),
            file="pipeline/publish.py",
            function=f"{sink}.__init__",
            before="_MESSAGE_BYTES_MAX",
            after="1 << 20",
        )
        for sink in ("_KafkaSink", "_BulkSink")
    ),
    Mutant(
        name="pipeline imports all its modules",
        rows="IN-72",
        test="tests/unit/infra/test_command_imports.py::test_package_on_demand_gives_all_its_names",
        file="pipeline/__init__.py",
        before="if TYPE_CHECKING:",
        after="if lazy_imports:",
        on_disk=True,
    ),
    Mutant(
        name="decimals of records lose their sign",
        rows="IN-02",
        test="tests/unit/pipeline/test_decode_twin.py::test_random_rows_decode_as_fastavro_reads_them",
        file="pipeline/avro_columns.py",
        function="unscaled_words",
        before="filler = np.where((lead & 0x80).astype(bool) & (lengths > 0), 0xFF, 0).astype(np.uint8)",
        after="filler = np.zeros(len(lead), np.uint8)",
    ),
    Mutant(
        name="forged term locks later decisions out",
        rows="IN-90",
        test=(
            "tests/unit/pipeline/test_supervise_runs.py::"
            "test_decision_of_a_term_that_no_master_has_reached_changes_nothing"
        ),
        file="pipeline/decision_tasks.py",
        function="newest",
        before="elif decision.catalog_term > term_max:",
        after="elif False:",
    ),
    Mutant(
        name="late decision of a deposed master is in force",
        rows="TC-69",
        test=(
            "tests/unit/pipeline/test_supervise_runs.py::"
            "test_decision_of_a_deposed_master_is_dropped_wherever_it_stands"
        ),
        file="pipeline/decision_tasks.py",
        function="newest",
        before="elif key is not None and decision.catalog_term >= terms.get(key, 0):",
        after="elif key is not None:",
    ),
    Mutant(
        name="defect in a decision counts as stale",
        rows="IN-90",
        test="tests/unit/pipeline/test_supervise_runs.py::test_decision_that_meets_a_defect_ends_as_failed",
        file="replica/decision_executor/executor.py",
        function="DecisionExecutor._outcome",
        before="Refused(Code.ILLEGAL_STATE, f",
        after="Refused(Code.CAS_FAILED, f",
    ),
    Mutant(
        name="task does not wait for its outcomes",
        rows="none",
        test=("tests/unit/pipeline/test_decision_tasks.py::test_task_fails_if_kafka_has_not_acknowledged_its_outcomes"),
        file="pipeline/decision_tasks.py",
        function="produced",
        before="producer.flush()",
        after="pass",
    ),
    Mutant(
        name="terms of a micro-batch are forgotten",
        rows="TC-69",
        test=(
            "tests/unit/pipeline/test_decision_tasks.py::"
            "test_term_of_a_key_holds_in_later_micro_batches_and_in_one_that_runs_again"
        ),
        file="pipeline/decisions.py",
        function="DecisionsQuery._note",
        before="self._terms = with_terms(self._terms, risen, TERMS_KEPT_MAX)",
        after="self._terms = risen",
    ),
    Mutant(
        name="driver collects every term again",
        rows="none",
        test="tests/unit/pipeline/test_decision_tasks.py::test_only_terms_that_rose_reach_the_driver",
        file="pipeline/decision_tasks.py",
        function="rows_of",
        before="if term > plan.terms.get(key, 0)]",
        after="if term]",
    ),
    Mutant(
        name="kept terms grow without a bound",
        rows="none",
        test=(
            "tests/unit/pipeline/test_decision_tasks.py::test_terms_that_are_kept_are_bounded_and_the_oldest_go_first"
        ),
        file="pipeline/decisions.py",
        function="with_terms",
        before="max(0, len(both) - most)",
        after="0",
    ),
    Mutant(
        name="ingest lease is kept after the run",
        rows="none",
        test="tests/unit/pipeline/test_ingest_run.py::test_lease_is_given_back_however_a_run_ends",
        file="pipeline/ingest.py",
        function="IngestQuery._give_back",
        before="self._lease.release()",
        after="self._lease.advance({})",
    ),
    Mutant(
        name="ingest checkpoint of another topic is taken",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::"
            "test_checkpoint_of_another_table_or_topic_is_refused_before_anything_is_read"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._open",
        before='if own.get("topic_id", self._topic.topic_id) != self._topic.topic_id:',
        after='if own.get("topic_id", "") == "":',
    ),
    Mutant(
        name="ingest grown topic is taken if any growth was",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::"
            "test_topic_that_grew_between_runs_is_refused_until_just_that_is_accepted"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._open",
        before="if known and known < now and options.accept_partitions != now:",
        after="if known and known < now and not options.accept_partitions:",
    ),
    Mutant(
        name="ingest grown topic is taken unasked",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::"
            "test_topic_that_grew_between_runs_is_refused_until_just_that_is_accepted"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._open",
        before="if known and known < now and options.accept_partitions != now:",
        after="if known and known < now and options.accept_partitions not in (0, now):",
    ),
    Mutant(
        name="ingest checkpoint of another table is taken",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::"
            "test_checkpoint_of_another_table_or_topic_is_refused_before_anything_is_read"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._open",
        before='lease.open(opens, own.get("table_id", ""), options.owner_wait_s, self._stopping)',
        after='lease.open(opens, "", options.owner_wait_s, self._stopping)',
    ),
    Mutant(
        name="ingest reads from the beginning without a checkpoint",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::"
            "test_reading_begins_where_the_catalog_is_done_and_skips_no_partition"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._start_query",
        before="position.done for p, position",
        after="0 for p, _",
    ),
    Mutant(
        name="ingest lost data is passed over",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::"
            "test_reading_begins_where_the_catalog_is_done_and_skips_no_partition"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._start_query",
        before='"failOnDataLoss", "true")',
        after='"failOnDataLoss", "false")',
    ),
    Mutant(
        name="ingest topic is not looked at before the tasks",
        rows="none",
        test="tests/unit/pipeline/test_ingest_run.py::test_topic_that_changes_under_a_query_ends_it_before_done_moves",
        file="pipeline/ingest.py",
        function="IngestQuery._carry_out",
        before="""
            self._topics.check_unchanged(self._topic, self._table.name)
            ends = self._checkpoint.batch_end(batch_id, self._topic.topic)
        """,
        after="""
            ends = self._checkpoint.batch_end(batch_id, self._topic.topic)
        """,
    ),
    Mutant(
        name="ingest done moves before the tasks",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::test_done_moves_when_all_tasks_have_ended_and_before_spark_commits"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._carry_out",
        before="""
            results = rows.mapInArrow(partial(run_task, self._plan(lease)), RESULT_SCHEMA).collect()
        """,
        after="""
            lease.advance(ends)
            results = rows.mapInArrow(partial(run_task, self._plan(lease)), RESULT_SCHEMA).collect()
        """,
    ),
    Mutant(
        name="ingest topic is not looked at after the tasks",
        rows="none",
        test="tests/unit/pipeline/test_ingest_run.py::test_topic_that_changes_under_a_query_ends_it_before_done_moves",
        file="pipeline/ingest.py",
        function="IngestQuery._carry_out",
        before="""
            self._topics.check_unchanged(self._topic, self._table.name)
            progress = Progress(batch_id=batch_id, duration_s=time.perf_counter() - started, ends=ends)
        """,
        after="""
            progress = Progress(batch_id=batch_id, duration_s=time.perf_counter() - started, ends=ends)
        """,
    ),
    Mutant(
        name="ingest acknowledged offsets are forgotten",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::test_done_moves_when_all_tasks_have_ended_and_before_spark_commits"
        ),
        file="pipeline/ingest.py",
        function="IngestQuery._plan",
        before="known={partition: dict(known) for partition, known in self._known.items()},",
        after="known={},",
    ),
    Mutant(
        name="ingest idle query ends with kafka",
        rows="none",
        test="tests/unit/pipeline/test_ingest_run.py::test_topic_that_changes_while_a_query_waits_for_records_ends_it",
        file="pipeline/ingest.py",
        function="IngestQuery._watch_topic",
        before="""
            # Kafka does not answer: the query itself notices that, or waits.
            continue
        """,
        after="""
            self._end_query()
            return
        """,
    ),
    Mutant(
        name="lease of a dead run is waited for",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::test_lease_of_a_dead_run_is_taken_at_once_and_a_living_ones_is_not"
        ),
        file="pipeline/lease.py",
        function="SourceLease.open",
        before="""
            if self._release_dead(known):
                continue
        """,
        after="",
    ),
    Mutant(
        name="lease renewed is waited for",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::"
            "test_lease_is_waited_for_until_it_runs_out_or_is_seen_to_be_renewed"
        ),
        file="pipeline/lease.py",
        function="SourceLease.open",
        before="if renewed or time.monotonic() > deadline or stopping.wait(POLL_S):",
        after="if time.monotonic() > deadline or stopping.wait(POLL_S):",
    ),
    Mutant(
        name="lease release names no source",
        rows="none",
        test="tests/unit/pipeline/test_ingest_run.py::test_lease_is_given_back_however_a_run_ends",
        file="pipeline/lease.py",
        function="SourceLease.advance",
        before="for each, at in sorted({**self.positions, **moved}.items())",
        after="for each, at in sorted(moved.items())",
    ),
    Mutant(
        name="lease of a living run is taken",
        rows="none",
        test=(
            "tests/unit/pipeline/test_ingest_run.py::test_lease_of_a_dead_run_is_taken_at_once_and_a_living_ones_is_not"
        ),
        file="pipeline/lease.py",
        function="SourceLease._release_dead",
        before="for p in known if is_dead(p.owner_run)",
        after="for p in known if p.owner_run",
    ),
    Mutant(
        name="row event with an unknown column is published",
        rows="IN-70",
        test="tests/unit/pipeline/test_publish_failures.py::test_row_event_that_cannot_be_is_refused_with_the_row",
        file="pipeline/publish.py",
        function="RowEncoder.value",
        before="if not row.keys() <= self._columns:",
        after="if not row.keys():",
    ),
    Mutant(
        name="publisher waits for an absent broker",
        rows="IN-70",
        test="tests/unit/pipeline/test_publish_failures.py::test_publisher_without_a_broker_says_so_at_once",
        file="pipeline/publish.py",
        function="RowPublisher.__init__",
        before="""
            _need_topic(bootstrap, topic, security)
        """,
        after="",
    ),
    Mutant(
        name="row event fails in a library",
        rows="IN-70",
        test="tests/unit/pipeline/test_publish_failures.py::test_row_event_that_cannot_be_is_refused_with_the_row",
        file="pipeline/publish.py",
        function="_write",
        before="except (TypeError, ValueError, ArithmeticError, AttributeError, KeyError) as error:",
        after="except EOFError as error:",
    ),
    Mutant(
        name="stranger hides a report",
        rows="IN-90",
        test="tests/unit/pipeline/test_supervise_runs.py::test_report_of_a_stranger_hides_no_report_of_the_masters",
        file="pipeline/plan_tasks.py",
        function="newest_reports",
        before="if not isinstance(report, Unusable):",
        after="if True:",
    ),
    Mutant(
        name="filters of a query stay in the plan",
        rows="none",
        test="tests/unit/pipeline/test_source_reader.py::test_filters_of_spark_are_left_to_spark",
        file="pipeline/source/data_source.py",
        function="NyalaSource.reader",
        before="return Reader(options, handle, tuple(schema.names))",
        after="""
            from dataclasses import replace

            class Pushing(Reader):
                def pushFilters(self, filters):
                    for each in filters:
                        if type(each).__name__ == "EqualTo":
                            self.options = replace(self.options, where=f"{each.attribute[0]} = {each.value}")
                        else:
                            yield each

            return Pushing(options, handle, tuple(schema.names))
        """,
    ),
    Mutant(
        name="spark time without an end",
        rows="IN-82",
        test="tests/unit/api/test_api_hostile_arguments.py::test_spark_option_that_cannot_be_is_refused",
        file="pipeline/source/reader.py",
        function="_time_of",
        before="if not 0 < time <= MAX_HYBRID_TIME:",
        after="if time == 0:",
    ),
    *(
        Mutant(
            name=f"every tablet is asked for the time of a {kind} read",
            rows="none",
            test=(
                "tests/unit/pipeline/test_source_reader.py"
                f"::test_tablet_that_a_read_does_not_need_is_not_asked_for_the_time[more{number}]"
            ),
            file="pipeline/source/reader.py",
            function=function,
            before=before,
            after=after,
        )
        for number, kind, function, before, after in (
            (
                1,
                "stale",
                "Reader._time_of_query",
                "staleness_us, asked)",
                "staleness_us, self.handle.tablets)",
            ),
            (
                2,
                "future",
                "Reader._time_of_all_queries",
                "us_of_hybrid(client.snapshot_time(self.handle, tablets=asked))",
                "us_of_hybrid(client.snapshot_time(self.handle, tablets=self.handle.tablets))",
            ),
        )
    ),
    Mutant(
        name="pushdown every column is read",
        rows="none",
        test="tests/unit/pipeline/test_source_reader.py::test_only_the_columns_that_were_asked_for_are_read",
        file="pipeline/source/reader.py",
        function="Reader.partitions",
        before="columns=self.columns,",
        after="columns=None,",
    ),
    Mutant(
        name="spark tasks are refused one by one",
        rows="IN-61",
        test=(
            "tests/unit/pipeline/test_source_reader.py::"
            "test_conditions_beyond_what_a_scan_may_have_are_refused_at_the_driver"
        ),
        file="pipeline/source/reader.py",
        function="Reader.partitions",
        before="""
            check_spec(self.handle, spec)
        """,
        after="",
    ),
    Mutant(
        name="spark query is of when its tasks run",
        rows="none",
        test=(
            "tests/unit/pipeline/test_source_reader.py::"
            "test_all_tasks_of_a_query_read_at_one_time_and_those_of_the_next_at_a_later_one"
        ),
        file="pipeline/source/reader.py",
        function="Reader._time_of_query",
        before="at = times.agreed(shared_client(self.options.masters, self.options.tls), choose)",
        after="at = choose()",
    ),
    Mutant(
        name="spark plan has one time",
        rows="none",
        test=(
            "tests/unit/pipeline/test_source_reader.py::"
            "test_all_tasks_of_a_query_read_at_one_time_and_those_of_the_next_at_a_later_one"
        ),
        file="pipeline/source/reader.py",
        function="Reader.partitions",
        before="if self.options.at_time or self.options.at_first_use:",
        after="if True:",
    ),
    Mutant(
        name="spark plan has one strong time",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_seen.py::test_each_query_of_one_plan_is_fresh_and_none_goes_back",
        file="pipeline/source/reader.py",
        function="Reader.partitions",
        before="if self.options.at_time or self.options.at_first_use:",
        after="if not self.options.staleness_us:",
    ),
    Mutant(
        name="at = now is of each query",
        rows="none",
        test=(
            "tests/unit/pipeline/test_source_reader.py::test_dataframe_of_its_first_use_has_one_time_for_all_queries"
        ),
        file="pipeline/source/reader.py",
        function="Reader.partitions",
        before="if self.options.at_time or self.options.at_first_use:",
        after="if self.options.at_time:",
    ),
    Mutant(
        name="spark query is forgotten",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_seen.py::test_stale_read_is_not_older_than_what_the_masters_have_forgotten",
        file="pipeline/source/reader.py",
        function="Reader._time_of_query",
        before="observe_time(self.handle, self.options.masters, at, times.folder)",
        after="pass",
    ),
    Mutant(
        name="spark query forgets what was written",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_seen.py::test_stale_read_of_a_spark_application_holds_what_it_wrote",
        file="pipeline/source/reader.py",
        function="Reader._client_with_time_seen",
        before="if times is None or times.beside_driver:",
        after="if False:",
    ),
    Mutant(
        name="spark plan is forgotten",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_seen.py::test_stale_read_after_a_spark_read_of_a_chosen_time",
        file="pipeline/source/reader.py",
        function="Reader._time_of_all_queries",
        before="client.observe(observe_time(self.handle, self.options.masters, at))",
        after="client.observe(at)",
    ),
    Mutant(
        name="spark stage is repeated at another time",
        rows="none",
        test=(
            "tests/unit/pipeline/test_source_reader.py::"
            "test_all_tasks_of_a_query_read_at_one_time_and_those_of_the_next_at_a_later_one"
        ),
        file="pipeline/source/query_time.py",
        function="QueryTimes.agreed",
        before="query = _running_query()",
        after="query = _running_query() + choose()",
    ),
    Mutant(
        name="spark task takes its own time",
        rows="none",
        test="tests/unit/pipeline/test_query_time.py::test_first_task_sets_the_time_of_the_query_for_all",
        file="pipeline/source/query_time.py",
        function="QueryTimes.agreed",
        before="client.agree_read_time(self.load, query, choose())",
        after="(client.agree_read_time(self.load, query, mine := choose()) and mine)",
    ),
    Mutant(
        name="each spark task chooses a time",
        rows="none",
        test="tests/unit/pipeline/test_query_time.py::test_task_of_a_query_that_has_a_time_asks_once_and_chooses_none",
        file="pipeline/source/query_time.py",
        function="QueryTimes.agreed",
        before="return client.agree_read_time(self.load, query) or",
        after="return",
    ),
    Mutant(
        name="each spark load is an application",
        rows="none",
        test="tests/unit/pipeline/test_query_time.py::test_loads_of_one_driver_are_of_one_application",
        file="pipeline/source/query_time.py",
        function="QueryTimes.new",
        before="if folder else new_uuid()",
        after="if False else new_uuid()",
    ),
    Mutant(
        name="spark task of an rdd goes on",
        rows="none",
        test="tests/unit/pipeline/test_source_reader.py::test_tasks_of_an_rdd_read_nothing",
        file="pipeline/source/query_time.py",
        function="_running_query",
        before="if query is None:",
        after="if query is None and (query := 0):",
    ),
    Mutant(
        name="spark task on another host chooses a stale time",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_reader.py::test_tasks_on_another_host_read_at_the_time_of_the_query",
        file="pipeline/source/reader.py",
        function="Reader._time_of_query",
        before="if times.beside_driver else 0",
        after="if times.folder else 0",
    ),
    Mutant(
        name="spark task on another host needs the driver's folder",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_reader.py::test_tasks_on_another_host_read_at_the_time_of_the_query",
        file="pipeline/source/query_time.py",
        function="QueryTimes.beside_driver",
        before="return not self.folder or Path(self.folder).is_dir()",
        after="return True",
    ),
    Mutant(
        name="spark read with a time asks for one",
        rows="none",
        test="tests/unit/pipeline/test_source_reader.py::test_read_with_a_time_asks_the_masters_for_none",
        file="pipeline/source/reader.py",
        function="Reader.partitions",
        before="if self.options.at_time or self.options.at_first_use:",
        after="""
        QueryTimes.new(shared_client(self.options.masters, self.options.tls))
        if self.options.at_time or self.options.at_first_use:
        """,
    ),
    Mutant(
        name="masters of an earlier version are not named",
        rows="none",
        test="tests/unit/pipeline/test_query_time.py::test_masters_of_an_earlier_version_are_refused_and_the_remedy_is_named",
        file="replica/client/client.py",
        function="Client._agree_read_time",
        before="if not error.what.startswith(NOT_OFFERED):",
        after="if error:",
    ),
    Mutant(
        name="workers undo each other",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_seen.py::test_time_is_the_highest_of_all_workers",
        file="pipeline/source/application_time.py",
        function="observe_time",
        before="if hybrid_time > before:",
        after="if hybrid_time:",
    ),
    Mutant(
        name="number of a condition is raised",
        rows="IN-82",
        test="tests/unit/api/test_api_hostile_arguments.py::test_condition_as_text_that_is_none_is_refused",
        file="pipeline/source/where.py",
        function="_Parser._value",
        before="except (ValueError, decimal.InvalidOperation):",
        after="except KeyError:",
    ),
    Mutant(
        name="spark write attempts share a client",
        rows="none",
        test=(
            "tests/e2e/test_spark_source.py::"
            "test_spark_write_task_that_dies_after_its_first_batch_is_repeated_and_the_table_is_right"
        ),
        file="pipeline/source/writer.py",
        function="Writer.write",
        before="""
            sending = Sending(self, writer, client.options.writes_inflight_max)
        """,
        after="""
            from pyspark import TaskContext

            writer._identity.client_id = f"{TaskContext.get().partitionId() + 1:032x}"
            sending = Sending(self, writer, client.options.writes_inflight_max)
        """,
    ),
    Mutant(
        name="spark commit is forgotten",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_seen.py::test_stale_read_of_a_spark_application_holds_what_it_wrote",
        file="pipeline/source/writer.py",
        function="Writer.commit",
        before="observe_time(self.handle, self.options.masters, newest)",
        after="observe_time(self.handle, self.options.masters, 0)",
    ),
    Mutant(
        name="two spellings of one cluster keep two times",
        rows="IN-10",
        test="tests/unit/pipeline/test_source_seen.py::test_time_of_an_application_is_of_one_cluster",
        file="pipeline/source/application_time.py",
        function="observe_time",
        before="cluster = handle.cluster_id or _spelling(masters)",
        after="cluster = _spelling(masters)",
    ),
    Mutant(
        name="table does not say of which cluster it is",
        rows="IN-10",
        test="tests/unit/master/test_master_lists.py::test_client_puts_the_pages_of_one_table_together",
        file="replica/client/masters.py",
        function="_whole_table",
        before=", cluster_id=first.cluster_id",
        after="",
    ),
    Mutant(
        name="left out rows are not told",
        rows="IN-11",
        test="tests/unit/pipeline/test_spark_writer_order.py::test_job_that_left_rows_out_says_so_in_the_log",
        file="pipeline/source/writer.py",
        function="Writer.commit",
        before="_log.warning(",
        after="_log.debug(",
    ),
    Mutant(
        name="spark job names another row",
        rows="IN-11",
        test=(
            "tests/unit/pipeline/test_spark_writer_order.py::"
            "test_failed_rows_are_counted_and_only_the_first_are_kept_with_their_keys"
        ),
        file="pipeline/source/writer.py",
        function="_KeysOfBatches.of",
        before="table.slice(row - first, 1)",
        after="table.slice(0, 1)",
    ),
    Mutant(
        name="spark job passes over failed rows",
        rows="IN-11",
        test=(
            "tests/unit/pipeline/test_spark_writer_order.py::"
            "test_failed_rows_are_counted_and_only_the_first_are_kept_with_their_keys"
        ),
        file="pipeline/source/writer.py",
        function="Sending.finish",
        before='if self.failed and self._to.options.on_error == "raise":',
        after='if self.failed and self._to.options.on_error == "fail":',
    ),
    Mutant(
        name="spark option on error is not heeded",
        rows="IN-11",
        test="tests/unit/pipeline/test_spark_writer_order.py::test_failed_rows_are_left_out_if_the_option_says_so",
        file="pipeline/source/writer.py",
        function="Sending.finish",
        before='if self.failed and self._to.options.on_error == "raise":',
        after="if self.failed:",
    ),
    Mutant(
        name="unknown age is none",
        rows="IN-71",
        test="tests/unit/pipeline/test_source_lag.py::test_lag_is_counted_in_records_and_in_seconds",
        file="pipeline/source_lag.py",
        function="source_lags",
        before="age_s = max(0.0, now() - ms / 1000) if ms >= 0 else None",
        after="age_s = max(0.0, now() - ms / 1000) if ms >= 0 else 0.0",
    ),
    Mutant(
        name="age of the last record",
        rows="IN-71",
        test="tests/unit/pipeline/test_source_lag.py::test_lag_is_counted_in_records_and_in_seconds",
        file="pipeline/source_lag.py",
        function="_written_at",
        before="for record in records[:1]:",
        after="for record in records:",
    ),
    Mutant(
        name="task succeeds before its letters are out",
        rows="none",
        test=(
            "tests/unit/pipeline/test_task_records.py::"
            "test_task_succeeds_when_tablets_and_dead_letter_topic_have_all_records"
        ),
        file="pipeline/task.py",
        function="Task.run",
        before="""
            self._sink.flush()
        """,
        after="",
    ),
    Mutant(
        name="task forgets records before tablets answer",
        rows="none",
        test="tests/unit/pipeline/test_task_records.py::test_records_are_kept_until_the_tablets_have_answered",
        file="pipeline/task.py",
        function="Task._take",
        before="""
            self._sender.flush()
        """,
        after="",
    ),
    Mutant(
        name="task takes records of two partitions",
        rows="none",
        test="tests/unit/pipeline/test_task_records.py::test_records_that_were_sorted_or_shuffled_end_the_query",
        file="pipeline/task.py",
        function="Task._check_order",
        before="if (partitions != self._partition).any():",
        after="if (partitions != partitions[0]).any():",
    ),
    Mutant(
        name="task takes records out of order",
        rows="none",
        test="tests/unit/pipeline/test_task_records.py::test_records_that_were_sorted_or_shuffled_end_the_query",
        file="pipeline/task.py",
        function="Task._check_order",
        before="if offsets[0] <= self._last_offset or (np.diff(offsets) <= 0).any():",
        after="if (np.diff(offsets) <= 0).any():",
    ),
    Mutant(
        name="lost broker interrupts the query",
        test="tests/unit/pipeline/test_topics_identity.py::test_broken_connection_is_made_anew_once",
        file="pipeline/topics.py",
        function="Topics._call",
        before="except KafkaConnectionError:",
        after="except MemoryError:",
    ),
    Mutant(
        name="sources query goes on in another cluster",
        rows="none",
        test="tests/unit/pipeline/test_ingest_run.py::test_topic_that_changes_under_a_query_ends_it_before_done_moves",
        file="pipeline/topics.py",
        function="Topics.check_unchanged",
        before="if now.cluster_id != expected.cluster_id:",
        after="if now.cluster_id != now.cluster_id:",
    ),
    Mutant(
        name="removed records are passed over",
        rows="CC-41",
        test="tests/unit/pipeline/test_topics_identity.py::test_records_that_kafka_removed_unread_are_named_one_by_one",
        file="pipeline/topics.py",
        function="Topics.check_retained",
        before="if gone:",
        after="if gone and not first:",
    ),
    Mutant(
        name="time that is no number is taken",
        rows="IN-70",
        test="tests/unit/infra/test_careless_commands.py::test_number_that_an_option_of_a_job_cannot_take_is_refused_in_one_line",
        file="pipeline/arguments.py",
        function="seconds.read",
        before="if not least <= value <= most",
        after="if value < least or value > most",
    ),
    Mutant(
        name="removed letters are counted",
        rows="IN-90",
        test=("tests/unit/pipeline/test_letters_pages.py::test_check_counts_the_records_that_did_not_become_rows"),
        file="pipeline/dead_letter_reader.py",
        function="letters_held",
        before="max(0, ends[place] - first[place])",
        after="max(0, ends[place])",
    ),
    Mutant(
        name="value of a row event is not checked",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[int64]"
        ),
        file="pipeline/publish.py",
        function="RowEncoder.value",
        before="datum = _exact(self._values, row)",
        after="datum = dict(row)",
    ),
    Mutant(
        name="row event has a number beyond its column",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[int8]"
        ),
        file="pipeline/row_values.py",
        function="_rule",
        before="type(value) is int and low <= value <= high",
        after="type(value) is int",
    ),
    Mutant(
        name="time without a zone is local in a row event",
        rows="IN-01",
        test=(
            "tests/unit/rows/test_rows_conversion.py::test_value_is_stored_as_it_was_given_or_refused_through_every_way_in[timestamp]"
        ),
        file="pipeline/row_values.py",
        function="_rule",
        before="type(value) is dt.datetime and value.tzinfo is not None",
        after="type(value) is dt.datetime",
    ),
    Mutant(
        name="stored schema that is none stops its table",
        rows="IN-82",
        test="tests/unit/pipeline/test_decode_rows.py::test_stored_schema_that_is_none_stops_no_table",
        file="pipeline/decode.py",
        function="_parsed",
        before="except ValueError as error:",
        after="except ZeroDivisionError as error:",
    ),
    Mutant(
        name="stored schema that is none is not told",
        rows="IN-82",
        test="tests/unit/pipeline/test_decode_rows.py::test_stored_schema_that_is_none_stops_no_table",
        file="pipeline/decode.py",
        function="_tell_unusable",
        before="_log.warning(what, begins, why)",
        after="pass",
    ),
    Mutant(
        name="number of a schema is not checked",
        rows="IN-82",
        test="tests/unit/pipeline/test_decode_rows.py::test_stored_schema_that_is_none_stops_no_table",
        file="pipeline/avro_columns.py",
        function="_number",
        before="not 0 <= value <= most",
        after="False",
    ),
    Mutant(
        name="placement job forgets its tables",
        rows="OP-08",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_placement_is_of_what_is_asked_and_of_nothing_else",
        file="pipeline/rebalance.py",
        function="PlacementOptions.moves",
        before="tables=subject,",
        after="",
    ),
    Mutant(
        name="placement job forgets the lost replicas",
        rows="OP-08",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_placement_is_of_what_is_asked_and_of_nothing_else",
        file="pipeline/rebalance.py",
        function="PlacementOptions.moves",
        before="under_replicated=self.under_replicated,",
        after="",
    ),
    Mutant(
        name="table without reports is left out in silence",
        rows="OP-08",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_placement_is_of_what_is_asked_and_of_nothing_else",
        file="pipeline/rebalance.py",
        function="PlacementOptions.subject",
        before="sorted(set(self.tables) - of_name.keys())",
        after="sorted(set(self.tables) - set(self.tables))",
    ),
    Mutant(
        name="unsettled tablets of other tables are named",
        rows="OP-08",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_placement_is_of_what_is_asked_and_of_nothing_else",
        file="pipeline/rebalance.py",
        function="Plan._about",
        before="if not self.subject or t.table_id in self.subject",
        after="if t.table_id",
    ),
    Mutant(
        name="tablet that moves counts as left alone",
        rows="OP-08",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_placement_is_of_what_is_asked_and_of_nothing_else",
        file="pipeline/rebalance.py",
        function="Plan.unsettled",
        before=" if t not in moved",
        after="",
    ),
    Mutant(
        name="placement without a goal plans nothing",
        rows="OP-08",
        test="tests/unit/pipeline/test_rebalance_words.py::test_a_placement_is_of_what_is_asked_and_of_nothing_else",
        file="pipeline/rebalance.py",
        function="PlacementOptions.__post_init__",
        before="if not (self.tables or self.under_replicated or self.spread or self.drain):",
        after="if not goals:",
    ),
    *(
        Mutant(
            name=name,
            rows="none",
            test="tests/unit/pipeline/test_plan_rounds.py::test_json_states_what_is_published",
            file="pipeline/rebalance.py",
            function=function,
            before=before,
            after=after,
        )
        for name, function, before, after in (
            ("plan has no deadline", "Rebalancer.plan", "int(self._options.deadline_s * 1e6)", "0"),
            ("proposals have no deadline", "Plan.proposals", "self.deadline_us", "0"),
        )
    ),
    *(
        Mutant(
            name=name,
            rows="IN-90",
            test=f"tests/unit/pipeline/test_bad_headers.py::{test}",
            file=file,
            function=function,
            before=before,
            after=after,
        )
        for name, test, file, function, before, after in (
            (
                "bad header ends the reading of letters",
                "test_letters_beside_a_record_that_cannot_be_decoded_are_read",
                "pipeline/dead_letter_reader.py",
                "_records",
                "poll(consumer, PAGE_LETTERS_MAX, skipped):",
                "((p, r) for p, found in consumer.poll(timeout_ms=500).items() for r in found):",
            ),
            (
                "letter with a bad header is not shown",
                "test_letters_beside_a_record_that_cannot_be_decoded_are_read",
                "pipeline/dead_letter_reader.py",
                "_records",
                "yield from undecodable",
                "pass",
            ),
            (
                "bad header ends the look at the lag",
                "test_lag_behind_a_record_that_cannot_be_decoded_has_no_age",
                "pipeline/source_lag.py",
                "_written_at",
                "suppress(*POISON)",
                "suppress(KeyError)",
            ),
            (
                "bad header ends the wait for outcomes",
                "test_outcomes_beside_a_record_that_cannot_be_decoded_are_followed",
                "pipeline/rebalance.py",
                "Rebalancer._outcomes",
                "poll(consumer, OUTCOMES_PER_POLL, _warn_of_skipped)",
                "((p, r) for p, found in consumer.poll(timeout_ms=200).items() for r in found)",
            ),
        )
    ),
    Mutant(
        name="replay takes the last event that it reads",
        test="tests/unit/master/test_master_history.py::test_replay_has_the_configs_of_the_catalog_and_knows_what_is_missing",
        file="pipeline/history.py",
        function="Replay._keep",
        before="if known is not None and known[0] > place:",
        after="if False:",
    ),
    Mutant(
        name="replay keeps tablets whose drop was lost",
        test="tests/unit/master/test_master_history.py::test_drop_that_was_lost_is_known_from_the_next_snapshot",
        file="pipeline/history.py",
        function="Replay.result",
        before="(known or place[0] > last)",
        after="True",
    ),
    Mutant(
        name="half a snapshot proves that tablets are gone",
        test="tests/unit/master/test_master_history.py::test_drop_that_was_lost_is_known_from_the_next_snapshot",
        file="pipeline/history.py",
        function="_Snapshot.complete",
        before="self.began is not None and self.found == self.count",
        after="self.began is not None",
    ),
    Mutant(
        name="replay overlooks an entry that is named",
        test="tests/unit/master/test_master_history.py::test_replay_has_the_configs_of_the_catalog_and_knows_what_is_missing",
        file="pipeline/history.py",
        function="_missing",
        before="missing.add(entry.after if entry.after > last else opid)",
        after="pass",
    ),
    Mutant(
        name="replay overlooks half an entry",
        test="tests/unit/master/test_master_history.py::test_half_an_entry_is_missing",
        file="pipeline/history.py",
        function="_missing",
        before="if not entry.complete:",
        after="if False:",
    ),
    Mutant(
        name="replay trusts an entry that names none before it",
        test="tests/unit/master/test_master_history.py::test_first_entry_of_a_rebuilt_catalog_stands_for_what_is_missing",
        file="pipeline/history.py",
        function="_missing",
        before="if entry.after != last:",
        after="if entry.after > last:",
    ),
    Mutant(
        name="replay: forgotten entries are told as missing",
        test="tests/unit/master/test_master_history.py::test_replay_of_a_long_history_keeps_a_bounded_part_and_has_the_same_configs",
        file="pipeline/history.py",
        function="Replay.result",
        before="began.catalog_opid >= self._forgotten",
        after="True",
    ),
    Mutant(
        name="replay: memory grows with each snapshot",
        test="tests/unit/master/test_master_history.py::test_replay_of_a_long_history_keeps_a_bounded_part_and_has_the_same_configs",
        file="pipeline/history.py",
        function="Replay.add",
        before="len(self._snapshots) > SNAPSHOTS_MAX",
        after="False",
    ),
    Mutant(
        name="second look at the history reads it all again",
        test="tests/unit/infra/test_replay_command.py::test_change_that_the_history_has_a_moment_later_is_no_difference",
        file="pipeline/decision_log.py",
        function="DecisionLog.history",
        before="self._ends if self._places else lambda: self._begin(0, 0)",
        after="lambda: self._begin(0, 0)",
    ),
    Mutant(
        name="a tablet that only the catalog has is no difference",
        test="tests/unit/infra/test_replay_command.py::test_each_difference_is_named_and_the_status_is_2",
        file="pipeline/history.py",
        function="differences",
        before="history.keys() | catalog.keys()",
        after="history.keys()",
    ),
    Mutant(
        name="one withdrawal is shown twice",
        test="tests/unit/pipeline/test_decision_story.py::test_withdrawal_that_two_topics_tell_is_one",
        file="pipeline/decision_story.py",
        function="story",
        before="if event.tablet_id in withdrawn:",
        after="if False:",
    ),
    Mutant(
        name="forced config looks like any other",
        test="tests/unit/pipeline/test_decision_story.py::test_cause_of_a_config_is_told_as_far_as_it_shows",
        file="pipeline/decision_story.py",
        function="cause_of",
        before="if config.unsafe and (before is None or before.opid != config.opid):",
        after="if False:",
    ),
    Mutant(
        name="snapshots of each day fill the list",
        test="tests/unit/pipeline/test_decision_log.py::test_history_is_read_with_gaps_and_snapshots_if_asked",
        file="pipeline/decision_log.py",
        function="DecisionLog.__init__",
        before="if not snapshots:",
        after="if False:",
    ),
    Mutant(
        name="task writes with another certificate than the job's",
        rows="none",
        test="tests/unit/pipeline/test_task_records.py::test_task_asks_the_master_for_a_schema_that_was_registered_meanwhile",
        file="pipeline/task.py",
        function="Task.__init__",
        before="worker.client_for(plan.masters, plan.deadline_s, plan.tls)",
        after='worker.client_for(plan.masters, plan.deadline_s, "")',
    ),
    Mutant(
        name="decisions are carried out with another certificate than the job's",
        rows="none",
        test="tests/unit/pipeline/test_decision_tasks.py::test_tasks_show_the_certificate_of_the_query",
        file="pipeline/decision_tasks.py",
        function="carry_out",
        before="worker.client_for(plan.masters, tls=plan.tls)",
        after="worker.client_for(plan.masters)",
    ),
    Mutant(
        name="decisions query sends no certificate to its tasks",
        rows="none",
        test="tests/unit/pipeline/test_decision_tasks.py::test_tasks_show_the_certificate_of_the_query",
        file="pipeline/decisions.py",
        function="DecisionsQuery._plan",
        before="tls=options.tls,",
        after="",
    ),
    Mutant(
        name="two DataFrames share one certificate",
        rows="none",
        test=_TLS + "test_client_shows_the_certificate_that_the_option_names",
        file="replica/client/client.py",
        function="shared_client",
        before="key = (os.getpid(), addresses, tls)",
        after='key = (os.getpid(), addresses, "")',
    ),
    Mutant(
        name="tasks show the certificate of the environment",
        rows="none",
        test=_TLS + "test_client_shows_the_certificate_that_the_option_names",
        file="pipeline/worker.py",
        function="_client",
        before="credentials = credentials_in(tls)",
        after='credentials = credentials_in("")',
    ),
    Mutant(
        name="host that lacks the certificate is not named",
        rows="none",
        test=_TLS + "test_directory_that_an_executor_lacks_is_named_with_its_host",
        file="pipeline/worker.py",
        function="_client",
        before="raise TaskFailed(what, fatal=False) from error",
        after="raise",
    ),
    Mutant(
        name="spark read ignores its certificate",
        rows="none",
        test=_TLS + "test_options_carry_the_directory_and_nothing_of_its_files",
        file="pipeline/source/reader.py",
        function="ReadOptions.of",
        before="staleness_us, now, tls)",
        after="staleness_us, now)",
    ),
    Mutant(
        name="decisions beside an ingest have another certificate",
        rows="none",
        test=_TLS + "test_options_carry_the_directory_and_nothing_of_its_files",
        file="jobs/ingest.py",
        function="decisions_options",
        before="tls=ingest.tls,",
        after="",
    ),
)
