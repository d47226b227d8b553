"""`barnabas topics`: list, create, describe, alter and delete topics."""

import argparse
from typing import Any

from barnabas.cli.connecting import (
    actions_of,
    cluster_of,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import count_of, did, fail, json_document, say, table
from barnabas.client import (
    Cluster,
    ConfigChange,
    NewTopic,
    Resource,
    Topic,
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    list_offsets,
)
from barnabas.client.admin import DELETE, SET, TOPIC
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.errors import TopicAlreadyExists
from barnabas.wire.internal import TOPICS as INTERNAL_TOPICS

NO_TOPICS = "there are no topics. Create one with `barnabas topics create NAME`"

EPILOG = """\
examples:
  barnabas topics list
  barnabas topics create news --partitions 3 --config retention.ms=3600000
  barnabas topics describe news
  barnabas topics alter news --partitions 6 --config retention.ms=7200000
  barnabas topics alter news --delete-config retention.ms
  barnabas topics delete news
"""


def configure(parser: argparse.ArgumentParser) -> None:
    action = actions_of(parser, EPILOG, ACTIONS)
    found = action("list", "list topics")
    found.add_argument(
        "--internal",
        action="store_true",
        help="also topics with the broker's own state",
    )
    json_option(found)
    create = action("create", "create topics")
    create.add_argument("topics", metavar="TOPIC", nargs="+")
    create.add_argument("--partitions", type=int, default=-1, help="default: num.partitions")
    create.add_argument(
        "--replication-factor",
        type=int,
        default=-1,
        metavar="COUNT",
        help="default: default.replication.factor",
    )
    _config_option(create)
    create.add_argument(
        "--if-not-exists", action="store_true", help="do not fail when the topic exists"
    )
    json_lines_option(create)
    describe = action("describe", "show partitions, leaders, offsets and settings of topics")
    describe.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    json_option(describe)
    alter = action("alter", "add partitions, change settings")
    alter.add_argument("topics", metavar="TOPIC", nargs="+")
    alter.add_argument(
        "--partitions", type=int, help="the new number of partitions, larger than the present one"
    )
    _config_option(alter)
    alter.add_argument(
        "--delete-config",
        metavar="KEY",
        action="append",
        default=[],
        help="reset this setting to its default",
    )
    json_lines_option(alter)
    delete = action("delete", "delete topics and all their records")
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.add_argument(
        "--if-exists", action="store_true", help="do not fail when the topic does not exist"
    )
    delete.add_argument(
        "--internal",
        action="store_true",
        help="also topics with the broker's own state, such as __consumer_offsets",
    )
    json_lines_option(delete)


def _config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=key_and_value,
        help="a setting of the topic; may be repeated",
    )


def key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        return int(arguments.act(cluster, arguments))


def _list(cluster: Cluster, arguments: argparse.Namespace) -> int:
    topics = [t for t in cluster.topics().values() if arguments.internal or not t.is_internal]
    rows = sorted((t.name, len(t.partitions), _replication(t)) for t in topics)
    if arguments.json:
        keys = ("topic", "partitions", "replicationFactor")
        json_document([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        table(("topic", "partitions", "replicas"), rows)
    else:
        say(NO_TOPICS)
    return 0


def _replication(topic: Topic) -> int:
    return max((len(p.replicas) for p in topic.partitions.values()), default=0)


def _create(cluster: Cluster, arguments: argparse.Namespace) -> int:
    configs = dict(arguments.config)
    for name in arguments.topics:
        topic = NewTopic(name, arguments.partitions, arguments.replication_factor, configs)
        try:
            create_topics(cluster, [topic])
        except TopicAlreadyExists:
            if not arguments.if_not_exists:
                raise
            did(arguments.json, f"topic {name} exists already", topic=name, created=False)
            continue
        did(arguments.json, f"created topic {name}", topic=name, created=True)
    return 0


def _describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    names = arguments.topics or sorted(cluster.topics())
    if not names and not arguments.json:
        say(NO_TOPICS)
    documents = [_describe_one(cluster, name, arguments.json) for name in names]
    if arguments.json:
        json_document(documents)
    return 0


def _describe_one(cluster: Cluster, name: str, as_json: bool) -> dict[str, Any]:
    cluster.forget(name)
    topic = cluster.topic(name)
    configs = {}
    if 32 in cluster.any_connection().versions:
        for row in describe_configs(cluster, Resource(TOPIC, name)):
            if row.configSource == 1 or (row.configSource == -1 and not row.isDefault):
                configs[row.name] = row.value
    led = [p.index for p in topic.partitions.values() if p.leader >= 0]
    starts = list_offsets(cluster, name, dict.fromkeys(led, EARLIEST))
    ends = list_offsets(cluster, name, dict.fromkeys(led, LATEST))
    rows = [
        {
            "partition": p.index,
            "leader": p.leader if p.leader >= 0 else None,
            "replicas": list(p.replicas),
            "inSync": list(p.in_sync),
            "earliest": starts[p.index].offset if p.index in starts else None,
            "latest": ends[p.index].offset if p.index in ends else None,
        }
        for p in topic.partitions.values()
    ]
    if not as_json:
        settings = [f"{key}={value}" for key, value in sorted(configs.items())]
        print(f"topic {name}: {', '.join([count_of(len(rows), 'partition'), *settings])}")
        table(
            ("partition", "leader", "replicas", "in sync", "earliest", "latest"),
            [
                [
                    ",".join(map(str, cell)) if isinstance(cell, list) else cell
                    for cell in row.values()
                ]
                for row in rows
            ],
        )
    return {"topic": name, "isInternal": topic.is_internal, "configs": configs, "partitions": rows}


def _alter(cluster: Cluster, arguments: argparse.Namespace) -> int:
    changes = [ConfigChange(SET, key, value) for key, value in arguments.config]
    changes += [ConfigChange(DELETE, key) for key in arguments.delete_config]
    if arguments.partitions is None and not changes:
        return fail("nothing to alter. Give --partitions, --config or --delete-config.")
    for name in arguments.topics:
        if arguments.partitions is not None:
            create_partitions(cluster, {name: arguments.partitions})
        if changes:
            alter_configs(cluster, Resource(TOPIC, name), changes)
        did(arguments.json, f"altered topic {name}", topic=name, altered=True)
    return 0


def _delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    existing = cluster.topics()
    internal = [n for n in arguments.topics if n in existing and _is_internal(existing[n])]
    if internal and not arguments.internal:
        one = "is an internal topic" if len(internal) == 1 else "are internal topics"
        return fail(
            f"{', '.join(internal)} {one} with the broker's own state, such as the committed"
            " offsets of all groups. Nothing was deleted. To delete it, give --internal."
        )
    for name in arguments.topics:
        if arguments.if_exists and name not in existing:
            did(arguments.json, f"there is no topic {name}", topic=name, deleted=False)
            continue
        delete_topics(cluster, [name])
        did(arguments.json, f"deleted topic {name}", topic=name, deleted=True)
    return 0


def _is_internal(topic: Topic) -> bool:
    """Returns whether a topic is internal; brokers before 0.10.1 do not send this."""
    return topic.is_internal or topic.name in INTERNAL_TOPICS


ACTIONS = {
    "list": _list,
    "create": _create,
    "describe": _describe,
    "alter": _alter,
    "delete": _delete,
}
