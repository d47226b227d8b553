"""The records of KRaft that barnabas' metadata becomes, in the order in which Kafka replays them.

    FeatureLevelRecord          metadata.version first; other features at their levels here
    TopicRecord                 with its PartitionRecords: no leader, and the broker as the ISR, so
                                that it is elected when it registers, with the next leader epoch
    ConfigRecord                topics, this broker, the default of brokers, groups, client metrics
    UserScramCredentialRecord, ClientQuotaRecord, AccessControlEntryRecord, DelegationTokenRecord
    ProducerIdsRecord           the id behind the last block that was given out

metadata.version is that of Kafka 4.0, so that every 4.x starts; `kafka-features.sh upgrade` raises
it. What Kafka does not accept is changed or left out, with a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.controller.features import FEATURES
from barnabas.controller.stored_passwords import StoredPasswords
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, Topic
from barnabas.metadata.tree import MetadataTree, NoNode
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import ProducerIdBlock
from barnabas.quotas.entities import quotas_in
from barnabas.security import acl_nodes, credentials
from barnabas.security.delegation_tokens import TOKENS_PATH
from barnabas.security.delegation_tokens import decode as decode_token
from barnabas.security.scram import HASHES, TYPES
from barnabas.takeover.metadata_image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.takeover.metadata_records import written_record
from barnabas.wire.messages import by_name

METADATA_VERSION = 25  # 4.0-IV3
SEGMENT_BYTES, SEGMENT_BYTES_MIN = "segment.bytes", 1 << 20  # Kafka 4 starts with no smaller one
NO_LEADER = -1
_KINDS = {"topics": TOPIC, "brokers": BROKER, "groups": GROUP, "client-metrics": CLIENT_METRICS}


class ExportedRecords:
    """The records of one node's metadata. `notes` is complete when all were taken."""

    def __init__(
        self,
        tree: MetadataTree,
        state: ClusterState,
        node_id: int,
        directory_id: bytes,
        passwords: StoredPasswords,
    ) -> None:
        """`directory_id`: of the log directory that the partitions will be in."""
        self._tree, self._state, self._node_id = tree, state, node_id
        self._directory_id = directory_id
        self._passwords = passwords
        self.notes: list[str] = []

    def values(self) -> Iterator[bytes]:
        """Yields the values of all records. Raises MetadataError."""
        yield from self._features()
        for topic in self._state.topics.values():
            if not topic.deleting:
                yield from self._topic(topic)
        yield from self._configs()
        yield from self._users()
        yield from self._quotas()
        yield from self._access_rules()
        yield from self._tokens()
        yield from self._producer_ids()

    def _features(self) -> Iterator[bytes]:
        yield written_record(
            "FeatureLevelRecord", 0, name="metadata.version", featureLevel=METADATA_VERSION
        )
        try:
            found = znodes.decode_features(self._tree.get(znodes.FEATURES_PATH)[0])
            levels, is_held = found.levels, found.held
        except NoNode:
            levels, is_held = {}, False
        for row in FEATURES:
            level = levels.get(row.name, 0 if is_held else row.unfinalized)
            if row.version_min == 0 and level > 0:
                yield written_record("FeatureLevelRecord", 0, name=row.name, featureLevel=level)

    def _topic(self, topic: Topic) -> Iterator[bytes]:
        assert topic.topic_id is not None, f"topic {topic.name} has no id"
        raw = znodes.uuid_bytes(topic.topic_id)
        yield written_record("TopicRecord", 0, name=topic.name, topicId=raw)
        for index, partition in topic.partitions.items():
            epoch = 0 if partition.state is None else partition.state.leader_epoch
            yield written_record(
                "PartitionRecord",
                1,
                partitionId=index,
                topicId=raw,
                replicas=[self._node_id],
                isr=[self._node_id],
                leader=NO_LEADER,
                leaderEpoch=epoch,
                partitionEpoch=0,
                directories=[self._directory_id],
            )

    def _configs(self) -> Iterator[bytes]:
        for path, texts in sorted(self._state.configs.items()):
            kind, _, name = path.partition("/")
            code = _KINDS.get(kind)
            if code is None:
                continue
            if code == BROKER and name not in (znodes.DEFAULT_ENTITY, str(self._node_id)):
                continue
            if code == TOPIC and name not in self._state.topics:
                continue
            kept: Mapping[str, str] = texts
            if code == BROKER:
                decoded = self._passwords.decoded(texts)
                kept = decoded.texts
                self.notes += [
                    f"not exported: {setting} of {path}: give the password.encoder.secret of the"
                    " broker"
                    for setting in decoded.unreadable
                ]
            resource = "" if name == znodes.DEFAULT_ENTITY else name
            if code in (GROUP, CLIENT_METRICS):
                resource = znodes.unsanitized(name)
            for setting, text in sorted(kept.items()):
                yield written_record(
                    "ConfigRecord",
                    0,
                    resourceType=code,
                    resourceName=resource,
                    name=setting,
                    value=self._accepted(path, setting, text),
                )

    def _accepted(self, path: str, setting: str, text: str) -> str:
        if setting == SEGMENT_BYTES and int(text) < SEGMENT_BYTES_MIN:
            self.notes.append(
                f"changed: {setting} of {path} from {text} to {SEGMENT_BYTES_MIN}, the least that"
                " Kafka 4 accepts"
            )
            return str(SEGMENT_BYTES_MIN)
        return text

    def _users(self) -> Iterator[bytes]:
        codes = {name: code for code, name in TYPES.items()}
        for user in credentials.users(self._state):
            for mechanism in HASHES:
                text = credentials.text_of(self._state, user, mechanism)
                if text is None:
                    continue
                try:
                    row = credentials.decode(text)
                except ValueError:
                    self.notes.append(
                        f"not exported: the {mechanism} credential of user {user!r}: it cannot be"
                        " read"
                    )
                    continue
                yield written_record(
                    "UserScramCredentialRecord",
                    0,
                    name=user,
                    mechanism=codes[mechanism],
                    salt=row.salt,
                    storedKey=row.stored_key,
                    serverKey=row.server_key,
                    iterations=row.iterations,
                )

    def _quotas(self) -> Iterator[bytes]:
        for entity, values in quotas_in(self._state.configs):
            names: list[dict[str, Any]] = [
                {"entityType": kind, "entityName": name} for kind, name in entity.names().items()
            ]
            for key, value in values.items():
                yield _quota(names, key, value)

    def _access_rules(self) -> Iterator[bytes]:
        for root in (acl_nodes.LITERAL_ROOT, acl_nodes.PREFIXED_ROOT):
            if self._tree.exists(root) is None:
                continue
            for node in self._tree.subtree(root):
                pattern = acl_nodes.pattern_of(node.path)
                if pattern is None:
                    continue
                for entry in sorted(acl_nodes.decode(node.data)):
                    yield written_record(
                        "AccessControlEntryRecord",
                        0,
                        id=_new_id(),
                        resourceType=pattern.resource_type,
                        resourceName=pattern.name,
                        patternType=pattern.pattern_type,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permissionType=entry.permission,
                    )

    def _tokens(self) -> Iterator[bytes]:
        if self._tree.exists(TOKENS_PATH) is None:
            return
        for name in self._tree.children(TOKENS_PATH):
            try:
                row = decode_token(self._tree.get(f"{TOKENS_PATH}/{name}")[0])
            except ZnodeDataError as error:
                self.notes.append(f"not exported: delegation token {name}: {error}")
                continue
            yield written_record(
                "DelegationTokenRecord",
                0,
                owner=row.owner,
                requester=row.requester,
                renewers=list(row.renewers),
                issueTimestamp=row.issued_ms,
                maxTimestamp=row.max_ms,
                expirationTimestamp=row.expires_ms,
                tokenId=row.id,
            )

    def _producer_ids(self) -> Iterator[bytes]:
        try:
            data = self._tree.get(znodes.PRODUCER_ID_BLOCK_PATH)[0]
        except NoNode:
            data = b""
        if data:
            block = ProducerIdBlock.decode(data)
            yield written_record(
                "ProducerIdsRecord", 0, brokerId=self._node_id, nextProducerId=block.block_end + 1
            )


def _quota(names: list[dict[str, Any]], key: str, value: float) -> bytes:
    part = by_name("ClientQuotaRecord").struct("entity")
    entity = [part(**row) for row in names]
    return written_record("ClientQuotaRecord", 0, entity=entity, key=key, value=value)


def _new_id() -> bytes:
    return znodes.uuid_bytes(znodes.new_uuid(os.urandom))
