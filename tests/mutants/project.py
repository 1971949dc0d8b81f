"""Mutants of what belongs to no folder with code: packaging, pages and the tests themselves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="readme names a command that is not there",
        rows="IN-70",
        test="tests/unit/infra/test_readme_words.py::test_command_that_readme_names_exists",
        file="README.md",
        before="nyala dead-letter list readings         # records that did not become rows, and why",
        after="nyala dead-letters list readings         # records that did not become rows, and why",
    ),
    Mutant(
        name="page leads to one that is not there",
        rows="IN-70",
        test="tests/tidy/test_documents.py::test_links_between_pages_lead_to_files",
        file="docs/internals.md",
        before="(../replica/wal/DESIGN.md)",
        after="(../replica/log/DESIGN.md)",
    ),
    Mutant(
        name="page leaves a module out",
        test="tests/tidy/test_design_pages.py::test_design_page_lists_every_module_of_its_folder",
        file="jobs/DESIGN.md",
        before="| `ingest.py` | ingests a table's topic |",
        after="",
    ),
    Mutant(
        name="page lists a module that is not there",
        test="tests/tidy/test_design_pages.py::test_design_page_lists_every_module_of_its_folder",
        file="schemas/DESIGN.md",
        before="| `bounded.py` | decodes bytes of an unknown writer |",
        after="| `bounds.py` | decodes bytes of an unknown writer |",
    ),
    Mutant(
        name="module stands out of order on its page",
        test="tests/tidy/test_design_pages.py::test_modules_of_a_folder_are_listed_in_alphabetical_order",
        file="replica/transport/DESIGN.md",
        before="| `channel.py` |",
        after="| `servicer2.py` |",
    ),
    Mutant(
        name="row with nothing beside the module counts",
        test="tests/tidy/test_design_pages.py::test_modules_that_a_page_does_not_list_are_seen",
        file="tests/tidy/test_design_pages.py",
        function="in_order",
        before=" and any(cells[1:])",
        after="",
    ),
    Mutant(
        name="small module stands alone without a reason",
        test="tests/tidy/test_small_modules.py::test_small_module_stands_alone_for_a_reason",
        file="tests/tidy/test_small_modules.py",
        before='    "replica/raft/voting.py": "fields of `State` that two rules change",\n',
        after="",
    ),
    Mutant(
        name="changelog tells everything",
        test="tests/tidy/test_documents.py::test_changelog_tells_users_what_is_new_in_a_page",
        file="CHANGELOG.md",
        before="### First steps",
        after="- One more line.\n" * 60 + "### First steps",
    ),
    Mutant(
        name="section that others send to has another title",
        test="tests/tidy/test_documents.py::test_sections_that_are_quoted_stand_on_their_pages",
        file="replica/master/DESIGN.md",
        before="## Several masters",
        after="## More masters",
    ),
    Mutant(
        name="spark is not told of the source",
        rows="IN-70",
        test="tests/unit/infra/test_installed.py::test_installed_package_is_found_beside_a_folder_of_its_name",
        file="pyproject.toml",
        before='py-modules = ["pyspark_nyala"]',
        after="py-modules = []",
    ),
    Mutant(
        name="clone is found by an import hook",
        rows="IN-70",
        test="tests/unit/infra/test_installed.py::test_installed_package_is_found_beside_a_folder_of_its_name",
        file="pyproject.toml",
        before="""
            "" = ".package"
        """,
        after="""
            "" = "pipeline/toplevel"
            "nyala" = "replica/api"
            "nyala.schemas" = "schemas"
            "nyala.replica" = "replica"
            "nyala.pipeline" = "pipeline"
            "nyala.jobs" = "jobs"
            "nyala.infra" = "infra"
        """,
    ),
    Mutant(
        name="text length is believed",
        rows="IN-90",
        test="tests/unit/decision_executor/test_topic_records.py::test_every_key_and_value_is_answered",
        file="schemas/bounded.py",
        function="_Cursor.blob",
        before="if not 0 <= size <= min(self.left, self.text_bytes_max):",
        after="if size > self.text_bytes_max:",
    ),
    Mutant(
        name="array count is believed",
        rows="IN-90",
        test="tests/unit/decision_executor/test_topic_records.py::test_arrays_of_many_items_are_refused_before_they_are_read",
        file="schemas/bounded.py",
        function="_Cursor.blocks",
        before="if total > self.items_max:",
        after="if total > self.left:",
    ),
    Mutant(
        name="traffic is shown to no verifier",
        rows="CN-26",
        test="tests/sim/test_kept_seeds.py::test_every_verifier_of_a_simulator_is_fed[driver]",
        file="tests/harness/sim_cluster.py",
        function="SimCluster.__init__",
        before="self.network.tap = self.verify.sent",
        after="self.network.tap = lambda sender, receiver, message: None",
    ),
    Mutant(
        name="planted bugs are not looked for in the code",
        test="tests/sim/test_planted_bugs.py::test_planted_bugs_still_fit_the_code",
        file="tests/sim/planted.py",
        function="stale",
        before="swaps.enter_context(swapped(*swap))",
        after="pass",
    ),
    Mutant(
        name="forked worker outlives its runner",
        test="tests/unit/infra/test_parent_death.py::test_workers_of_a_runner_end_when_it_is_killed[mutants]",
        file="tests/mutants/children.py",
        function="_work",
        before="end_with(parent)",
        after="pass",
        on_disk=True,
    ),
    Mutant(
        name="one lane waits for the other",
        test="tests/mutants/test_mutants_runner.py::test_lanes_run_side_by_side_and_none_has_more_than_its_number",
        file="tests/mutants/children.py",
        function="ends",
        before="sum(at == lane for at, _ in running.values()) < workers",
        after="len(running) < workers",
        on_disk=True,
    ),
    Mutant(
        name="spawned worker outlives its runner",
        test="tests/unit/infra/test_parent_death.py::test_workers_of_a_runner_end_when_it_is_killed[simulations]",
        file="tests/sim/__main__.py",
        function="outcomes",
        before=", initializer=end_with, initargs=(os.getpid(),)",
        after="",
        on_disk=True,
    ),
    Mutant(
        name="count of a job is unchecked",
        rows="IN-70",
        test="tests/unit/infra/test_careless_commands.py::test_number_that_an_option_of_a_job_cannot_take_is_refused_in_one_line",
        file="jobs/rebalance.py",
        function="options_parser",
        before='type=count("--moves-max", 1)',
        after="type=int",
    ),
    Mutant(
        name="readme shows an option that the job lacks",
        rows="IN-70",
        test="tests/unit/infra/test_readme_words.py::test_command_that_readme_names_exists",
        file="README.md",
        before="`nyala job rebalance -- --dry-run`",
        after="`nyala job rebalance -- --dry`",
    ),
    Mutant(
        name="readme shows an option that the server lacks",
        rows="IN-70",
        test="tests/unit/infra/test_readme_words.py::test_options_that_readme_shows_outside_of_commands_exist",
        file="docs/operate/deploy.md",
        before="--scrub-interval-s S",
        after="--scrub-every-s S",
    ),
    Mutant(
        name="extra brings another Spark",
        rows="IN-70",
        test="tests/unit/infra/test_installed.py::test_extra_of_the_wheel_brings_the_spark_that_the_project_pins",
        file="pyproject.toml",
        before="pyspark>=4.2,<4.3",
        after="pyspark>=4.1,<4.2",
    ),
    Mutant(
        name="link is opened beside the place for connections",
        rows="none",
        test="tests/tidy/test_connections.py::test_connections_are_made_in_one_place",
        file="replica/transport/link.py",
        function="open_link",
        before="await async_connection_to(target, reply.port, link)",
        after="await asyncio.get_running_loop().create_connection(lambda: link, target.host, reply.port)",
        on_disk=True,
    ),
    Mutant(
        name="handler takes any request",
        rows="none",
        test="tests/tidy/test_types.py::test_requests_have_types_and_any_stands_only_where_a_library_forces_it",
        file="replica/server/requests/tablet_service.py",
        before="async def Flush(self, request: pb.FlushRequest, context: Context) -> pb.FlushReply:",
        after="async def Flush(self, request: Any, context: Context) -> pb.FlushReply:",
        on_disk=True,
    ),
)
