"""The cluster metadata of KRaft, as its records give it one after the other.

Kafka: MetadataDelta and the images of its parts. A change of a partition without a new leader keeps
the leader epoch, one with a leader raises it by 1 (PartitionRegistration.merge). The records
between BeginTransaction and EndTransaction count together or, after AbortTransaction, not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.codec.wire_struct import Struct
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.delegation_tokens import DelegationToken
from barnabas.security.scram import TYPES, Credential
from barnabas.wire.uuids import uuid_text

NO_LEADER_CHANGE = -2
Quota = tuple[tuple[str, str | None], ...]  # types and names of an entity; None: the default


class FoundPartition(NamedTuple):
    """`complete`: brokers outside the ISR whose replica has every acknowledged record (the ELR of
    KIP-966)."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    complete: tuple[int, ...] = ()


@dataclass
class FoundTopic:
    """A topic with its partitions by number. `topic_id` is None before Kafka 2.8."""

    name: str
    topic_id: str | None
    partitions: dict[int, FoundPartition] = field(default_factory=dict)


class MetadataImage:
    """The state after the records that were applied."""

    def __init__(self) -> None:
        self.topics: dict[str, FoundTopic] = {}  # by topic id
        self.configs: dict[tuple[int, str], dict[str, str]] = {}  # by ConfigResource type and name
        self.acls: dict[bytes, tuple[ResourcePattern, AccessControlEntry]] = {}  # by id
        self.credentials: dict[tuple[str, str], Credential] = {}  # by user and mechanism
        self.quotas: dict[Quota, dict[str, float]] = {}
        self.features: dict[str, int] = {}
        self.tokens: dict[str, DelegationToken] = {}
        self.voters: set[int] = set()  # the controllers that elected the last leader
        self._registered: set[int] = set()  # controllers; none before Kafka 3.7
        self.next_producer_id = 0
        self._transaction: list[tuple[str, Struct]] | None = None

    @property
    def controllers(self) -> set[int]:
        return self._registered or self.voters

    def apply(self, name: str, record: Struct) -> None:
        """Applies one record. Raises MalformedMessage when it contradicts those before."""
        if name == "BeginTransactionRecord":
            self._transaction = []
        elif name == "AbortTransactionRecord":
            self._transaction = None
        elif name == "EndTransactionRecord":
            rows, self._transaction = self._transaction or [], None
            for row in rows:
                self._apply(*row)
        elif self._transaction is not None:
            self._transaction.append((name, record))
        else:
            self._apply(name, record)

    def _apply(self, name: str, record: Struct) -> None:
        change = _CHANGES.get(name)
        if change is not None:
            change(self, record)

    def _topic(self, raw: bytes) -> FoundTopic:
        topic = self.topics.get(uuid_text(raw))
        if topic is None:
            raise MalformedMessage(f"a record names topic id {uuid_text(raw)}, which no topic has")
        return topic

    def _add_topic(self, record: Struct) -> None:
        topic_id = uuid_text(record.topicId)
        self.topics[topic_id] = FoundTopic(record.name, topic_id)

    def _remove_topic(self, record: Struct) -> None:
        topic = self._topic(record.topicId)
        del self.topics[uuid_text(record.topicId)]
        self.configs.pop((TOPIC, topic.name), None)

    def _add_partition(self, record: Struct) -> None:
        self._topic(record.topicId).partitions[record.partitionId] = FoundPartition(
            tuple(record.replicas),
            record.leader,
            record.leaderEpoch,
            tuple(record.isr),
            tuple(record.eligibleLeaderReplicas or ()),
        )

    def _change_partition(self, record: Struct) -> None:
        topic = self._topic(record.topicId)
        before = topic.partitions.get(record.partitionId)
        if before is None:
            raise MalformedMessage(
                f"a record changes {topic.name}-{record.partitionId}, which no record has made"
            )
        after = before
        if record.leader != NO_LEADER_CHANGE:
            after = after._replace(leader=record.leader, leader_epoch=before.leader_epoch + 1)
        if record.isr is not None:
            after = after._replace(isr=tuple(record.isr))
        if record.replicas is not None:
            after = after._replace(replicas=tuple(record.replicas))
        if record.eligibleLeaderReplicas is not None:
            after = after._replace(complete=tuple(record.eligibleLeaderReplicas))
        topic.partitions[record.partitionId] = after

    def _clear_complete(self, record: Struct) -> None:
        for topic in self.topics.values():
            if record.topicName in ("", topic.name):
                for index, row in topic.partitions.items():
                    topic.partitions[index] = row._replace(complete=())

    def _change_config(self, record: Struct) -> None:
        key = (record.resourceType, record.resourceName)
        values = self.configs.setdefault(key, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[key]

    def _add_acl(self, record: Struct) -> None:
        self.acls[record.id] = (
            ResourcePattern(record.resourceType, record.resourceName, record.patternType),
            AccessControlEntry(
                record.principal, record.host, record.operation, record.permissionType
            ),
        )

    def _remove_acl(self, record: Struct) -> None:
        self.acls.pop(record.id, None)

    def _add_credential(self, record: Struct) -> None:
        self.credentials[record.name, _mechanism(record)] = Credential(
            record.salt, record.storedKey, record.serverKey, record.iterations
        )

    def _remove_credential(self, record: Struct) -> None:
        self.credentials.pop((record.name, _mechanism(record)), None)

    def _change_quota(self, record: Struct) -> None:
        entity = tuple(sorted((row.entityType, row.entityName) for row in record.entity))
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]

    def _set_feature(self, record: Struct) -> None:
        if record.featureLevel:
            self.features[record.name] = record.featureLevel
        else:
            self.features.pop(record.name, None)

    def _add_token(self, record: Struct) -> None:
        self.tokens[record.tokenId] = DelegationToken(
            record.tokenId,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issueTimestamp,
            record.maxTimestamp,
            record.expirationTimestamp,
        )

    def _remove_token(self, record: Struct) -> None:
        self.tokens.pop(record.tokenId, None)

    def _take_producer_ids(self, record: Struct) -> None:
        self.next_producer_id = max(self.next_producer_id, record.nextProducerId)

    def _add_controller(self, record: Struct) -> None:
        self._registered.add(record.controllerId)

    def _remove_controller(self, record: Struct) -> None:
        self._registered.discard(record.controllerId)


def _mechanism(record: Struct) -> str:
    name = TYPES.get(record.mechanism)
    if name is None:
        raise MalformedMessage(f"a credential has the unknown mechanism {record.mechanism}")
    return name


# ConfigResource.Type
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32

# Records that are not here (registrations of brokers, migration, no-operation) say nothing that
# outlives Kafka's processes.
_CHANGES: dict[str, Callable[[MetadataImage, Struct], None]] = {
    "TopicRecord": MetadataImage._add_topic,
    "RemoveTopicRecord": MetadataImage._remove_topic,
    "PartitionRecord": MetadataImage._add_partition,
    "PartitionChangeRecord": MetadataImage._change_partition,
    "ClearElrRecord": MetadataImage._clear_complete,
    "ConfigRecord": MetadataImage._change_config,
    "AccessControlEntryRecord": MetadataImage._add_acl,
    "RemoveAccessControlEntryRecord": MetadataImage._remove_acl,
    "UserScramCredentialRecord": MetadataImage._add_credential,
    "RemoveUserScramCredentialRecord": MetadataImage._remove_credential,
    "ClientQuotaRecord": MetadataImage._change_quota,
    "FeatureLevelRecord": MetadataImage._set_feature,
    "DelegationTokenRecord": MetadataImage._add_token,
    "RemoveDelegationTokenRecord": MetadataImage._remove_token,
    "ProducerIdsRecord": MetadataImage._take_producer_ids,
    "RegisterControllerRecord": MetadataImage._add_controller,
    "UnregisterControllerRecord": MetadataImage._remove_controller,
}
