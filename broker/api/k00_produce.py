"""Produce (0): native handlers answer versions 3-13 on the network threads (next:
cext/produce/produce.pyx).

Versions 0-2 carry message sets of the old formats; the broker refuses them as Kafka 4.x does. But
ApiVersions lists 0-13, because librdkafka silently stops compressing when the range begins above 2.

v3 transactional id and batches of magic 2; v5 log start offset; v7 zstd; v8 record errors; v9
flexible; v10 current leader; v12 nothing on the wire (transactions' second version); v13 topic ids.
"""

from barnabas.api.access import Access
from barnabas.security.acl_codes import TOPIC, TRANSACTIONAL_ID, WRITE

KEY = 0
VERSIONS = (3, 13)
ACCESS = Access(native=((WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC)))
ADVERTISED_MIN = 0
