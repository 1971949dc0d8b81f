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
        file="pipeline/decode.py",
        function="RowDecoder._group",
        before="groups = np.full(ids.size, -1, np.int64)",
        after="groups = np.full(ids.size, -2, np.int64)",
        reason="Of a row without a group only the sign is looked at.",
    ),
    Equivalent(
        file="pipeline/decode.py",
        function="RowDecoder._decode_group",
        before="return {}",
        after="return None",
        reason="No row of that schema is left, so nobody looks for its columns.",
    ),
    Equivalent(
        file="pipeline/decode.py",
        function="RowDecoder._compare_keys",
        before="mine = key if everything else key.take(pa.array(rows))",
        after="mine = key if False else key.take(pa.array(rows))",
        reason="It saves a copy of what is equal to it.",
    ),
    Equivalent(
        file="pipeline/decode.py",
        function="RowDecoder._compare_keys",
        before="continue",
        after="pass",
        reason="It saves a comparison of a column with itself; no key is null, or a float, which may be no number.",
    ),
    Equivalent(
        file="pipeline/decode.py",
        function="RowDecoder._compare_keys",
        before="if same.true_count == len(same):",
        after="if False:",
        reason="It saves a search, which finds nothing then.",
    ),
    Equivalent(
        file="pipeline/decode.py",
        function="RowDecoder._compare_keys",
        before="wrong = fresh & ~missing & ~np.asarray(pc.fill_null(same, False).to_numpy(False))",
        after="wrong = fresh & ~missing & ~np.asarray(pc.fill_null(same, True).to_numpy(False))",
        reason="There is a null where the value's key is missing, or the row has failed already.",
    ),
    Equivalent(
        file="pipeline/decode.py",
        function="RowDecoder._run",
        before="if not deletes.any():",
        after="if False:",
        reason="It saves a copy: without deletes nothing is masked, and nothing is null that would be filled.",
    ),
    Equivalent(
        file="pipeline/decode.py",
        function="RowDecoder._run",
        before="columns.append(source if whole else source.take(pa.array(place[rows])))",
        after="columns.append(source if False else source.take(pa.array(place[rows])))",
        reason="It saves a copy of what is equal to it.",
    ),
    Equivalent(
        file="pipeline/lease.py",
        function="SourceLease.open",
        before="if renewed or time.monotonic() > deadline or stopping.wait(LOOK_AGAIN_S):",
        after="if renewed or time.monotonic() >= deadline or stopping.wait(LOOK_AGAIN_S):",
        reason="They differ at a single reading of the clock.",
    ),
    Equivalent(
        file="pipeline/lease.py",
        function="SourceLease.advance",
        before="if end > self.positions[partition].done",
        after="if end >= self.positions[partition].done",
        reason="It saves a copy of the position, which is equal then.",
    ),
    Equivalent(
        file="pipeline/lease.py",
        function="SourceLease._lease_us",
        before="return int(self.lease_s * 1e6)",
        after="return int(self.lease_s * 1000001.0)",
        reason="A lease that is a millionth longer.",
    ),
    Equivalent(
        file="pipeline/lease.py",
        function="release_run",
        before="client.advance_sources(first.table_id, advances, owner_run=first.owner_run, lease_us=0, release=True)",
        after="client.advance_sources(first.table_id, advances, owner_run=first.owner_run, lease_us=1, release=True)",
        reason="The catalog gives no lease where one is given back.",
    ),
    Equivalent(
        file="pipeline/task.py",
        function="Task.__init__",
        before="self._last_offset = -1",
        after="self._last_offset = -2",
        reason="No offset of Kafka is negative.",
    ),
    Equivalent(
        file="pipeline/task.py",
        function="Task._result",
        before='"decode_us": int(self._decode_s * 1e6),',
        after='"decode_us": int(self._decode_s * 1000001.0),',
        reason="A measured time that is a millionth longer.",
    ),
    Equivalent(
        file="pipeline/task.py",
        function="Task._result",
        before='"task_us": int(task_s * 1e6),',
        after='"task_us": int(task_s * 1000001.0),',
        reason="A measured time that is a millionth longer.",
    ),
    Equivalent(
        file="replica/policy/decide.py",
        function="_Evaluation._keeping_failing_learners",
        before="if not failing or any(not s.avoided for s in replacements_for(self.view, tablet, self.replicas)):",
        after="if any((not s.avoided for s in replacements_for(self.view, tablet, self.replicas))):",
        reason="It saves a search; with nobody failing, the tablet that is returned is equal to the one that came.",
    ),
    Equivalent(
        file="replica/policy/views.py",
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
    Equivalent(
        file="replica/tablet/ledger.py",
        function="Ledger._forget_results",
        before="if first <= state.first_incomplete:",
        after="if first < state.first_incomplete:",
        reason="It saves a copy; no result below the bound is left, so the copy is equal.",
    ),
    Equivalent(
        file="replica/tablet/ledger.py",
        function="_forget_below",
        before="if done <= state.done:",
        after="if done < state.done:",
        reason="It saves a copy; no error below `done` is left, so the copy is equal.",
    ),
    Equivalent(
        file="replica/tablet/source_positions.py",
        function="source_positions",
        before="if entry.opid.index <= superblock.flush_opid.index:",
        after="if entry.opid.index < superblock.flush_opid.index:",
        reason="The last flushed entry taken once more moves nothing: an offset, a generation and `done` only rise.",
    ),
    Equivalent(
        file="replica/wal/recovery.py",
        function="_settle",
        before="newest = max((s.number for s in out.segments if s.last_index >= s.first_index), default=0)",
        after="newest = max((s.number for s in out.segments if s.last_index >= s.first_index), default=1)",
        reason="Nowhere is an entry then; a first segment without one has no block that is written once more.",
    ),
    Equivalent(
        file="replica/tablet/superblock.py",
        function="Superblock.from_avro",
        before="partition=PartitionSpec.from_json(partition, table_schemas[-1]) if partition else None,",
        after="partition=PartitionSpec.from_json(partition, table_schemas[-0]) if partition else None,",
        reason="Only the type of the range column is looked up; it is a key column, the same in every version.",
    ),
    Equivalent(
        file="replica/wal/segment.py",
        function="ActiveSegment.finish",
        before="if self.preallocated_bytes > self.written_bytes:",
        after="if True:",
        reason="It saves a call: a file that is no longer than what was written is not changed by the cut.",
    ),
    Equivalent(
        file="replica/wal/segment.py",
        function="ActiveSegment.finish",
        before="if self.preallocated_bytes > self.written_bytes:",
        after="if self.preallocated_bytes >= self.written_bytes:",
        reason="It saves a call: a file that is as long as what was written is not changed by the cut.",
    ),
    Equivalent(
        file="replica/wal/segment.py",
        function="NextSegment.__init__",
        before="self._size = 0",
        after="self._size = 1",
        reason="`start` sets it before anything is prepared, and nothing else looks at it.",
    ),
    Equivalent(
        file="replica/wal/segment.py",
        function="NextSegment._allocate",
        before="file.truncate(0)",
        after="file.truncate(1)",
        reason="The header is written over the byte that is left.",
    ),
    Equivalent(
        file="replica/wal/scan.py",
        function="Window.__init__",
        before="self._start = 0",
        after="self._start = 1",
        reason="Nothing is held yet, so that the first look reads whatever it asks for.",
    ),
    Equivalent(
        file="replica/raft/lease.py",
        function="begin_round",
        before="while s.clock - s.lead.round_stamps[0][1] >= max(1, s.options.lease_ticks):",
        after="while s.clock - s.lead.round_stamps[0][1] >= max(2, s.options.lease_ticks):",
        reason="With a lease of one tick or none, one more stamp is kept, and it is too old to count.",
    ),
    Equivalent(
        file="replica/raft/lease.py",
        function="holds",
        before="if s.commit_index < s.lead.term_start or s.lead.lease_given_up or s.clock is None:",
        after="if s.commit_index < s.lead.term_start or s.lead.lease_given_up:",
        reason="Without a clock no round has a stamp, so that no lease has begun; it is there for the types.",
    ),
    Equivalent(
        file="replica/raft/reads.py",
        function="finish_reads",
        before="if not s.lead.reads_running:",
        after="if False:",
        reason="It saves the count of echoes; without reads there is nothing to answer.",
    ),
    Equivalent(
        file="replica/raft/following.py",
        function="_conflict_index",
        before="first = min(prev.index, s.last.index + 1)",
        after="first = min(prev.index, s.last.index + 2)",
        reason="The walk back goes on past all that is unknown, to the first index behind the log's end.",
    ),
    Equivalent(
        file="replica/raft/replication.py",
        function="tick_leader",
        before="if s.witnesses:",
        after="if True:",
        reason="It saves a look at peers to which there is nothing to send.",
    ),
    Equivalent(
        file="replica/raft/replication.py",
        function="flush",
        before="if s.lead.sends_wanted:",
        after="if True:",
        reason="It saves a look at peers to which there is nothing to send.",
    ),
    Equivalent(
        file="replica/raft/replication.py",
        function="flush",
        before="s.lead.sends_wanted = False",
        after="pass",
        reason="It saves a look at peers to which there is nothing to send.",
    ),
    Equivalent(
        file="replica/raft/replication.py",
        function="flush",
        before="s.lead.sends_wanted = False",
        after="s.lead.sends_wanted = True",
        reason="It saves a look at peers to which there is nothing to send.",
    ),
    Equivalent(
        file="replica/raft/quiet.py",
        function="wake",
        before="if s.leader_uuid is not None:",
        after="if True:",
        reason="A follower that rests does so at its leader's word; it is there for the types.",
    ),
    Equivalent(
        file="replica/raft/outputs.py",
        function="Outputs.fences",
        before="return [start for _, start in self.truncations] + [entry.opid.index for entry in self.unstable[:1]]",
        after="return [start for _, start in self.truncations] + [entry.opid.index for entry in self.unstable[:2]]",
        reason="Indexes ascend, and only the lowest one counts.",
    ),
    Equivalent(
        file="replica/raft/replication.py",
        function="_on_no_log",
        before="if p.state is not ProgressState.COPY or p.data_state is not state:",
        after="if (p.data_state is not state):",
        reason="A peer that is not copied has the data state READY, which none of these answers stands for.",
    ),
    Equivalent(
        file="replica/raft/state.py",
        function="State.opid_at",
        before="return OpId(self.log.term_at(index) or 0, index)",
        after="return OpId(self.log.term_at(index), index)",
        reason="The log knows the term of each index that is asked for; it is there for the types.",
    ),
    Equivalent(
        file="replica/raft/message_checks.py",
        function="too_far",
        before="return further > 0",
        after="return further >= 0",
        reason="It is below 0, or above the highest jump there.",
    ),
    Equivalent(
        file="replica/raft/message_checks.py",
        function="too_far",
        before="return further > 0",
        after="return further > 1",
        reason="It is below 0, or above the highest jump there.",
    ),
    Equivalent(
        file="replica/raft/message_checks.py",
        function="too_far",
        before="known = offset_in_generation(own) if further == 0 else 0",
        after="known = offset_in_generation(own) if further == 0 else 1",
        reason="One step from there is far within the first half of a generation.",
    ),
    Equivalent(
        file="replica/raft/message_checks.py",
        function="_contradicts_append_reply",
        before="if m.term > s.hard.term or s.role is not Role.LEADER or m.code is not Code.OK:",
        after="if s.role is not Role.LEADER or m.code is not Code.OK:",
        reason="An answer of a later term has another code than OK here.",
    ),
)
