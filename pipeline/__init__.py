"""Kafka and Spark around the tables: publish row events, ingest them, carry decisions out, plan with batch jobs.

Nothing here imports PySpark; queries receive a SparkSession. A module of this package is imported when one of its names
is first used, so that the use of an error's class or a schema does not load the Kafka client.
"""

from typing import TYPE_CHECKING

from nyala.replica.types import lazy_imports

if TYPE_CHECKING:
    from nyala.replica.types import KafkaSecurity

    from .dead_letter_producer import DeadLetter, letter_key
    from .dead_letter_reader import (
        LettersUnreadable,
        StoredDeadLetter,
        iterate_letters,
        letters_held,
        replay_letters,
    )
    from .decision_log import DecisionLog
    from .decision_story import Event, Step, Told, story, without_beginning
    from .decisions import DecisionsOptions, DecisionsProgress, DecisionsQuery
    from .decode import RowDecoder, WriterSchema
    from .driver import end_in_order
    from .errors import QueryInterrupted, QueryRefused
    from .framing import Framing
    from .history import Difference, Replay, Replayed, differences, fold
    from .ingest import IngestOptions, IngestQuery
    from .kafka_security import kafka_options, security_of
    from .lease import release_run
    from .progress import QUERY_ENDED, QUERY_STARTS, Progress
    from .publish import PublishFailed, RowMisfit, RowPublisher
    from .rebalance import PlacementOptions, RebalanceOptions, Rebalancer
    from .row_schema import key_schema_json, row_schema_json
    from .run_queries import run_decisions, run_ingest
    from .session import spark_session
    from .source_lag import LAG_TIMEOUT_S, SourceLag, source_lags
    from .submit import submit_command, submit_environment
    from .supervise import FailureStreak, RestartOptions, restart_options, run_with_restarts, streak_after
    from .topics import TopicIdentity, Topics, dead_letter_topic, writes_topic
    from .verify import read_checksums

__getattr__, __dir__, __all__ = lazy_imports(__name__)
