"""Fetch (1): native handlers answer versions 0-18 on the network threads (next:
cext/fetch/fetch.pyx).

v0-1 messages of format 0, v2-3 of format 1 (docs/decisions/old-formats.md); v1 throttle time; v3
limit of the answer; v4 isolation level and magic 2; v5 log start offset; v7 fetch sessions
(KIP-227); v9 leader epoch; v10 zstd; v11 rack and preferred replica; v12 flexible, last fetched
epoch; v13 topic ids; v15 replica state; v16 node endpoints; v17 directory id; v18 high watermark of
followers.
"""

from barnabas.api.access import Access
from barnabas.security.acl_codes import CLUSTER, CLUSTER_ACTION, READ, TOPIC

KEY = 1
VERSIONS = (0, 18)
# A client that sends a replica id needs the second in place of the first.
ACCESS = Access(native=((READ, TOPIC), (CLUSTER_ACTION, CLUSTER)))
