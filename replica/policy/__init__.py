"""Pure functions that compute decisions, placements and plans from a view of the cluster. Masters and batch jobs call
them."""

from .decide import decide
from .desired_changes import ChangeState, change_state
from .in_place import ORDER_AGAIN_US, ORDER_REPEATED_US, copies_in_place
from .layout import not_settled
from .membership import Advice, Need, advise, can_commit, evict_rank, is_at_rest, is_under_replicated, transfer_target
from .placement import place_tablets, replacements_for, replica_load, room_left
from .placement_plan import Goals, lost_replicas, plan_placement
from .rebalance import plan_rebalance, skew, skews
from .reports import Inputs, desired_numbers, inputs_of, view_of_reports
from .views import (
    Caps,
    ChangeKind,
    ClusterView,
    DesiredChange,
    Health,
    Move,
    MoveKind,
    Moves,
    ServerView,
    TabletView,
)
