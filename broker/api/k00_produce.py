"""Produce (0): native handlers answer versions 0-13 on the network threads (next:
cext/produce/produce.pyx).

v0-2 messages of the formats 0 and 1, which become batches (docs/decisions/old-formats.md); v1
throttle time; v2 append time; v3 transactional id and batches of magic 2; v5 log start offset; v7
zstd; v8 record errors; v9 flexible; v10 current leader; v12 nothing on the wire (transactions'
second version); v13 topic ids.
"""

from barnabas.api.access import Access
from barnabas.security.acl_codes import TOPIC, TRANSACTIONAL_ID, WRITE

KEY = 0
VERSIONS = (0, 13)
ACCESS = Access(native=((WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC)))
