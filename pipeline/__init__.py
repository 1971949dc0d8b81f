"""Kafka and Spark around the tables: publish row events, ingest them, carry decisions out, plan with batch jobs.

Nothing here imports PySpark; queries are handed a SparkSession.
"""

from nyala.replica.base import KafkaSecurity

from .dead_letters import DeadLetter, letter_key
from .decisions import DecisionsOptions, DecisionsQuery
from .decode import RowDecoder, WriterSchema
from .driver import end_in_order
from .errors import QueryInterrupted, QueryRefused
from .framing import Framing
from .ingest import IngestOptions, IngestQuery
from .kafka_security import kafka_options, security_of
from .lease import release_run
from .letters import Letter, LettersUnreadable, iterate_letters, read_letters, replay_letters
from .progress import QUERY_ENDED, QUERY_STARTS, Progress
from .publish import PublishFailed, RowPublisher
from .rebalance import RebalanceOptions, Rebalancer
from .row_schema import encode_key, key_schema_json, row_schema_json
from .session import spark_session
from .submit import submit_command, submit_environment
from .supervise import RestartOptions, Trouble, restart_options, run_with_restarts, trouble_after
from .together import run_decisions, run_ingest
from .topics import TopicIdentity, Topics, dead_letter_topic, writes_topic
from .verify import read_checksums

__all__ = [
    "QUERY_ENDED",
    "QUERY_STARTS",
    "DeadLetter",
    "DecisionsOptions",
    "DecisionsQuery",
    "Framing",
    "IngestOptions",
    "IngestQuery",
    "KafkaSecurity",
    "Letter",
    "LettersUnreadable",
    "Progress",
    "PublishFailed",
    "QueryInterrupted",
    "QueryRefused",
    "RebalanceOptions",
    "Rebalancer",
    "RestartOptions",
    "RowDecoder",
    "RowPublisher",
    "TopicIdentity",
    "Topics",
    "Trouble",
    "WriterSchema",
    "dead_letter_topic",
    "encode_key",
    "end_in_order",
    "iterate_letters",
    "kafka_options",
    "key_schema_json",
    "letter_key",
    "read_checksums",
    "read_letters",
    "release_run",
    "replay_letters",
    "restart_options",
    "row_schema_json",
    "run_decisions",
    "run_ingest",
    "run_with_restarts",
    "security_of",
    "spark_session",
    "submit_command",
    "submit_environment",
    "trouble_after",
    "writes_topic",
]
