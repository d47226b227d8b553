"""The nodes that KRaft's metadata becomes in barnabas' tree.

    topic and broker settings   /config/topics/T, /config/brokers/N; settings of other brokers are
                                named and left out
    groups, client metrics      /config/groups/G, /config/client-metrics/S
    access rules                security/acl_nodes.py
    SCRAM users, quotas         /config/users/U, /config/users/U/clients/C, /config/clients/C, ...
    delegation tokens           security/delegation_tokens.py
    levels of features          /feature: those that this build has, at Kafka's level and held, so
                                that the log stays one that Kafka can read
    producer ids                /latest_producer_id_block: the last block that Kafka has given out

KRaft keeps passwords of dynamic settings in clear text. They are encrypted as this broker's own; it
needs password.encoder.secret for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from barnabas.config import ConfigError
from barnabas.config.client_metrics import check_client_metrics
from barnabas.config.topic_config import check_values
from barnabas.controller.features import FEATURES
from barnabas.controller.stored_passwords import StoredPasswords, is_password
from barnabas.errors import InvalidRequest
from barnabas.metadata import znodes
from barnabas.metadata.producer_ids import BLOCK_SIZE
from barnabas.metadata.tree import InvalidPath, TooLarge
from barnabas.metadata.znodes import FeatureLevels, ProducerIdBlock
from barnabas.quotas.entities import check, entity_of, node_name
from barnabas.security import acl_nodes, credentials
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.delegation_tokens import TOKENS_PATH, encode
from barnabas.takeover.found_cluster import Counts, FoundCluster
from barnabas.takeover.metadata_image import BROKER, CLIENT_METRICS, GROUP, TOPIC, MetadataImage


def found_cluster(
    image: MetadataImage, broker_id: int, node_id: int, passwords: StoredPasswords
) -> FoundCluster:
    """Returns the cluster of an image. `broker_id`: the broker of Kafka whose own settings the node
    `node_id` gets."""
    found = FoundCluster(topics={row.name: row for row in image.topics.values()})
    texts: dict[str, dict[str, str]] = defaultdict(dict)  # of /config, by path below it
    settings_count = 0
    for (kind, name), values in sorted(image.configs.items()):
        path = _config_path(kind, name, broker_id, node_id)
        if path is None:
            found.notes.append(_left_out(kind, name, values))
            continue
        kept = _accepted(path, values, passwords, found)
        settings_count += len(kept)
        if kept:
            texts[path] |= kept
    for (user, mechanism), credential in image.credentials.items():
        path = f"users/{credentials.node_name(user)}"
        texts[path][mechanism] = credentials.encode(credential)
    quota_count = _add_quotas(image, texts, found)
    for path, values in texts.items():
        found.nodes[f"{znodes.CONFIG_PATH}/{path}"] = znodes.encode_config(values)
    _add_access_rules(image, found)
    for token in image.tokens.values():
        found.nodes[f"{TOKENS_PATH}/{token.id}"] = encode(token)
    levels = {
        row.name: min(level, row.version_max)
        for row in FEATURES
        if row.version_min == 0 and (level := image.features.get(row.name, 0)) > 0
    }
    found.nodes[znodes.FEATURES_PATH] = znodes.encode_features(FeatureLevels(levels, held=True))
    if (after := image.next_producer_id) > 0:
        block = ProducerIdBlock(node_id, max(0, after - BLOCK_SIZE), after - 1)
        found.nodes[znodes.PRODUCER_ID_BLOCK_PATH] = block.encode()
    found.counts = Counts(
        settings_count, len(image.acls), len(image.credentials), quota_count, len(image.tokens)
    )
    return found


def _config_path(kind: int, name: str, broker_id: int, node_id: int) -> str | None:
    """Returns the path below /config; None for a configuration that the node does not use."""
    if kind == TOPIC:
        return f"topics/{name}"
    if kind == BROKER and name in ("", str(broker_id)):
        return f"brokers/{node_id if name else znodes.DEFAULT_ENTITY}"
    if kind == GROUP and name:
        return f"groups/{node_name(name)}"
    if kind == CLIENT_METRICS and name:
        return f"client-metrics/{node_name(name)}"
    return None


def _left_out(kind: int, name: str, values: Mapping[str, str]) -> str:
    names = ", ".join(sorted(values))
    whose = f"broker {name}" if kind == BROKER else f"resource {name!r} of type {kind}"
    return f"not imported: settings of {whose}: {names}"


def _accepted(
    path: str, values: Mapping[str, str], passwords: StoredPasswords, found: FoundCluster
) -> dict[str, str]:
    """Returns the settings that this build accepts, as they are stored; notes the others."""
    kind = path.partition("/")[0]
    kept = {}
    for name, text in values.items():
        try:
            if kind == "topics":
                check_values("topic", {name: text})
            elif kind == "groups":
                check_values("group", {name: text})
            elif kind == "client-metrics":
                check_client_metrics({name: text})
        except ConfigError as error:
            found.notes.append(f"not imported: {name} of {path}: {' '.join(error.problems)}")
            continue
        if kind == "brokers" and is_password(name):
            if not passwords.can_store:
                found.notes.append(
                    f"not imported: {name} of {path}: a password is stored encrypted. Set"
                    " password.encoder.secret, or alter the setting after the import"
                )
                continue
            text = passwords.encoded({name: text})[name]
        kept[name] = text
    return kept


def _add_quotas(image: MetadataImage, texts: dict[str, dict[str, str]], found: FoundCluster) -> int:
    """Returns how many values there are."""
    count = 0
    for names, values in image.quotas.items():
        shown = ", ".join(f"{kind} {name or 'default'}" for kind, name in names)
        for key, value in values.items():
            try:
                entity = entity_of(dict(names))
                texts[entity.path][key] = check(entity, key, value)
                count += 1
            except InvalidRequest as error:
                found.notes.append(f"not imported: quota {key} of {shown}: {error}")
    return count


def _add_access_rules(image: MetadataImage, found: FoundCluster) -> None:
    rules: dict[ResourcePattern, set[AccessControlEntry]] = defaultdict(set)
    for pattern, entry in image.acls.values():
        rules[pattern].add(entry)
    for pattern, entries in rules.items():
        try:
            found.nodes[acl_nodes.path_of(pattern)] = acl_nodes.encode(entries)
        except (InvalidPath, TooLarge, KeyError) as error:
            found.losses.append(
                f"{len(entries)} access rules of {pattern.name[:80]!r} cannot be stored: {error}"
            )
