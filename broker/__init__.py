"""barnabas: an Apache-Kafka-compatible message broker in one Python process.

The rooms below this package are described in ARCHITECTURE.md. The data path reads, in order:
cext/reactor, broker/api/k00_produce, cext/partitions, cext/log, cext/index, cext/records.
"""

__version__ = "0.1.0"
