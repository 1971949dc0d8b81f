"""Kafka -> Spark 3.5 -> Kudu, as a user of Kudu runs it. A script for a separate Python environment, without nyala.

Reads a topic of single-object Avro records to its end with one availableNow query, `from_avro` in the JVM, upserts.
Prints a JSON object for each micro-batch, one before `query.start()` and one when the query has ended.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import expr

SINGLE_OBJECT_HEADER_BYTES = 10
"""Two marker bytes and the fingerprint of the writer's schema [Avro specification, single-object encoding]."""


def main() -> None:
    """Run the query to the topic's end."""
    parser = argparse.ArgumentParser(description="Kafka -> Spark -> Kudu")
    for name in ("kafka", "topic", "master", "table", "schema", "jars", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--offsets-per-trigger-max", type=int, required=True)
    given = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", given.jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given.kafka)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(given.offsets_per_trigger_max))
        .load()
        .select(from_avro(expr(f"substring(value, {SINGLE_OBJECT_HEADER_BYTES + 1})"), given.schema).alias("r"))
        .select("r.key", "r.int_val", "r.string_val")
    )
    target = {"kudu.master": given.master, "kudu.table": given.table, "kudu.operation": "upsert"}

    def store(batch: Any, batch_id: int) -> None:
        started = time.perf_counter()
        batch.write.format("kudu").options(**target).mode("append").save()
        took = time.perf_counter() - started
        print(json.dumps({"event": "micro_batch", "batch_id": batch_id, "duration_s": took}), flush=True)

    print(json.dumps({"event": "query_starts"}), flush=True)
    query = (
        rows.writeStream.foreachBatch(store)
        .option("checkpointLocation", given.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"event": "query_ended"}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
