"""Generated mutants that no test can tell from the code, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Equivalent:
    """`before` and `after` are the changed lines as `python -m tests.mutants.generated` prints them."""

    file: str
    function: str
    before: str
    after: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        file="replica/policy/decide.py",
        function="_Evaluation._keeping_failing_learners",
        before="if not failing or any(not s.avoided for s in replacements_for(self.view, tablet, self.replicas)):",
        after="if any((not s.avoided for s in replacements_for(self.view, tablet, self.replicas))):",
        reason="It saves a search; with nobody failing, the tablet that is returned is equal to the one that came.",
    ),
    Equivalent(
        file="replica/policy/leaving.py",
        function="seen_leaving",
        before="if leaving.isdisjoint(m.uuid for m in tablet.config.members):",
        after="if False:",
        reason="It saves a copy; with nobody leaving, the copy is equal to the tablet.",
    ),
    Equivalent(
        file="replica/policy/membership.py",
        function="evict_rank",
        before="return 5 if health is Health.UNKNOWN else 6",
        after="return 5 if health is Health.UNKNOWN else 7",
        reason="Ranks are only compared, and this one stays the highest.",
    ),
    Equivalent(
        file="replica/policy/membership.py",
        function="_evict.order",
        before="return (member.uuid in keep and rank > 4, rank, whole, leads, -load.get(member.uuid, 0), member.uuid)",
        after="return (member.uuid in keep and rank > 5, rank, whole, leads, -load.get(member.uuid, 0), member.uuid)",
        reason="It would put a kept member of unknown health first, and that one is passed over wherever it stands.",
    ),
    Equivalent(
        file="replica/policy/placement.py",
        function="place_tablets",
        before="of_table[server.uuid] += 1",
        after="of_table[server.uuid] += 2",
        reason="These counts begin at nothing and are only compared with each other.",
    ),
    Equivalent(
        file="replica/policy/placement.py",
        function="place_tablets",
        before="leaders[names[0]] += 1",
        after="leaders[names[0]] += 2",
        reason="These counts begin at nothing and are only compared with each other.",
    ),
)
