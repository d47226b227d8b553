"""Asks coordinators on other brokers about transactions in partitions that this node leads.

A network thread puts a question into a queue when the first batch of a transaction arrives for a
partition while another broker coordinates the transactional id. One thread finds the coordinator of
each question; a queue for each broker (broker_queues.py) sends AddPartitionsToTxn with all
questions since its last request, one for each transactional id. The responses complete the waiting
requests.

Version 4 asks whether partitions belong to a transaction; Kafka 3.6 to 3.9 answer it too. An older
Kafka does not support it: then the batch counts as verified, as in Kafka. Version 5 adds
partitions, for clients that do not add them (KIP-890, second part).

Limits: the queue of questions; TRANSACTIONS_MAX of them in a request. Kafka:
AddPartitionsToTxnManager. There a second question about an id fails the one that waits; here it
goes with the next request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.cext.coordinator.remote_verification import RemoteVerification, RemoteVerifications
from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError, NotSpokenByBroker
from barnabas.coordinator.journal import id_hash
from barnabas.errors import (
    NONE,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    InvalidTxnState,
    NetworkException,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.broker_queues import BrokerQueue, BrokerQueues
from barnabas.server.inter_broker import Reconnecting
from barnabas.server.job_threads import JobThreads
from barnabas.wire import Struct, request
from barnabas.wire.internal import TRANSACTION_STATE

log = logging.getLogger("barnabas.transactions")

ADD_PARTITIONS_TO_TXN = 24
VERIFIES, ADDS = 4, 5  # versions of AddPartitionsToTxn
TRANSACTIONS_MAX = 1000


class RemoteVerificationSender:
    """Sends the questions of one node. `questions`: the queue into which network threads put
    them."""

    def __init__(
        self,
        cluster: Callable[[], ClusterState],
        connect: Callable[[int], Connection],
    ) -> None:
        """`connect` connects to a broker by its id and raises ClientError."""
        self._cluster = cluster
        self.questions = RemoteVerifications()
        self._queues: BrokerQueues[RemoteVerification] = BrokerQueues(
            "verify-at", connect, log, _fitting, _send
        )
        self._threads = JobThreads("verifications", self.questions, self._route)
        self._threads.start()
        self.apply = self._queues.apply  # called with each new cluster state

    def stop(self) -> None:
        """Ends all threads. Questions that are not answered by then fail."""
        self._threads.stop()
        self._queues.stop()

    def _route(self, question: RemoteVerification) -> None:
        coordinator = _coordinator(self._cluster(), question.transactional_id)
        if coordinator is None:
            question.fail(CoordinatorNotAvailable.code)
        elif not self._queues.put(coordinator, question):
            question.fail(NetworkException.code)


def _coordinator(state: ClusterState, transactional_id: str) -> int | None:
    """Returns the live broker that leads the partition of the id, or None."""
    topic = state.topic(TRANSACTION_STATE)
    if topic is None or not topic.partitions:
        return None
    partition = topic.partitions.get(id_hash(transactional_id) % len(topic.partitions))
    if partition is None or partition.state is None or partition.state.leader not in state.brokers:
        return None
    return partition.state.leader


def _fitting(questions: list[RemoteVerification]) -> int:
    """Returns how many of the first questions fit into one request: each id once, and one
    version."""
    ids: set[str] = set()
    adds = questions[0].adds
    for count, question in enumerate(questions[:TRANSACTIONS_MAX]):
        name = question.transactional_id
        if name in ids or question.adds != adds:
            return count
        ids.add(name)
    return len(ids)


def _send(
    _queue: BrokerQueue[RemoteVerification],
    connection: Reconnecting,
    questions: list[RemoteVerification],
) -> None:
    version = ADDS if questions[0].adds else VERIFIES
    try:
        answer = connection.call(ADD_PARTITIONS_TO_TXN, _body(questions), low=version, high=version)
    except NotSpokenByBroker:  # the connection has logged it
        code = NetworkException.code if questions[0].adds else NONE
        _fail(questions, code)
    except ClientError:
        _fail(questions, NetworkException.code)
    else:
        _take(questions, answer)


def _take(questions: list[RemoteVerification], answer: Struct) -> None:
    code = answer.errorCode
    if code:
        log.error(
            "the transaction coordinator refuses to verify: error %d. The principal of the listener"
            " between brokers needs CLUSTER_ACTION there",
            code,
        )
        # Clients must not receive CLUSTER_AUTHORIZATION_FAILED.
        _fail(questions, InvalidTxnState.code if code == ClusterAuthorizationFailed.code else code)
        return
    found = {
        row.transactionalId: {
            (topic.name, one.partitionIndex): one.partitionErrorCode
            for topic in row.topicResults
            for one in topic.resultsByPartition
        }
        for row in answer.resultsByTransaction
    }
    for question in questions:
        question.answer(found.get(question.transactional_id, {}))


def _fail(questions: list[RemoteVerification], code: int) -> None:
    for question in questions:
        question.fail(code)


def _body(questions: list[RemoteVerification]) -> Struct:
    message = request(ADD_PARTITIONS_TO_TXN)
    transaction_of, topic_of = message.struct("transactions"), message.struct("transactions.topics")
    transactions = []
    for question in questions:
        topics: dict[str, list[int]] = {}
        for name, index in question.partitions:
            topics.setdefault(name, []).append(index)
        transactions.append(
            transaction_of(
                transactionalId=question.transactional_id,
                producerId=question.producer_id,
                producerEpoch=question.producer_epoch,
                verifyOnly=not question.adds,
                topics=[topic_of(name=n, partitions=i) for n, i in topics.items()],
            )
        )
    return message.cls(transactions=transactions)
