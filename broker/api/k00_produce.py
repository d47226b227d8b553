"""Produce (0): served in versions 3-13 on the network threads (cext/produce/produce.pyx is next).

Versions 0-2 carry message sets of the old formats; they are refused as 4.x refuses them, but
ApiVersions says 0-13 all the same, because librdkafka stops compressing without a word when the
range begins above 2.

v3 transactional id and batches of magic 2; v5 log start offset; v7 zstd; v8 record errors; v9
flexible; v10 current leader; v12 nothing on the wire (transactions' second version); v13 topic ids.
"""

KEY = 0
VERSIONS = (3, 13)
ADVERTISED_MIN = 0
