"""Converts a recovery plan to and from JSON: it is printed for programs, and stored in each directory until it has been
carried out."""

from __future__ import annotations

import json
from typing import Any

from nyala.replica.consensus_metadata import members_from_json, members_json
from nyala.replica.fs import FENCE
from nyala.replica.rows import SourceKey
from nyala.replica.types import Code, Corruption, Disk, OpId, RaftConfig, Refused
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
    """Return the unfinished plan in this directory, if any; Corruption if it cannot be read."""
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
    """Return a plan as a document."""
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
                "members": members_json(t.config),
                "decision": list(t.config.decision),
                "members_before": members_json(t.before),
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
    """Do the inverse of `plan_json`, with all that carrying the plan out needs; KeyError, TypeError or ValueError if
    the document is none."""
    tablets = tuple(
        TabletPlan(
            tablet_id=t["tablet_id"],
            table_id=t["table_id"],
            table_name=t["table"],
            survivor=t["survivor"],
            place=t["place"],
            last=OpId(*t["last"]),
            time=t["time"],
            config=RaftConfig(OpId(*t["opid"]), members_from_json(t["members"]), tuple(t["decision"]), unsafe=True),
            before=RaftConfig(OpId(*t["opid_before"]), members_from_json(t["members_before"])),
            known=OpId(*t["highest_known"]),
            unseen=tuple(t.get("unseen", ())),
            stuck=t.get("stuck", ""),
        )
        for t in document["tablets"]
    )
    lowerings = tuple(SourceLowering(**{**item, "source": SourceKey(*item["source"])}) for item in document["sources"])
    return RecoveryPlan(tablets=tablets, lowerings=lowerings, fingerprint=document["fingerprint"])
