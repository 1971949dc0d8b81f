"""Mutants: the times of Spark queries in the masters' catalog."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNIT = "tests/unit/master/test_master_read_times.py"
RULE = "replica/master/catalog/read_times.py"
INDEX = "replica/master/catalog/kept_read_times.py"
SERVICE = "replica/master/requests/master_service.py"
EARLIER = "tests/unit/client/test_client_read_times.py"
MASTERS = "replica/client/masters.py"
ONE = f"{UNIT}::test_query_never_has_two_times_whatever_is_forgotten_and_whoever_leads"
FIRST = f"{UNIT}::test_first_proposal_is_the_time_and_a_thousand_tasks_cost_one_entry"
QUERY = f"{UNIT}::test_forgotten_query_is_refused_and_a_newer_one_of_its_load_goes_on"
LOAD = f"{UNIT}::test_forgotten_load_is_refused_and_one_that_is_made_after_it_goes_on"
HOST = f"{UNIT}::test_host_pushes_out_its_own_times_only_once_it_has_its_share"
FORGED = f"{UNIT}::test_forged_entry_changes_no_time"
ANY = f"{UNIT}::test_master_answers_what_is_committed_whether_it_leads_or_not"

MUTANTS = tuple(
    Mutant(name=name, rows=rows, test=test, file=file, function=function, before=before, after=after)
    for name, rows, test, file, function, before, after in (
        ("later proposal counts", "none", FIRST, RULE, "agree", "    if known:", "    if False:"),
        ("forgotten query looks new", "none", QUERY, RULE, "agreed_time", "query < load.from_query:", "query < 0:"),
        (
            "forgotten query looks new to anyone",
            "IN-10",
            ONE,
            RULE,
            "agreed_time",
            "query < load.from_query:",
            "query < 0:",
        ),
        ("forgotten query is the last refused", "none", QUERY, RULE, "agree", "old.query + 1)", "old.query)"),
        (
            "forgetting an earlier query forgets the later ones again",
            "IN-10",
            ONE,
            RULE,
            "agree",
            "from_query=max(left.from_query, old.query + 1)",
            "from_query=old.query + 1",
        ),
        ("forgotten load looks new", "none", LOAD, RULE, "agreed_time", "floor < made <=", "floor <= made <="),
        ("forgotten load looks new to anyone", "IN-10", ONE, RULE, "agreed_time", "floor < made <=", "made <="),
        (
            "floor sinks",
            "IN-10",
            ONE,
            RULE,
            "agree",
            "high = max(_floor(catalog), left.made if left",
            "high = max(left.made if left",
        ),
        (
            "load is made at a position to come",
            "none",
            LOAD,
            RULE,
            "agreed_time",
            "made <= catalog.applied_opid",
            "made",
        ),
        ("load is made twice", "none", LOAD, RULE, "agreed_time", "elif load.made != made:", "elif False:"),
        (
            "load with other times is forgotten",
            "IN-10",
            ONE,
            RULE,
            "agree",
            '(left is load or len(catalog.read_times.owned("load", old.load_id)) > 1)',
            "left is load",
        ),
        (
            "read of an application goes back",
            "IN-10",
            ONE,
            RULE,
            "agree",
            "time=max(proposed.time, newest)",
            "time=proposed.time",
        ),
        (
            "oldest read of an application counts",
            "IN-10",
            ONE,
            RULE,
            "agree",
            "before[max(before)]",
            "before[min(before)]",
        ),
        (
            "times are not bounded",
            "none",
            ONE,
            RULE,
            "_to_forget",
            "if catalog.count(READ_TIME) < limits.READ_TIMES_MAX:",
            "if True:",
        ),
        (
            "host takes all times",
            "IN-60",
            HOST,
            RULE,
            "_to_forget",
            "len(of_host) >= limits.READ_TIMES_PER_HOST_MAX",
            "False",
        ),
        (
            "forged second time counts",
            "IN-50",
            FORGED,
            INDEX,
            "KeptReadTimes.add",
            "self._times.setdefault((time.load_id, time.query), time)",
            "self._times[time.load_id, time.query] = time",
        ),
        (
            "end of a forged time ends the first",
            "IN-50",
            FORGED,
            INDEX,
            "KeptReadTimes.remove",
            "if self._times.get((time.load_id, time.query)) is time:",
            "if True:",
        ),
        (
            "time without a load is forgotten as if it was the first",
            "IN-50",
            FORGED,
            RULE,
            "agree",
            "else catalog.applied_opid)",
            "else ZERO_OPID)",
        ),
        (
            "rebuilt catalog takes the loads of the lost one",
            "none",
            f"{UNIT}::test_rebuilt_catalog_knows_no_load_of_the_lost_one",
            "replica/master/group/rebuilt_catalog.py",
            "catalog_entry",
            "ReadFloor(term=term, index=0)",
            "ReadFloor(term=0, index=0)",
        ),
        (
            "only the leader answers a time",
            "none",
            ANY,
            SERVICE,
            "MasterService.AgreeReadTime",
            "if known is not None:",
            "if known is not None and self.state.group.is_leader:",
        ),
        (
            "any master answers that there is no time",
            "none",
            ANY,
            SERVICE,
            "MasterService.AgreeReadTime",
            "await self.state.lead()",
            "pass",
        ),
        (
            "times are of any id",
            "none",
            ANY,
            "replica/master/requests/conversions.py",
            "read_time_from_pb",
            "if not is_uuid(given):",
            "if False:",
        ),
        (
            "hybrid time is too large for the log",
            "IN-50",
            "tests/unit/master/test_master_entries.py::test_no_record_goes_into_the_log_that_could_not_be_read",
            "replica/master/group/entries.py",
            "",
            "_time = _up_to(MAX_HYBRID_TIME)",
            "_time = _up_to(limits.NUMBER_MAX)",
        ),
        (
            "forced config forgets times",
            "none",
            f"{UNIT}::test_load_of_before_a_forced_config_is_refused",
            RULE,
            "agreed_time",
            "if generation_of(made.term) != generation_of(catalog.applied_opid.term):",
            "if False:",
        ),
        (
            "follower of an earlier build hides the leader",
            "none",
            f"{EARLIER}::test_follower_of_an_earlier_build_hides_no_leader",
            MASTERS,
            "Masters.call",
            "if address != hinted and not lacking >= set(self.addresses):",
            "if False:",
        ),
        (
            "leader of an earlier build is named without end",
            "none",
            f"{EARLIER}::test_leading_master_of_an_earlier_build_is_told_and_a_refusal_stays_one",
            MASTERS,
            "Masters.call",
            "address != hinted and not",
            "not",
        ),
        (
            "master of an earlier build is asked in turn",
            "none",
            f"{EARLIER}::test_leading_master_of_an_earlier_build_is_told_and_a_refusal_stays_one",
            MASTERS,
            "Masters.call",
            "lacking.add(address)",
            "pass",
        ),
        (
            "leader that only an earlier build knows is not found",
            "none",
            f"{EARLIER}::test_leader_is_found_that_only_a_follower_of_an_earlier_build_knows",
            MASTERS,
            "Masters.call",
            "self._learn(address)",
            "pass",
        ),
        (
            "election beside an earlier build is the end",
            "none",
            f"{EARLIER}::test_election_beside_masters_of_an_earlier_build_is_waited_for",
            MASTERS,
            "Masters._choose_next_master",
            "if self._known[at] not in lacking",
            "if True",
        ),
    )
)
