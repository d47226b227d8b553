"""A partition's log on disk in Kafka's file formats: segments, indexes, producers, recovery."""
