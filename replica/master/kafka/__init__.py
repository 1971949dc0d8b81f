"""The masters' side of Kafka: its topics, their threads, and how each fares."""
