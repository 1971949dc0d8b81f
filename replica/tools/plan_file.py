"""A recovery plan as a document: printed for programs, and left in each directory until it is carried out."""

from __future__ import annotations

import json
from typing import Any

from nyala.replica.base import Address, Code, Corruption, Disk, Member, OpId, RaftConfig, Refused
from nyala.replica.disk import FENCE
from nyala.replica.rows import SourceKey
from nyala.schemas import frame, unframe

from .recovery_plan import RecoveryPlan, SourceLowering, TabletPlan

_SCHEMA = "recovery_journal"


def save_journal(disk: Disk, plan: RecoveryPlan) -> None:
    """Fence the directory off with the plan; Refused(ALREADY_INPROGRESS) if another one is unfinished there."""
    found = load_journal(disk)
    if found is None:
        record = {"fingerprint": plan.fingerprint, "plan_json": json.dumps(plan_json(plan))}
        disk.replace(FENCE, frame(_SCHEMA, record))
    elif found.fingerprint != plan.fingerprint:
        raise Refused(
            Code.ALREADY_INPROGRESS,
            "another recovery is unfinished in this directory; nothing was changed",
            unfinished=found.fingerprint,
            asked=plan.fingerprint,
            path=disk.real_path(FENCE),
        )


def load_journal(disk: Disk) -> RecoveryPlan | None:
    """The plan that is unfinished in this directory, if any; Corruption if it does not read back."""
    if not disk.exists(FENCE):
        return None
    try:
        return plan_of_json(json.loads(unframe(_SCHEMA, disk.read(FENCE))["plan_json"]))
    except (ValueError, EOFError, KeyError, TypeError, IndexError) as error:
        path = disk.real_path(FENCE)
        raise Corruption(
            "the plan of an unfinished recovery does not read back", path=path, cause=str(error)
        ) from error


def plan_json(plan: RecoveryPlan) -> dict[str, Any]:
    """A plan as a document."""
    return {
        "fingerprint": plan.fingerprint,
        "tablets": [
            {
                "tablet_id": t.tablet_id,
                "table_id": t.table_id,
                "table": t.table_name,
                "survivor": t.survivor,
                "place": t.place,
                "last": list(t.last),
                "time": t.time,
                "opid": list(t.config.opid),
                "members": [_member_json(m) for m in t.config.members],
                "decision": list(t.config.decision),
                "members_before": [_member_json(m) for m in t.before.members],
                "opid_before": list(t.before.opid),
                "given_up": list(t.given_up),
                "unseen": list(t.unseen),
                "stuck": t.stuck,
                "highest_known": list(t.known),
                "entries_known_lost": t.entries_lost,
            }
            for t in plan.tablets
        ],
        "left_alone": [
            {"tablet_id": a.tablet_id, "table": a.table_name, "why": str(a.why), "what": a.what}
            for a in plan.left_alone
        ],
        "sources": [
            {**lowering.__dict__, "source": list(lowering.source)} for lowering in plan.lowerings
        ],
    }  # fmt: skip


def plan_of_json(document: dict[str, Any]) -> RecoveryPlan:
    """The inverse of `plan_json`, as far as carrying it out needs; KeyError, TypeError or ValueError if it is none."""
    tablets = tuple(
        TabletPlan(
            tablet_id=t["tablet_id"],
            table_id=t["table_id"],
            table_name=t["table"],
            survivor=t["survivor"],
            place=t["place"],
            last=OpId(*t["last"]),
            time=t["time"],
            config=RaftConfig(
                OpId(*t["opid"]), tuple(_member(m) for m in t["members"]), tuple(t["decision"]), unsafe=True
            ),
            before=RaftConfig(OpId(*t["opid_before"]), tuple(_member(m) for m in t["members_before"])),
            known=OpId(*t["highest_known"]),
            unseen=tuple(t.get("unseen", ())),
            stuck=t.get("stuck", ""),
        )
        for t in document["tablets"]
    )
    lowerings = tuple(SourceLowering(**{**item, "source": SourceKey(*item["source"])}) for item in document["sources"])
    return RecoveryPlan(tablets=tablets, lowerings=lowerings, fingerprint=document["fingerprint"])


def _member_json(member: Member) -> dict[str, Any]:
    return {
        "uuid": member.uuid,
        "addresses": [str(a) for a in member.addresses],
        "votes": member.votes,
        "promote": member.promote,
        "holds_data": member.holds_data,
        "replace": member.replace,
    }


def _member(item: dict[str, Any]) -> Member:
    return Member(**{**item, "addresses": tuple(Address.parse(a) for a in item["addresses"])})
