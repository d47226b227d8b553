"""Checks for Produce whether a producer may write to a partition in its transaction.

Produce requests below ADDS_FROM come from clients that add partitions themselves: the check looks
for the partition when its log does not expect the transaction (after a restart, or when too many
are expected). From ADDS_FROM on the check adds it (KIP-890, second part). The answer has an error
code that the client's version can act on.

Such a client writes on as soon as the end of its last transaction was decided, and the coordinator
adds the partition when that one is complete. The marker of that transaction may come to the
partition meanwhile; `add_for_append` then adds it again.

This node asks its own coordinator. Next: cext/produce/transaction_check.pyx, where the questions
wait.
"""

from __future__ import annotations

import logging

from barnabas.cext.produce.transaction_check import VerifyJob, VerifyQueue
from barnabas.coordinator.rounds import lending
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
)
from barnabas.server.job_threads import JobThreads

log = logging.getLogger("barnabas.transactions")

ADDS_FROM = 12  # of Produce
ABORTABLE_FROM = 11  # clients that know TRANSACTION_ABORTABLE

# After NOT_ENOUGH_REPLICAS clients send the batch again without a request for new metadata.
_TRY_AGAIN = (
    ConcurrentTransactions.code,
    CoordinatorLoadInProgress.code,
    CoordinatorNotAvailable.code,
    NotCoordinator.code,
)


def code_for_version(code: int, api_version: int) -> int:
    """Returns the error code that a producer receives, by the version of its Produce request."""
    if code == ProducerFenced.code:
        return InvalidProducerEpoch.code
    if code == TransactionAbortable.code and api_version < ABORTABLE_FROM:
        return InvalidTxnState.code
    return NotEnoughReplicas.code if code in _TRY_AGAIN else code


class Verifier:
    """Answers the checks of one broker; none of them waits here."""

    def __init__(self, queue: VerifyQueue, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self.threads = JobThreads("verifier", queue, self._carry_out)

    def _carry_out(self, job: VerifyJob) -> None:
        try:
            with lending():
                self._answer(job)
        except Exception:
            log.exception("the verification of the transaction of %r failed", job.transactional_id)
            _finish(job, UnknownServerError.code)

    def _answer(self, job: VerifyJob) -> None:
        try:
            name = job.transactional_id.decode()
            producer = name, job.producer_id, job.producer_epoch
            if job.api_version >= ADDS_FROM:
                self._coordinator.add_for_append(
                    *producer,
                    job.partitions,
                    job.renew,
                    lambda error: _finish(job, 0 if error is None else error.code),
                )
            else:
                codes = self._coordinator.verify(*producer, job.partitions)
                job.done([code_for_version(code, job.api_version) for code in codes])
        except UnicodeDecodeError:
            _finish(job, InvalidTxnState.code)
        except KafkaError as error:
            _finish(job, error.code)


def _finish(job: VerifyJob, code: int) -> None:
    """The same of every partition."""
    job.done([code_for_version(code, job.api_version)] * len(job.partitions))
