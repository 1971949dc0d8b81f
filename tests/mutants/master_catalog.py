"""Mutants: the catalog, its group and Kafka."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="drop of a table drops a tablet again",
        test=(
            "tests/unit/master/test_master_dropped.py::"
            "test_drop_of_a_table_leaves_a_tablet_that_was_given_up_before_as_it_was"
        ),
        file="replica/master/catalog/tables.py",
        function="drop_table",
        before="if not tablet.dropped:",
        after="if True:",
    ),
    Mutant(
        name="feature level of a later build goes into the log",
        rows="IN-50",
        test="tests/unit/master/test_master_entries.py::test_follower_refuses_a_forged_catalog_entry",
        file="replica/master/group/entries.py",
        function="unfit_record",
        before="checked_record(key, record)",
        after="checked_record(key, record if group not in SINGLE else {**record, 'level': 1})",
    ),
    Mutant(
        name="garbage is looked for while the catalog is read",
        rows="IN-80",
        test="tests/unit/master/test_master_opening.py::test_opening_a_catalog_costs_little_for_each_record",
        file="replica/master/catalog/catalog.py",
        function="_uncollected",
        before="gc.disable()",
        after="pass",
    ),
    Mutant(
        name="garbage is never collected again",
        rows="IN-80",
        test="tests/unit/master/test_master_opening.py::test_opening_a_catalog_costs_little_for_each_record",
        file="replica/master/catalog/catalog.py",
        function="_uncollected",
        before="gc.enable()",
        after="pass",
    ),
    Mutant(
        name="each tablet has members of its own",
        rows="IN-80",
        test="tests/unit/master/test_master_opening.py::test_opening_a_catalog_costs_little_for_each_record",
        file="replica/consensus_metadata/config_codec.py",
        function="_member",
        before="@lru_cache(4096)",
        after="@lru_cache(0)",
    ),
    Mutant(
        name="master logs in its own form",
        rows="IN-71",
        test="tests/unit/rows/test_log_lines.py::test_every_process_logs_in_that_form",
        file="replica/master/__main__.py",
        function="main",
        before='begin_to_log(options.process, "master", names=True)',
        after="logging.basicConfig(level=options.process.log_level.upper())",
        on_disk=True,
    ),
    Mutant(
        name="host chooses the scheme",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_impossible_heartbeats_are_refused",
        file="replica/master/heartbeats/heartbeat_checks.py",
        function="check_sender",
        before="if not _HOST.fullmatch(address.host) or not 0 < address.port < 65536:",
        after="if not address.host or not 0 < address.port < 65536:",
    ),
    Mutant(
        name="another uuid counts",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_server_counts_once_it_answered_at_its_address",
        file="replica/master/heartbeats/heartbeat_checks.py",
        function="why_not",
        before="if identity.uuid != uuid:",
        after="if not identity.uuid:",
    ),
    Mutant(
        name="another cluster counts",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_server_counts_once_it_answered_at_its_address",
        file="replica/master/heartbeats/heartbeat_checks.py",
        function="why_not",
        before='if identity.cluster_id not in ("", cluster_id):',
        after="if not cluster_id:",
    ),
    Mutant(
        name="one host claims a uuid without end",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_one_uuid_has_few_applicants",
        file="replica/master/heartbeats/applicants.py",
        function="Applicants.add",
        before="= limits.SERVER_APPLICANTS_PER_UUID_AND_HOST_MAX",
        after=" 1000",
    ),
    Mutant(
        name="one claim of a uuid keeps others out",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_nobody_keeps_a_server_out_that_starts_again",
        file="replica/master/heartbeats/applicants.py",
        function="Applicants.add",
        before="if len(same) >= limits.SERVER_APPLICANTS_PER_UUID_MAX:",
        after="if len(same) >= 1:",
    ),
    Mutant(
        name="one uuid has any number of applicants",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_one_uuid_has_few_applicants",
        file="replica/master/heartbeats/applicants.py",
        function="Applicants.add",
        before="if len(same) >= limits.SERVER_APPLICANTS_PER_UUID_MAX:",
        after="if len(same) < 0:",
    ),
    Mutant(
        name="strangers take the places of known servers",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_nobody_keeps_a_server_out_that_starts_again",
        file="replica/master/heartbeats/applicants.py",
        function="Applicants._is_full",
        before="""
            if applicant.listed:
                return False  # bounded by the servers that the masters know, and the few of each uuid
        """,
        after="",
    ),
    Mutant(
        name="one host fills the table",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_made_up_servers_fill_their_hosts_share_and_expire",
        file="replica/master/heartbeats/applicants.py",
        function="Applicants._is_full",
        before="return too_many or of_host >= limits.SERVER_APPLICANTS_PER_HOST_MAX",
        after="return too_many or of_host < 0",
    ),
    Mutant(
        name="applicants never expire",
        rows="IN-43",
        test="tests/unit/master/test_master_server_admission.py::test_made_up_servers_fill_their_hosts_share_and_expire",
        file="replica/master/heartbeats/applicants.py",
        function="Applicants.forget",
        before="now_us - FORGET_US",
        after="0",
    ),
    Mutant(
        name="page begins at its own key",
        rows="IN-80",
        test="tests/unit/master/test_master_lists.py::test_pages_have_what_was_there_all_the_time_once",
        file="replica/master/catalog/catalog.py",
        function="Catalog.walk",
        before="low = max(low, bisect_right(keys, prefix + after))",
        after="low = max(low, bisect_left(keys, prefix + after))",
    ),
    Mutant(
        name="replaced records are counted twice",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_size_of_the_catalog_is_that_of_its_state",
        file="replica/master/catalog/catalog.py",
        function="Catalog._put",
        before="self._bytes -= size_of(key, self._records[key])",
        after="pass",
    ),
    Mutant(
        name="index keeps deleted keys",
        rows="IN-80",
        test="tests/unit/master/test_master_lists.py::test_index_of_the_catalog_agrees_with_its_records",
        file="replica/master/catalog/catalog.py",
        function="Catalog._delete",
        before="""
            del keys[bisect_left(keys, key)]
        """,
        after="",
    ),
    Mutant(
        name="tablets of a table keep dropped ones",
        rows="IN-80",
        test="tests/unit/master/test_master_lists.py::test_index_of_the_catalog_agrees_with_its_records",
        file="replica/master/catalog/catalog.py",
        function="Catalog._delete",
        before="""
            del of_table[key]
        """,
        after="",
    ),
    Mutant(
        name="copy has no catalog",
        rows="MF-13, MF-30, MF-31",
        test=(
            "tests/process/test_master_migration_process.py::"
            "test_copies_of_a_leaderless_first_master_are_equal_and_made_at_once"
        ),
        file="replica/master/catalog/catalog.py",
        function="Catalog.hold",
        before="yield self._superblock",
        after='yield replace(self._superblock, state=b"")',
    ),
    Mutant(
        name="forged record lacks a field",
        rows="IN-50",
        test="tests/unit/master/test_master_entries.py::test_no_record_goes_into_the_log_that_could_not_be_read",
        file="replica/master/group/entries.py",
        function="unfit_record",
        before="""
            if field not in record:
                if needed:
        """,
        after="""
            if field not in record:
                if not known:
        """,
    ),
    Mutant(
        name="forged record of any value",
        rows="IN-50",
        test="tests/unit/master/test_master_entries.py::test_no_record_goes_into_the_log_that_could_not_be_read",
        file="replica/master/group/entries.py",
        function="unfit_record",
        before="elif not fits(record[field]):",
        after="elif record[field] is None:",
    ),
    Mutant(
        name="forged record nests without end",
        rows="IN-50",
        test="tests/unit/master/test_master_entries.py::test_forged_entries_are_refused_by_their_bytes",
        file="replica/master/group/entries.py",
        function="unfit_entry",
        before='decode_change(entry, partial(parse_json, what="a record of the catalog"))',
        after="decode_change(entry)",
    ),
    Mutant(
        name="stranger begins beside a group",
        rows="MF-18",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_replacement_needs_the_uuid_of_the_lost_one_and_that_one_gone"
        ),
        file="replica/master/group/forming.py",
        function="_check_group",
        before="if not members or own in members:",
        after="if True:",
    ),
    Mutant(
        name="config has addresses for names",
        rows="MF-06",
        test="tests/process/test_names_process.py::test_master_is_replaced_by_its_name_and_nobody_is_told",
        file="replica/master/group/forming.py",
        function="_identity",
        before="""
            return reply.uuid, address
        """,
        after="""
            import socket

            return reply.uuid, Address(socket.gethostbyname(address.host), address.port)
        """,
    ),
    Mutant(
        name="master that is started again never leads",
        rows="MF-31",
        test="tests/process/test_master_migration_process.py::test_single_master_becomes_three_with_every_table",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup.__init__",
        before="unfit=unfit_entry",
        after="unfit=unfit_entry, no_data=self.cmeta.term > 0",
    ),
    Mutant(
        name="masters take any entry",
        rows="IN-50",
        test="tests/unit/master/test_master_entries.py::test_follower_refuses_a_forged_catalog_entry",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup.__init__",
        before="unfit=unfit_entry",
        after='unfit=lambda entry: ""',
    ),
    Mutant(
        name="refusal without a caller is logged as a fault",
        test="tests/unit/master/test_master_group.py::test_group_tells_no_refusal_to_a_caller_that_has_left",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._changed_for",
        before="task.add_done_callback(_caller_left)",
        after="pass",
    ),
    Mutant(
        name="catalog flushes queue up",
        rows="TC-65",
        test=(
            "tests/unit/master/test_master_group.py::test_group_flushes_one_at_a_time_and_pauses_while_there_is_no_room"
        ),
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup.maintain",
        before="self._flushing = True",
        after="self._flushing = False",
    ),
    Mutant(
        name="catalog flush has no pause",
        rows="TC-65",
        test=(
            "tests/unit/master/test_master_group.py::test_group_flushes_one_at_a_time_and_pauses_while_there_is_no_room"
        ),
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._flushed",
        before="self._flush_after_s = self._loop.time() + FLUSH_PAUSE_S",
        after="self._flush_after_s = self._loop.time()",
    ),
    Mutant(
        name="dead thread is not told",
        rows="IN-91",
        test="tests/unit/master/test_master_topics.py::test_thread_that_ends_by_a_defect_is_told_and_ends_the_master",
        file="replica/master/kafka/kafka_link.py",
        function="KafkaLink._forever",
        before="""
            self.state.died(doing, error)
        """,
        after="",
    ),
    Mutant(
        name="idle master believes in kafka",
        rows="IN-91",
        test="tests/unit/master/test_master_topics.py::test_silence_of_kafka_is_noticed_with_nothing_to_publish",
        file="replica/master/kafka/kafka_link.py",
        function="KafkaLink._check_topics",
        before="if missing:",
        after="if len(missing) > 1:",
    ),
    Mutant(
        name="strangers on reports are not counted",
        rows="IN-90",
        test="tests/unit/master/test_master_topics.py::test_records_of_strangers_on_the_masters_own_topics_are_counted",
        file="replica/master/kafka/kafka_link.py",
        function="KafkaLink.inspect",
        before="self.state.skipped(topic, found.fault, place_of(record), found.reason)",
        after="pass",
    ),
    Mutant(
        name="unknown codec jams the thread",
        rows="IN-90",
        test="tests/unit/master/test_master_topics.py::test_bytes_that_the_client_cannot_take_apart_are_stepped_over",
        file="replica/decision_executor/kafka_reading.py",
        function="_poll_each",
        before="at[partition] = begin[partition] + 1",
        after="at[partition] = begin[partition]",
    ),
    Mutant(
        name="fetch that cannot be decoded is polled again",
        rows="IN-90",
        test="tests/unit/master/test_master_topics.py::test_bytes_that_the_client_cannot_take_apart_are_stepped_over",
        file="replica/decision_executor/kafka_reading.py",
        function="_poll_each",
        before="consumer.seek(partition, begin[partition] + 1)",
        after="pass",
    ),
    Mutant(
        name="records before an outage are lost",
        rows="IN-90",
        test="tests/unit/master/test_master_topics.py::test_broker_that_is_away_is_not_taken_for_bad_bytes",
        file="replica/decision_executor/kafka_reading.py",
        function="_poll_each",
        before="at = begin",
        after="pass",
    ),
    Mutant(
        name="reconnecting is shown as connected",
        rows="IN-91",
        test=(
            "tests/unit/master/test_master_topics.py::"
            "test_status_says_of_each_topic_since_when_kafka_answers_or_why_not"
        ),
        file="replica/master/kafka/kafka_state.py",
        function="KafkaState.failed",
        before="link=old.away, error",
        after="error",
    ),
    Mutant(
        name="masters do not say where kafka is",
        rows="IN-70",
        test=(
            "tests/unit/master/test_master_topics.py::"
            "test_status_says_of_each_topic_since_when_kafka_answers_or_why_not"
        ),
        file="replica/master/kafka/kafka_status.py",
        function="kafka_status",
        before='"kafka_bootstrap": link.bootstrap,',
        after='"kafka_bootstrap": "",',
    ),
    Mutant(
        name="masters serve no copies",
        rows="MF-16",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_lost_master_is_replaced_by_a_copy_while_nobody_else_is_restarted"
        ),
        file="replica/master/process.py",
        function="MasterProcess._run",
        before="""
            pb_grpc.add_CopyServiceServicer_to_server(copies, self._server)
        """,
        after="",
    ),
    Mutant(
        name="survivors end at a takeover",
        rows="MF-15",
        test=(
            "tests/process/test_master_replacement_process.py::"
            "test_lost_master_is_replaced_by_a_copy_while_nobody_else_is_restarted"
        ),
        file="replica/master/process.py",
        function="MasterProcess._tick",
        before="takeovers.check_own()",
        after="self.stopping.set()",
    ),
    Mutant(
        name="description has no bound",
        rows="IN-81",
        test=(
            "tests/unit/master/test_master_room.py::test_description_that_is_too_large_is_refused_with_its_largest_part"
        ),
        file="replica/rpc/table_descriptions.py",
        function="check_description",
        before="if message.ByteSize() > limits.TABLE_BYTES_MAX:",
        after="if message.ByteSize() > 1 << 40:",
    ),
    Mutant(
        name="tablets have no bound",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_full_catalog_says_so_and_takes_what_makes_room",
        file="replica/master/catalog/capacity.py",
        function="check_room",
        before='for prefix, most in (("table/", limits.TABLES_MAX), ("tablet/", limits.TABLETS_MAX)):',
        after='for prefix, most in (("table/", limits.TABLES_MAX), ("tablet/", 1 << 40)):',
    ),
    Mutant(
        name="catalog has no bound",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_full_catalog_says_so_and_takes_what_makes_room",
        file="replica/master/catalog/capacity.py",
        function="check_room",
        before="if grown > 0 and catalog.size_bytes + grown > limits.CATALOG_BYTES_MAX:",
        after="if grown > 0 and catalog.size_bytes + grown > 1 << 40:",
    ),
    Mutant(
        name="sources have no bound",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_source_positions_of_a_table_are_bounded",
        file="replica/master/catalog/capacity.py",
        function="check_sources",
        before="if added and catalog.count(prefix) + added > limits.SOURCES_PER_TABLE_MAX:",
        after="if added > limits.SOURCES_PER_TABLE_MAX + 1:",
    ),
    Mutant(
        name="control topic is opened as a source",
        rows="IN-82",
        test="tests/unit/master/test_master_sources.py::test_sources_a_topic_of_others_begins_to_feed_no_table",
        file="replica/master/catalog/sources.py",
        function="_check_topics",
        before="check_source_topic(topic, masters_own)",
        after="pass",
    ),
    Mutant(
        name="topic of another table is opened as a source",
        rows="IN-82",
        test="tests/unit/master/test_master_sources.py::test_sources_a_topic_of_others_begins_to_feed_no_table",
        file="replica/master/catalog/sources.py",
        function="_check_topics",
        before="_declared_topic(other) in others",
        after="False",
    ),
    Mutant(
        name="own topic is another table's",
        rows="IN-82",
        test=(
            "tests/unit/master/test_master_sources.py::"
            "test_sources_a_table_that_declares_the_topic_of_another_is_fed_from_it_and_a_begun_source_goes_on"
        ),
        file="replica/master/catalog/sources.py",
        function="_check_topics",
        before=' - {_declared_topic(table), ""}',
        after=' - {""}',
    ),
    Mutant(
        name="begun source of another table's topic stops",
        rows="IN-82",
        test=(
            "tests/unit/master/test_master_sources.py::"
            "test_sources_a_table_that_declares_the_topic_of_another_is_fed_from_it_and_a_begun_source_goes_on"
        ),
        file="replica/master/catalog/sources.py",
        function="open_sources",
        before=" if catalog.get(SOURCE, source_name(table_id, w.source)) is None",
        after="",
    ),
    Mutant(
        name="control topic with a prefix is opened as a source",
        rows="IN-82",
        test="tests/unit/master/test_master_topics.py::test_no_topic_of_the_masters_feeds_a_table_whatever_their_prefix",
        file="replica/master/requests/master_service.py",
        function="MasterService.OpenSources",
        before="kafka_topics.control_topics(state.options.topic_prefix)",
        after="()",
    ),
    Mutant(
        name="resets to new topics have no bound",
        rows="IN-81",
        test=("tests/unit/master/test_master_room.py::test_resets_of_a_source_keep_no_endless_list_of_former_topics"),
        file="replica/master/catalog/sources.py",
        function="reset_source",
        before="if in_force is None:",
        after="if False:",
    ),
    Mutant(
        name="master answers for another",
        rows="TC-73",
        test="tests/process/test_rpc_misuse.py::test_every_call_that_names_nobody_or_somebody_else_is_refused",
        file="replica/master/requests/master_service.py",
        function="_named.wrap.answer",
        before="""
            self._check_name(getattr(request, "dest_uuid", ""))
        """,
        after="""
            if method.__name__ != "RetireServer":
                self._check_name(getattr(request, "dest_uuid", ""))
        """,
    ),
    Mutant(
        name="master hears heartbeats for another",
        rows="TC-73",
        test=(
            "tests/unit/master/test_master_requests_table.py::"
            "test_misaddressed_stale_and_repeated_calls_leave_the_master_as_it_was[MasterService.Heartbeat]"
        ),
        file="replica/master/requests/master_service.py",
        function="MasterService.Heartbeat",
        before="""
            self._check_name(request.dest_uuid)
        """,
        after="",
    ),
    Mutant(
        name="sources another cluster is a new source",
        rows="none",
        test=(
            "tests/unit/master/test_master_sources.py::"
            "test_sources_a_topic_of_its_name_in_another_kafka_cluster_is_refused_until_it_is_reset"
        ),
        file="replica/master/catalog/sources.py",
        function="_refuse_other_topic",
        before="in_force = [r for r in known if not r.retired]",
        after="in_force = [r for r in known if not r.retired and r.cluster_id == cluster_id]",
    ),
    Mutant(
        name="sources retired position stays retired",
        rows="none",
        test=(
            "tests/unit/master/test_master_sources.py::"
            "test_sources_a_topic_of_its_name_in_another_kafka_cluster_is_refused_until_it_is_reset"
        ),
        file="replica/master/catalog/sources.py",
        function="reset_source",
        before="known if known is not None and not known.retired else None",
        after="known",
    ),
    Mutant(
        name="sources left cluster keeps its lease",
        rows="none",
        test=(
            "tests/unit/master/test_master_sources.py::"
            "test_sources_a_reset_into_another_kafka_cluster_fences_the_query_that_it_leaves"
        ),
        file="replica/master/catalog/sources.py",
        function="_adopt_topic",
        before='retired=True, owner_run="", owner_deadline_us=0',
        after="retired=True",
    ),
    Mutant(
        name="disk of a server leaves its logs out",
        rows="IN-71",
        test="tests/unit/master/test_master_belief.py::test_disk_of_a_server_is_that_of_its_replicas_blocks_and_logs",
        file="replica/master/requests/infos.py",
        function="server_infos",
        before="bytes_on_disk=sum(r.bytes_on_disk + r.wal_bytes for r in live),",
        after="bytes_on_disk=sum(r.bytes_on_disk for r in live),",
    ),
    Mutant(
        name="column name with a nul",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_table_that_cannot_be_is_refused_before_it_is_made",
        file="replica/master/requests/conversions.py",
        function="checked_table",
        before="check_column_name(column.name)",
        after=r'check_column_name(column.name.replace("\0", "x"))',
    ),
    Mutant(
        name="defaults have no bound of their own",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_defaults_of_a_table_are_bounded_together_in_bytes",
        file="replica/master/requests/conversions.py",
        function="checked_table",
        before="""
            check_defaults(checked.schema)
        """,
        after="",
    ),
    Mutant(
        name="defaults are bounded one by one",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_defaults_of_a_table_are_bounded_together_in_bytes",
        file="replica/master/catalog/capacity.py",
        function="check_defaults",
        before="if sum(lengths.values()) > limits.DEFAULTS_BYTES_MAX:",
        after="if max(lengths.values()) > limits.DEFAULTS_BYTES_MAX:",
    ),
    Mutant(
        name="retention below zero",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_table_that_cannot_be_is_refused_before_it_is_made",
        file="replica/rpc/table_descriptions.py",
        function="check_numbers",
        before='"history_retention_us", 1, limits.HISTORY_RETENTION_US_MAX',
        after='"history_retention_us", -9, limits.HISTORY_RETENTION_US_MAX',
    ),
    Mutant(
        name="control topic is a source",
        rows="IN-82",
        test="tests/unit/rpc/test_rpc_names.py::test_table_that_cannot_be_is_refused_before_it_is_made",
        file="replica/master/requests/conversions.py",
        function="checked_table",
        before="check_source_topic(out.source.topic,",
        after='check_source_topic(f"x{out.source.topic}"[:249],',
    ),
    Mutant(
        name="control topic with a prefix is a source",
        rows="IN-82",
        test="tests/unit/master/test_master_topics.py::test_no_topic_of_the_masters_feeds_a_table_whatever_their_prefix",
        file="replica/master/requests/master_service.py",
        function="MasterService.CreateTable",
        before="checked_table(request.table, self.state.options.topic_prefix)",
        after="checked_table(request.table)",
    ),
    Mutant(
        name="one of the masters' topics is forgotten",
        rows="IN-82",
        test="tests/unit/master/test_master_topics.py::test_no_topic_of_the_masters_feeds_a_table_whatever_their_prefix",
        file="replica/types/kafka_topics.py",
        function="control_topics",
        before="for name in PARTITIONS",
        after="for name in COMPACTED",
    ),
    Mutant(
        name="table before its servers is refused for good",
        rows="IN-43",
        test="tests/unit/infra/test_registered_servers.py::test_table_that_comes_before_its_servers_count_waits_for_them",
        file="replica/master/catalog/tables.py",
        function="create_table",
        before="if more_may_come and live < table.replication_factor:",
        after="if False and live < table.replication_factor:",
    ),
    Mutant(
        name="registered schemas have no bound",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_writer_schemas_of_a_table_are_bounded",
        file="replica/master/catalog/tables.py",
        function="add_writer_schema",
        before="""
            check_description(table)
        """,
        after="",
    ),
    Mutant(
        name="forgotten schemas stay known",
        rows="IN-81",
        test="tests/unit/master/test_master_room.py::test_writer_schemas_of_a_table_are_bounded",
        file="replica/master/catalog/tables.py",
        function="forget_writer_schema",
        before="""
            table = replace(table, writer_schemas=kept)
        """,
        after="""
            table = replace(table)
        """,
    ),
    Mutant(
        name="schema is forgotten or registered, not both",
        rows="IN-81",
        test=(
            "tests/unit/master/test_master_requests_table.py::"
            "test_writer_schema_is_forgotten_and_another_takes_its_place"
        ),
        file="replica/master/requests/master_service.py",
        function="MasterService.AddWriterSchema",
        before='adds = self.state, request.HasField("schema") or not request.forget',
        after="adds = self.state, not request.forget",
    ),
    Mutant(
        name="honest full reports are too fast, report room",
        rows="IN-43",
        test="tests/unit/master/test_master_report_limits.py::test_largest_honest_server_has_room_and_time",
        file="replica/master/heartbeats/report_limits.py",
        function="StatusRate.take",
        before="earned = max(0, now_us - self.at_us) * limits.REPORT_STATUSES_PER_S_MAX / 1e6",
        after="earned = max(0, now_us - self.at_us) * limits.REPORT_STATUSES_PER_S_MAX / 4e6",
    ),
    Mutant(
        name="one server reports without end, report room",
        rows="IN-43",
        test="tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs",
        file="replica/master/heartbeats/report_limits.py",
        function="ReportMemory.take",
        before="if of_server > limits.REPORT_MEMORY_BYTES_MAX:",
        after="if of_server < 0:",
    ),
    Mutant(
        name="strangers report without end, report room",
        rows="IN-43",
        test="tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs",
        file="replica/master/heartbeats/report_limits.py",
        function="ReportMemory.take",
        before="if strange and strangers + size > limits.REPORT_STRANGERS_MEMORY_BYTES_MAX:",
        after="if strange and strangers + size < 0:",
    ),
    Mutant(
        name="report that is left out stays as it was",
        rows="IN-43",
        test="tests/unit/master/test_master_report_limits.py::test_memory_for_reports_is_bounded_and_members_have_theirs",
        file="replica/master/heartbeats/report_limits.py",
        function="ReportMemory.give_back",
        before="self._of[uuid] -= report_bytes(report)",
        after="self._of[uuid] -= 0",
    ),
    Mutant(
        name="thousands of positions are opened in one step of the loop",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_thousands_of_source_positions_are_no_long_step_of_the_loop",
        file="replica/master/requests/master_service.py",
        function="MasterService.OpenSources",
        before="change_aside(lambda: opened)",
        after="change(opened)",
    ),
    Mutant(
        name="thousands of positions are advanced in one step of the loop",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_thousands_of_source_positions_are_no_long_step_of_the_loop",
        file="replica/master/requests/master_service.py",
        function="MasterService.AdvanceSources",
        before="change_aside(lambda: advanced)",
        after="change(advanced)",
    ),
    Mutant(
        name="tablets of a new table are placed in one step of the loop",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_tables_of_the_most_tablets_are_no_long_step_of_the_loop",
        file="replica/master/requests/master_service.py",
        function="MasterService.CreateTable",
        before="change_aside(created, state.refresh_views)",
        after="change(created(), state.refresh_views)",
    ),
    Mutant(
        name="tablets of a new table are described in one step of the loop",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_tables_of_the_most_tablets_are_no_long_step_of_the_loop",
        file="replica/master/requests/master_service.py",
        function="MasterService.CreateTable",
        before="await page_of(((t.tablet_id, t) for t in tablet_infos(state, table_id)), 0, reply.ByteSize())",
        after='(list(tablet_infos(state, table_id)), "")',
    ),
    Mutant(
        name="long change is encoded in one step of the loop",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_tables_of_the_most_tablets_are_no_long_step_of_the_loop",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._change",
        before="> ENCODED_INLINE_MAX",
        after="< 0",
    ),
    Mutant(
        name="new tablets are placed again and again",
        rows="IN-60",
        test="tests/unit/rpc/test_rpc_copy_costs.py::test_tablets_of_a_table_take_no_more_steps_of_a_thread_than_is_stated",
        file="replica/policy/placement.py",
        function="place_tablets",
        before="used.update(found[2][2])",
        after="used.update(found[2][2]), [sorted(map(_kind, alive.values())) for _ in range(20)]",
    ),
    Mutant(
        name="change of an earlier leadership is committed",
        rows="IN-60",
        test="tests/unit/master/test_master_loop_steps.py::test_change_that_was_computed_aside_is_refused_if_another_master_may_have_led_meanwhile",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._change",
        before="if term != self.term:",
        after="if term < 0:",
    ),
    Mutant(
        name="superblock of a running master stays lost",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_small_file_that_is_lost_under_a_running_master_is_written_again",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._check_files",
        before='"superblock": self.catalog.repair(),',
        after="",
    ),
    Mutant(
        name="record of a running master's log stays lost",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_small_file_that_is_lost_under_a_running_master_is_written_again",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._check_files",
        before='"record of the log\'s end": self.log.repair_record(),',
        after="",
    ),
    Mutant(
        name="damaged record ends a master at its next flush",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_flush_of_a_master_over_a_damaged_superblock_is_done",
        file="replica/master/catalog/catalog.py",
        function="Catalog.flush",
        before="flushed.save(self._disk, over=self._superblock)",
        after="flushed.save(self._disk)",
    ),
    Mutant(
        name="identity of a running master stays lost",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_small_file_that_is_lost_under_a_running_master_is_written_again",
        file="replica/master/group/file_check.py",
        function="FileChecker.check_all",
        before="await asyncio.to_thread(repair_instance, self._disk, self.instance)",
        after="[]",
    ),
    Mutant(
        name="check writes the identity beside its change",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_identity_is_not_written_again_while_it_changes",
        file="replica/master/group/file_check.py",
        function="FileChecker.check_all",
        before="async with self._writing:",
        after="async with asyncio.Lock():",
    ),
    Mutant(
        name="identity is written while it is compared",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_identity_is_not_written_again_while_it_changes",
        file="replica/master/group/file_check.py",
        function="FileChecker.belong",
        before="async with self._writing:",
        after="async with asyncio.Lock():",
    ),
    Mutant(
        name="lost segment of a running master is not flushed over",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_segment_that_is_lost_under_a_running_master_is_told_while_it_goes_on",
        file="replica/master/group/file_check.py",
        function="FileChecker.check_all",
        before="""
            await self._group.flushed()
        """,
        after="",
    ),
    Mutant(
        name="damage in a segment is told once",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_closed_segment_that_is_damaged_is_found_and_forgotten_with_the_segment",
        file="replica/master/group/file_check.py",
        function="FileChecker._read_on",
        before="self._found[info] = error",
        after="return error",
    ),
    Mutant(
        name="segment that is gone is told for ever",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_closed_segment_that_is_damaged_is_found_and_forgotten_with_the_segment",
        file="replica/master/group/file_check.py",
        function="FileChecker._read_on",
        before="for info, error in self._found.items() if info in there",
        after="for info, error in self._found.items()",
    ),
    Mutant(
        name="master writes into a folder that is not its own",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_folder_of_promises_that_is_taken_away_under_a_master_is_not_made_anew",
        file="replica/master/group/file_check.py",
        function="FileChecker.check_all",
        before="await asyncio.to_thread(self._check_folders)",
        after="await asyncio.sleep(0)",
    ),
    Mutant(
        name="master with damaged files names no way on",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_master_that_was_stopped_starts_whole_or_says_what_to_do",
        file="replica/master/process.py",
        function="MasterProcess.run",
        before="raise damaged(error, disk) from error",
        after="raise",
    ),
    Mutant(
        name="check says nothing of a master whose log is lost",
        rows="IN-21",
        test="tests/unit/tools/test_tools_check.py::test_check_each_master_that_does_not_serve_is_an_error",
        file="replica/tools/check.py",
        function="judge",
        before="if m.status is not None and m.serves and m.status.replica.error",
        after="if m.status is not None and not m.serves and m.status.replica.error",
    ),
    Mutant(
        name="only master waits for the end of its log",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_end_of_the_log_that_was_damaged_under_a_killed_master_is_told",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup.__init__",
        before="if replay.withheld is not None and self.cmeta.committed_config.voters == (uuid,):",
        after="if replay.withheld is not None and not self.cmeta.committed_config.voters:",
    ),
    Mutant(
        name="replica without the end of its log says nothing",
        rows="IN-21",
        test="tests/unit/master/test_master_files.py::test_end_of_the_log_that_was_damaged_under_a_killed_master_is_told",
        file="replica/raft_driver/replica.py",
        function="Replica.start",
        before="""
            about(_log, self.tablet_id, self.uuid).warning(
        """,
        after="""
            about(_log, self.tablet_id, self.uuid).debug(
        """,
    ),
    Mutant(
        name="record of other types ends the master",
        rows="none",
        test="tests/unit/master/test_master_catalog.py::test_record_that_no_master_wrote_is_corruption",
        file="replica/master/catalog/catalog.py",
        before="(ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)",
        after="(ValueError, KeyError, TypeError, AttributeError)",
    ),
    Mutant(
        name="record that none can read is in the log",
        rows="IN-82",
        test=(
            "tests/unit/master/test_master_hostile_requests.py::"
            "test_config_that_no_master_could_read_again_is_refused_before_it_is_in_the_log"
        ),
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._encoded",
        before="if why := self.unfit(key, record):",
        after='if why := "":',
    ),
    Mutant(
        name="changes behind one that has no room wait without an answer",
        rows="CN-08",
        test="tests/unit/master/test_master_group.py::test_changes_behind_one_that_waits_for_room_are_refused_by_name",
        file="replica/master/group/catalog_group.py",
        function="CatalogGroup._change",
        before="if self._lock.locked() and (refusal := self.replica.without_room) is not None:",
        after="if not self._lock.locked() and (refusal := self.replica.without_room) is not None:",
    ),
    Mutant(
        name="registered schema is not parsed",
        rows="IN-82",
        test="tests/unit/master/test_master_writer_schemas.py::test_text_that_is_no_avro_schema_is_not_stored",
        file="replica/master/requests/master_service.py",
        function="MasterService.AddWriterSchema",
        before="await asyncio.to_thread(check_writer_schemas, (schema,))",
        after="pass",
    ),
    Mutant(
        name="schemas of a new table are not parsed",
        rows="IN-82",
        test="tests/unit/master/test_master_writer_schemas.py::test_text_that_is_no_avro_schema_is_not_stored",
        file="replica/master/requests/master_service.py",
        function="MasterService.CreateTable",
        before="await asyncio.to_thread(check_writer_schemas, asked.writer_schemas, asked.source)",
        after="pass",
    ),
    Mutant(
        name="schema of bare values is not parsed",
        rows="IN-82",
        test="tests/unit/master/test_master_writer_schemas.py::test_text_that_is_no_avro_schema_is_not_stored",
        file="replica/master/requests/conversions.py",
        function="check_writer_schemas",
        before='if declared.framing == "bare":',
        after="if False:",
    ),
    Mutant(
        name="any fingerprint is stored",
        rows="IN-82",
        test="tests/unit/master/test_master_writer_schemas.py::test_schema_is_stored_under_its_own_fingerprint_only",
        file="replica/master/requests/conversions.py",
        function="check_writer_schemas",
        before="if writer.fingerprint != made:",
        after="if not made:",
    ),
    Mutant(
        name="parser believes a mark in the text",
        rows="IN-82",
        test="tests/unit/master/test_master_writer_schemas.py::test_text_that_is_no_avro_schema_is_not_stored",
        file="schemas/loader.py",
        function="parse_writer_schema",
        before="_write_hint=True, _force=True",
        after="_write_hint=True",
    ),
    Mutant(
        name="long namespace multiplies",
        rows="IN-60",
        test="tests/unit/master/test_master_writer_schemas.py::test_reading_writer_schemas_costs_a_thread_what_is_stated",
        file="schemas/loader.py",
        function="_check_names",
        before="> NAME_CHARS_MAX",
        after="> 10**9",
    ),
    Mutant(
        name="long canonical form is read byte by byte",
        rows="IN-60",
        test="tests/unit/master/test_master_writer_schemas.py::test_canonical_form_is_bounded",
        file="schemas/loader.py",
        function="parse_writer_schema",
        before="if len(canonical) > CANONICAL_CHARS_MAX:",
        after="if False:",
    ),
    Mutant(
        name="parser's error comes through",
        rows="IN-82",
        test="tests/unit/master/test_master_writer_schemas.py::test_any_json_is_a_schema_or_refused",
        file="schemas/loader.py",
        function="parse_writer_schema",
        before="except _NO_SCHEMA as error:",
        after="except (ValueError, SchemaParseException) as error:",
    ),
)
