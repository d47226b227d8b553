"""The producer id of a transactional id after a stop, and after a start that followed none."""

import pytest
from api.admin_calls import admin_on
from waiting import soon

CLEAN = ".kafka_cleanshutdown"


def producer_of(a):
    """Initializes a producer. Returns (producer id, epoch)."""

    def asked():
        a.call(10, 4, keyType=1, coordinatorKeys=["x"])  # creates the topic of the coordinator
        answer = a.call(22, 2, transactionalId="x", transactionTimeoutMs=60_000)
        return None if answer.errorCode else (answer.producerId, answer.producerEpoch)

    return soon(asked, "it has no coordinator", patience_s=20)


@pytest.mark.parametrize(
    ("durability", "is_clean", "is_kept"),
    [("os", True, True), ("os", False, False), ("fsync", False, True)],
)
def test_a_producer_id_whose_epochs_may_be_lost_is_not_used_again(
    tmp_path, durability, is_clean, is_kept
):
    settings = {"log_durability": durability, "transaction_state_log_num_partitions": "1"}
    with admin_on(tmp_path, **settings) as a:
        before, data = producer_of(a), a.data
    if not is_clean:
        (data / CLEAN).unlink()
    with admin_on(tmp_path, **settings) as a:
        after = producer_of(a)
    if is_kept:
        assert after == (before[0], before[1] + 1)
    else:
        assert after[0] != before[0] and after[1] == 0
