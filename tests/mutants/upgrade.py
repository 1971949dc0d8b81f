"""Mutants: the feature level of a cluster."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_UNIT = "tests/unit/master/test_master_upgrade.py::"
_RAISED = _UNIT + "test_level_is_raised_once_every_server_knows_it"
_AWAY = _UNIT + "test_member_that_is_away_stands_against_it_until_it_is_named"
_MASTERS = _UNIT + "test_other_masters_are_asked_and_each_must_know_it"
_REFUSED = _UNIT + "test_heartbeat_of_a_server_that_is_too_old_is_refused"
_LATER = _UNIT + "test_master_of_a_former_build_applies_no_record_of_a_later_level"
_DIRECTORY = _UNIT + "test_directory_of_a_level_is_opened_by_builds_that_know_it"
_RULE = "replica/master/requests/upgrading.py"

MUTANTS = (
    Mutant(
        name="level is raised over the heads of those who do not know it",
        rows="IN-92",
        test=_RAISED,
        file=_RULE,
        function="finalize_upgrade",
        before="    if against:",
        after="    if False:",
    ),
    Mutant(
        name="server that is behind is not in the way",
        rows="IN-92",
        test=_RAISED,
        file=_RULE,
        function="missing",
        before="elif build.level < level:",
        after="elif build.level < level - 1:",
    ),
    Mutant(
        name="level that no build knows is taken",
        rows="IN-92",
        test=_RAISED,
        file=_RULE,
        function="finalize_upgrade",
        before="if not now <= level <= build_level():",
        after="if not now <= level:",
    ),
    Mutant(
        name="level goes down",
        rows="IN-92",
        test=_RAISED,
        file=_RULE,
        function="finalize_upgrade",
        before="if not now <= level <= build_level():",
        after="if not 0 <= level <= build_level():",
    ),
    Mutant(
        name="member that is away is not waited for",
        rows="IN-92",
        test=_AWAY,
        file=_RULE,
        function="_servers",
        before="needed.update(m.uuid for m in tablet.known_config.members)",
        after="needed.update(())",
    ),
    Mutant(
        name="server that fell silent still counts as upgraded",
        rows="IN-92",
        test=_AWAY,
        file=_RULE,
        function="_servers",
        before="if server_view(state.soft, server, state.options, state.mono_us).alive:",
        after="if True:",
    ),
    Mutant(
        name="server that is named may be too old",
        rows="IN-92",
        test=_UNIT + "test_server_that_is_too_old_is_in_the_way_even_if_it_is_named",
        file=_RULE,
        function="missing",
        before="        for uuid, build in builds.items():\n",
        after="        for uuid, build in builds.items():\n            if uuid in without:\n                continue\n",
    ),
    Mutant(
        name="other masters are not asked",
        rows="IN-92",
        test=_MASTERS + "[away]",
        file=_RULE,
        function="_masters",
        before="others = [m for m in state.group.masters if m.uuid != state.uuid]",
        after="others = [m for m in state.group.masters if False]",
    ),
    Mutant(
        name="whoever answers at a master's address answers for it",
        rows="IN-92",
        test=_MASTERS + "[stranger]",
        file=_RULE,
        function="_masters",
        before="if found.uuid == uuid:",
        after="if True:",
    ),
    Mutant(
        name="master that is away is waived by name",
        rows="IN-92",
        test=_MASTERS + "[away]",
        file=_RULE,
        function="missing",
        before='if kind == "master" or uuid not in without:',
        after="if uuid not in without:",
    ),
    Mutant(
        name="heartbeat of a former build counts",
        rows="IN-93",
        test=_REFUSED,
        file=_RULE,
        function="check_server",
        before="if feature_level < level:",
        after="if False:",
    ),
    Mutant(
        name="former build applies the record of a later level",
        rows="IN-93",
        test=_LATER,
        file="replica/master/catalog/catalog.py",
        function="checked_record",
        before="if isinstance(found, Finalized) and found.level > build_level():",
        after="if False:",
    ),
    Mutant(
        name="catalog of a later build is called damaged",
        rows="IN-93",
        test=_LATER,
        file="replica/master/group/file_check.py",
        function="damaged",
        before="if isinstance(error, LaterFormat):",
        after="if False:",
    ),
    Mutant(
        name="directory does not say the level",
        rows="IN-93",
        test=_DIRECTORY,
        file="replica/fs/instance.py",
        function="_save",
        before="if instance.feature_level > 1:",
        after="if False:",
    ),
    Mutant(
        name="level of a directory is forgotten",
        rows="IN-93",
        test=_DIRECTORY,
        file="replica/fs/instance.py",
        function="read_instance",
        before="for f in features if f.startswith(_LEVEL)), default=1)",
        after="for f in features if False), default=1)",
    ),
    Mutant(
        name="server does not note the level that it hears of",
        rows="IN-93",
        test="tests/unit/server/test_server_heartbeat.py::test_server_notes_the_highest_feature_level_that_a_master_tells",
        file="replica/server/heartbeats/heartbeat.py",
        function="Heartbeats._learn_level",
        before="if level > self._identity.feature_level:",
        after="if False:",
    ),
    Mutant(
        name="master does not note the level in its directory",
        rows="IN-93",
        test="tests/unit/master/test_master_files.py::test_master_notes_the_highest_feature_level_of_its_cluster",
        file="replica/master/group/file_check.py",
        function="FileChecker.belong",
        before="if level > self.instance.feature_level:",
        after="if False:",
    ),
)
