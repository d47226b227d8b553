"""The place of barnabas.cext.record.key_hash in 0.1.0, for partitioners that were written for it.
The release after the next one drops it."""

import warnings

from barnabas.cext.record.key_hash import java_hash, murmur2, murmur2_partitions

__all__ = ["java_hash", "murmur2", "murmur2_partitions"]

warnings.warn(
    "barnabas.cext.key_hash is barnabas.cext.record.key_hash now",
    DeprecationWarning,
    stacklevel=2,
)
