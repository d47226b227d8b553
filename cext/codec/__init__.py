"""Kafka's primitive types, messages and compressed blocks: the checked cursor, varints, CRC-32C."""
