"""The protocol of Kafka 0.7 on a listener of its own (docs/decisions/kafka-0.7.md).

frames.py reads requests and writes answers, produce.py converts what producers send, addresses.py
gives the records of a partition their byte addresses, and service.py answers the requests."""
