"""AlterPartition (56), versions 0-3: a leader asks the controller to write its ISR.

v1 leader recovery; v2 topic ids; v3 broker epochs of the ISR.
"""

from collections.abc import Iterator

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ControllerContext
from barnabas.controller.isr_requests import ANY_EPOCH, RequestedIsr
from barnabas.errors import KafkaError, StaleBrokerEpoch, UnknownTopicId
from barnabas.metadata.cluster_state import Topic
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

KEY = 56
VERSIONS = (0, 3)
CONTEXT = ControllerContext
ACCESS = of_cluster(CLUSTER_ACTION)
BY_ID_FROM, EPOCHS_FROM = 2, 3


def handle(request: Struct, call: Call[ControllerContext]) -> Struct:
    check = call.context.controller_role.required()
    broker = call.context.cluster().brokers.get(request.brokerId)
    if broker is None or request.brokerEpoch not in (ANY_EPOCH, broker.epoch):
        raise StaleBrokerEpoch()
    asked = {
        (_name_of(topic, call), row.partitionIndex): _asked(request.brokerId, row, call.version)
        for topic in request.topics
        for row in topic.partitions
    }
    outcomes = call.context.isr_requests().alter(check, asked)
    topic_of = call.struct("topics")
    topics = []
    for topic in request.topics:
        name = _name_of(topic, call)
        answered = topic_of(partitions=list(_rows(topic, name, outcomes, call)))
        if call.version >= BY_ID_FROM:
            answered.topicId = topic.topicId
        else:
            answered.topicName = name
        topics.append(answered)
    return call.answer()(errorCode=0, topics=topics)


def refuse(_request: Struct, code: int, call: Call[ControllerContext]) -> Struct:
    return call.answer()(errorCode=code, topics=[])


def _name_of(topic: Struct, call: Call[ControllerContext]) -> str:
    """The topic's name; "" for an unknown id, as no topic has this name."""
    if call.version < BY_ID_FROM:
        return str(topic.topicName)
    found: Topic | None = call.context.cluster().topic_by_id(uuid_text(topic.topicId))
    return "" if found is None else found.name


def _asked(leader_id: int, row: Struct, version: int) -> RequestedIsr:
    if version >= EPOCHS_FROM:
        isr = {each.brokerId: each.brokerEpoch for each in row.newIsrWithEpochs}
    else:
        isr = dict.fromkeys(row.newIsr, ANY_EPOCH)
    recovering = version >= 1 and row.leaderRecoveryState == 1
    return RequestedIsr(leader_id, row.leaderEpoch, row.partitionEpoch, isr, recovering)


def _rows(
    topic: Struct, name: str, outcomes: dict, call: Call[ControllerContext]
) -> Iterator[Struct]:
    row_of = call.struct("topics.partitions")
    for asked in topic.partitions:
        row = row_of(partitionIndex=asked.partitionIndex)
        outcome = outcomes[name, asked.partitionIndex] if name else UnknownTopicId()
        if isinstance(outcome, KafkaError):
            row.errorCode = outcome.code
        else:
            state = outcome.state
            row.leaderId, row.leaderEpoch = state.leader, state.leader_epoch
            row.isr, row.partitionEpoch = list(state.isr), outcome.state_version
            if call.version >= 1:
                row.leaderRecoveryState = int(state.recovering)
        yield row
