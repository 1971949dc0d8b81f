"""The masters' side of Kafka: its topics, their threads, and the state of each."""
