"""The producer of Kafka 0.7 and 0.8: `barnabas.clients.Producer`. Start with producer.py."""
