"""EndTxn (26): native handlers answer versions 0-5 on the network threads (next:
cext/coordinator/transaction_handler.pyx).

It commits or aborts a transaction, and is answered when that is decided. Markers follow the answer:
a reader of committed records sees the transaction when they are written, and the next request of
the producer waits for them.

v2 PRODUCER_FENCED is known; v3 flexible; v4 TRANSACTION_ABORTABLE; v5 each end bumps the epoch
(KIP-890): the answer has the producer id and epoch for the next transaction.
"""

from barnabas.api.access import Access
from barnabas.security.acl_codes import TRANSACTIONAL_ID, WRITE

KEY = 26
VERSIONS = (0, 5)
ACCESS = Access(native=((WRITE, TRANSACTIONAL_ID),))
