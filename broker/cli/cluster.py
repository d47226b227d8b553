"""`barnabas cluster`: brokers, health, features, elections of leaders, and moves of partitions.

cluster_stopped.py has the actions on brokers that do not run."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from barnabas.cli import cluster_stopped
from barnabas.cli.argument_types import positive
from barnabas.cli.connecting import (
    actions_of,
    cluster_of,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import count_of, did, fail, json_document, say, table
from barnabas.client import ClientError, Cluster, Partition, Resource, Topic, describe_configs
from barnabas.client.admin import BROKER
from barnabas.client.features import list_features, update_features
from barnabas.client.health import problems_of
from barnabas.client.log_dir_moves import (
    Replica,
    alter_replica_log_dirs,
    directories_of,
    end_throttle_of_copies,
    throttle_copies,
)
from barnabas.client.reassignments import (
    PREFERRED,
    UNCLEAN,
    Move,
    Place,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from barnabas.errors import KafkaError, LeaderNotAvailable, ReplicaNotAvailable

LISTENERS = "listeners"
POLL_S = 0.5
PROGRESS_S = 5
TOGETHER = 50  # partitions that `drain` moves at once
PLAN_BYTES_MAX = 64 << 20
COPIES_THROTTLE = "--replica-alter-log-dirs-throttle"  # the name of Kafka's tool
ANY = "any"  # in log_dirs of a plan: the replica may be in any log directory

EPILOG = """\
Clients connect to the address of a broker; its listeners are those in its settings. A plan is the
JSON of kafka-reassign-partitions: either tool carries out what the other has written. Its log_dirs,
one path or "any" for each replica, move replicas between the log directories of a broker.

examples:
  barnabas cluster describe
  barnabas cluster health && echo all is well
  barnabas cluster under-replicated --json
  barnabas cluster elect                             preferred leaders of all partitions
  barnabas cluster elect news --unclean              loses records; only without a leader
  barnabas cluster reassign news --to 1,2,4 > plan.json
  barnabas cluster reassign --execute plan.json --wait
  barnabas cluster reassign --execute plan.json --throttle 50000000 --wait
  barnabas cluster reassign --execute disks.json --replica-alter-log-dirs-throttle 50000000
                                                     a plan that names log directories (log_dirs)
  barnabas cluster reassign                          those in progress
  barnabas cluster reassign --cancel
  barnabas cluster drain 3                           again after an end: goes on where it was
  barnabas cluster features                          and their levels
  barnabas cluster features transaction.version=2    when no broker of an older version comes back
  barnabas cluster join --config server.properties --set zookeeper.connect=zk1:2181/kafka
  barnabas cluster leave --config server.properties --dry-run
  barnabas cluster inventory --config server.properties --json > broker-1.json
  barnabas cluster recover broker-*.json --config server.properties --dry-run
"""


def configure(parser: argparse.ArgumentParser) -> None:
    action = actions_of(parser, EPILOG, ACTIONS)
    describe = action("describe", "list brokers: address, rack, listeners, controller, partitions")
    json_option(describe)
    health = action(
        "health",
        "list what is wrong; exit status 1 when a partition has no leader or lacks a replica in"
        " sync,\nor there is no controller",
    )
    json_option(health)
    under = action("under-replicated", "list partitions with a replica that is not in sync")
    json_option(under)
    elect = action("elect", "make preferred replicas the leaders")
    elect.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="give partitions without a leader any live replica: acknowledged records may be lost",
    )
    json_lines_option(elect)
    reassign = action("reassign", "plan and carry out moves of partitions; without options, list")
    reassign.add_argument("topics", metavar="TOPIC", nargs="*", help="for a plan; see --to")
    kind = reassign.add_mutually_exclusive_group()
    kind.add_argument(
        "--to", metavar="ID,ID", type=broker_ids, help="print a plan with replicas on these brokers"
    )
    kind.add_argument("--execute", metavar="FILE", help="carry out a plan; - is standard input")
    kind.add_argument("--cancel", action="store_true", help="cancel all moves, or those of TOPICs")
    reassign.add_argument(
        "--throttle",
        metavar="BYTES",
        type=positive,
        help="with --execute: the most that each broker sends and receives of the moves, in bytes a"
        " second; execute the plan again to change it, --wait and --cancel remove it",
    )
    reassign.add_argument(
        COPIES_THROTTLE,
        metavar="BYTES",
        type=positive,
        help="with --execute, and log_dirs in the plan: the most that each broker copies between"
        " its log directories, in bytes a second; execute the plan again to change it, and with"
        " --wait to remove it at the end",
    )
    reassign.add_argument(
        "--wait",
        action="store_true",
        help="wait for the end of the moves, and show how much is copied",
    )
    json_option(reassign)
    drain = action("drain", "move all replicas of a broker to the others")
    drain.add_argument("broker", metavar="BROKER", type=int)
    drain.add_argument(
        "--at-once",
        metavar="COUNT",
        type=positive,
        default=TOGETHER,
        help=f"partitions that move at a time (default {TOGETHER})",
    )
    json_lines_option(drain)
    features = action(
        "features", "list features and their levels; with FEATURE=LEVEL, finalize these levels"
    )
    features.add_argument("levels", metavar="FEATURE=LEVEL", nargs="*", type=feature_level)
    features.add_argument(
        "--downgrade",
        action="store_true",
        help="a level may be lower than before; what was written at the former level stays",
    )
    json_option(features)
    cluster_stopped.configure(action)


def broker_ids(text: str) -> list[int]:
    found = [int(part) for part in text.split(",")]
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError("a broker is named twice")
    return found


def feature_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not (name and equals and level.isdigit()):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not FEATURE=LEVEL")
    return name, int(level)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action in cluster_stopped.ACTIONS:
        return cluster_stopped.run(arguments)
    return _run(arguments)


@speaks_to_broker
def _run(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        return int(arguments.act(cluster, arguments))


# -- brokers and their state


def _describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    topics = cluster.topics()
    partitions = [row for _place, row in _partitions(topics.values())]
    rows: list[dict[str, Any]] = [
        {
            "broker": broker.node_id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "listeners": _listeners(cluster, broker.node_id),
            "isController": broker.node_id == cluster.controller_id,
            "leads": sum(row.leader == broker.node_id for row in partitions),
            "replicas": sum(broker.node_id in row.replicas for row in partitions),
        }
        for broker in sorted(cluster.brokers.values(), key=lambda found: found.node_id)
    ]
    if arguments.json:
        json_document({"clusterId": cluster.cluster_id, "brokers": rows})
        return 0
    say(f"cluster {cluster.cluster_id or '(without an id)'}")
    columns = ("broker", "address", "rack", "listeners", "controller", "leads", "replicas")
    table(columns, [list(row.values()) for row in rows], empty="no broker is alive")
    return 0


def _listeners(cluster: Cluster, node_id: int) -> str | None:
    """Returns the listeners of a broker; None when it cannot be reached or does not describe its
    settings, so that the command still shows the other brokers."""
    try:
        found = describe_configs(cluster, Resource(BROKER, str(node_id)))
    except (KafkaError, ClientError):
        return None
    return next((row.value for row in found if row.name == LISTENERS), None)


def _partitions(topics: Iterable[Topic]) -> Iterator[tuple[Place, Partition]]:
    for topic in sorted(topics, key=lambda found: found.name):
        for index, row in topic.partitions.items():
            yield (topic.name, index), row


def _health(cluster: Cluster, arguments: argparse.Namespace) -> int:
    topics = cluster.topics()
    problems = problems_of(cluster, topics)
    if arguments.json:
        json_document({"isHealthy": not problems, "problems": problems})
    elif problems:
        rows = [[row.get("topic"), row.get("partition"), row["problem"]] for row in problems]
        table(("topic", "partition", "problem"), rows)
    else:
        counted = count_of(len(cluster.brokers), "broker"), count_of(len(topics), "topic")
        say(f"healthy: {', '.join(counted)}, all replicas in sync")
    return 1 if problems else 0


def _under_replicated(cluster: Cluster, arguments: argparse.Namespace) -> int:
    rows = [
        {
            "topic": name,
            "partition": index,
            "leader": row.leader if row.leader >= 0 else None,
            "leaderEpoch": row.leader_epoch,
            "replicas": list(row.replicas),
            "inSync": list(row.in_sync),
        }
        for (name, index), row in _partitions(cluster.topics().values())
        if set(row.replicas) - set(row.in_sync)
    ]
    if arguments.json:
        json_document(rows)
        return 0
    columns = ("topic", "partition", "leader", "leader epoch", "replicas", "in sync")
    table(columns, [_cells(row) for row in rows], empty="all replicas are in sync")
    return 0


def _cells(row: Mapping[str, Any]) -> list[Any]:
    return [",".join(map(str, v)) if isinstance(v, list | tuple) else v for v in row.values()]


def _features(cluster: Cluster, arguments: argparse.Namespace) -> int:
    levels = dict(arguments.levels)
    if levels:
        update_features(cluster, levels, downgrade=arguments.downgrade)
        if not arguments.json:
            say(f"finalized {', '.join(f'{name}={level}' for name, level in levels.items())}")
            return 0
    found = list_features(cluster)
    if arguments.json:
        json_document([row._asdict() for row in found])
        return 0
    rows = [[row.name, row.level, f"{row.first}-{row.last}"] for row in found]
    table(("feature", "level", "supported"), rows, empty="the broker has no features")
    return 0


# -- elections


def _elect(cluster: Cluster, arguments: argparse.Namespace) -> int:
    if arguments.unclean and not arguments.topics:
        return fail("--unclean may lose acknowledged records. Name the topics.")
    rows = list(_partitions(_named(cluster, arguments.topics)))
    if arguments.unclean:
        wanted = [place for place, row in rows if row.leader < 0]
    else:
        wanted = [place for place, row in rows if row.replicas and row.leader != row.replicas[0]]
    kind = UNCLEAN if arguments.unclean else PREFERRED
    outcomes = elect_leaders(cluster, kind, wanted) if wanted else {}
    for (name, index), error in outcomes.items():
        if error is None:
            text = f"elected a leader of {name}-{index}"
            did(arguments.json, text, topic=name, partition=index, elected=True)
    if not outcomes and not arguments.json:
        say("no partition needs an election")
    return _refused(outcomes)


def _named(cluster: Cluster, names: Sequence[str]) -> list[Topic]:
    """Returns the named topics, or all topics without names. Raises UnknownTopicOrPartition."""
    return [cluster.topic(name) for name in names] if names else list(cluster.topics().values())


def _refused(outcomes: Mapping[Place, KafkaError | None]) -> int:
    """Prints a line for each error; returns the exit status."""
    errors = [error for error in outcomes.values() if error is not None]
    for error in errors:
        fail(f"{str(error).rstrip('.')} ({error.name}).")
    return 1 if errors else 0


# -- moves


def _reassign(cluster: Cluster, arguments: argparse.Namespace) -> int:
    if arguments.throttle is not None and arguments.execute is None:
        return fail("--throttle needs --execute, with the plan of the moves.")
    if arguments.replica_alter_log_dirs_throttle is not None and arguments.execute is None:
        return fail(f"{COPIES_THROTTLE} needs --execute, with a plan that has log_dirs.")
    if arguments.to is not None:
        return _plan(cluster, arguments.topics, arguments.to)
    if arguments.execute is not None:
        return _execute(cluster, arguments)
    moves = list_reassignments(cluster)
    if arguments.topics:
        names = {topic.name for topic in _named(cluster, arguments.topics)}
        moves = {place: move for place, move in moves.items() if place[0] in names}
    if arguments.cancel:
        cancelled: dict[Place, KafkaError | None] = (
            alter_reassignments(cluster, dict.fromkeys(moves)) if moves else {}
        )
        say(f"cancelled {count_of(sum(e is None for e in cancelled.values()), 'move')}")
        _end_throttle(cluster, moves)
        return _refused(cancelled)
    if arguments.wait:
        return _wait_for_moves(cluster, list(moves), arguments)
    topics = cluster.topics()
    rows = [
        {
            "topic": name,
            "partition": index,
            "adding": list(move.adding),
            "removing": list(move.removing),
            "inSync": list(topics[name].partitions[index].in_sync) if name in topics else [],
        }
        for (name, index), move in moves.items()
    ]
    if arguments.json:
        json_document(rows)
    else:
        columns = ("topic", "partition", "adding", "removing", "in sync")
        table(columns, [_cells(row) for row in rows], empty="no partition is being moved")
    return 0


def _execute(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Begins the moves of a plan."""
    plan = _read_plan(arguments.execute)
    if isinstance(plan, str):
        return fail(plan)
    wanted, directories = plan
    copying = sorted({row.broker for row in directories})
    rate = arguments.replica_alter_log_dirs_throttle
    if rate is not None and not copying:
        return fail(f"{COPIES_THROTTLE} needs log_dirs, and the plan has none.")
    for broker in sorted({broker for row in wanted.values() for broker in row}):
        _live(cluster, broker)
    if arguments.throttle is not None:
        from barnabas.client.reassignment_throttles import throttle_moves

        present = {place: row.replicas for place, row in _partitions(cluster.topics().values())}
        for place, move in list_reassignments(cluster).items():
            present[place] = tuple(row for row in move.replicas if row not in move.adding)
        throttle_moves(cluster, present, wanted, arguments.throttle)
        say(f"each broker sends and receives {arguments.throttle} bytes a second of the moves")
    if rate is not None:
        throttle_copies(cluster, copying, rate)
        say(f"each broker copies {rate} bytes a second between its log directories")
    # Before the replicas are made: a broker makes a new one in the directory that it was told.
    status = _move_directories(cluster, directories) if directories else 0
    outcomes = alter_reassignments(cluster, wanted)
    begun = [place for place, error in outcomes.items() if error is None]
    say(f"began {count_of(len(begun), 'move')}")
    status = _refused(outcomes) or status
    if arguments.wait:
        status = _wait_for_moves(cluster, begun, arguments) or status
        if directories:
            status = _wait_for_directories(cluster, directories, arguments) or status
            if rate is not None and end_throttle_of_copies(cluster, copying):
                say("removed the throttle of the copies")
    return status


def _move_directories(cluster: Cluster, wanted: Mapping[Replica, str]) -> int:
    """Begins to move replicas between the log directories of their brokers."""
    status = 0
    for row, error in alter_replica_log_dirs(cluster, wanted).items():
        if error is not None and not isinstance(error, ReplicaNotAvailable):
            status = fail(
                f"{row.topic}-{row.partition} is not moved to {wanted[row]} on broker {row.broker}"
                f" ({error.name})."
            )
    return status


def _wait_for_directories(
    cluster: Cluster, wanted: Mapping[Replica, str], arguments: argparse.Namespace
) -> int:
    """Waits until no replica is moving to another log directory."""
    left, status = set(wanted), 0
    while left:
        found = directories_of(cluster, left)
        for row in sorted(replica for replica in left if not found[replica][1]):
            left.remove(row)
            path = found[row][0]
            if path != wanted[row]:
                status = fail(f"{row.topic}-{row.partition} is in {path} on broker {row.broker}.")
                continue
            text = f"{row.topic}-{row.partition} is in {path} on broker {row.broker}"
            fields = {"topic": row.topic, "partition": row.partition, "broker": row.broker}
            did(arguments.json, text, **fields, logDir=path)
        if left:
            time.sleep(POLL_S)
    return status


def _wait_for_moves(
    cluster: Cluster, places: Sequence[Place], arguments: argparse.Namespace
) -> int:
    """Waits for the end of moves, and removes their throttle."""
    status = _wait(cluster, places, arguments, shows_progress=True)
    _end_throttle(cluster, places)
    return status


def _end_throttle(cluster: Cluster, places: Iterable[Place]) -> None:
    """Removes the throttle of moves that have ended, unless others go on: they may share it."""
    from barnabas.client.reassignment_throttles import remove_throttles

    if not list_reassignments(cluster) and remove_throttles(cluster, {row[0] for row in places}):
        say("removed the throttle")


def _plan(cluster: Cluster, names: Sequence[str], brokers: Sequence[int]) -> int:
    """Prints a plan that places the replicas as those of new topics, over the racks."""
    from barnabas.controller.placement import place

    if not names:
        return fail("name the topics to move.")
    racks = {broker: _live(cluster, broker).rack for broker in brokers}
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    rows = []
    for topic in _named(cluster, names):
        for index, row in topic.partitions.items():
            if len(row.replicas) > len(brokers):
                return fail(
                    f"topic {topic.name} has {len(row.replicas)} replicas of a partition, and --to"
                    f" names {count_of(len(brokers), 'broker')}."
                )
            [replicas] = place(brokers, 1, len(row.replicas), 0, index, known)
            rows.append({"topic": topic.name, "partition": index, "replicas": list(replicas)})
    print(json.dumps({"version": 1, "partitions": rows}))
    return 0


def _live(cluster: Cluster, broker: int) -> Any:
    """Returns a live broker. Raises LeaderNotAvailable."""
    if not cluster.brokers:
        cluster.retrying(lambda: cluster.refresh([]))
    found = cluster.brokers.get(broker)
    if found is None:
        error = LeaderNotAvailable(f"broker {broker} is not among the live brokers")
        error.retriable = False
        raise error
    return found


def _read_plan(file: str) -> tuple[dict[Place, list[int]], dict[Replica, str]] | str:
    """Returns the replicas by partition, and the log directories that the plan names; or what is
    wrong with the file."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(PLAN_BYTES_MAX)
        else:
            with open(file, "rb") as opened:
                data = opened.read(PLAN_BYTES_MAX)
        found: dict[Place, list[int]] = {}
        directories: dict[Replica, str] = {}
        for row in json.loads(data)["partitions"]:
            topic, index = str(row["topic"]), int(row["partition"])
            found[topic, index] = brokers = [int(broker) for broker in row["replicas"]]
            for broker, path in zip(
                brokers, row.get("log_dirs", [ANY] * len(brokers)), strict=True
            ):
                if path != ANY:
                    directories[Replica(topic, index, broker)] = str(path)
    except OSError as error:
        return f"cannot read {file}: {error.strerror}."
    except (ValueError, KeyError, TypeError):
        return (
            f"{file} is not a reassignment plan. A plan is JSON:"
            ' {"version":1,"partitions":[{"topic":"news","partition":0,"replicas":[1,2]}]}.'
        )
    return (found, directories) if found else f"{file} has no partitions."


def _wait(
    cluster: Cluster,
    places: Sequence[Place],
    arguments: argparse.Namespace,
    shows_progress: bool = False,
) -> int:
    """Waits until none of the partitions is being moved."""
    left, shown_s = set(places), time.monotonic()
    while left:
        moves = list_reassignments(cluster)
        now = left & moves.keys()
        for name, index in sorted(left - now):
            did(arguments.json, f"moved {name}-{index}", topic=name, partition=index, moved=True)
        left = now
        if shows_progress and left and time.monotonic() - shown_s >= PROGRESS_S:
            shown_s = time.monotonic()
            _show_progress(cluster, {place: moves[place] for place in left}, arguments)
        if left:
            time.sleep(POLL_S)
    return 0


def _show_progress(
    cluster: Cluster, moves: Mapping[Place, Move], arguments: argparse.Namespace
) -> None:
    from barnabas.client.reassignment_throttles import copied_bytes

    leaders = {place: row.leader for place, row in _partitions(cluster.topics().values())}
    copied, whole = copied_bytes(cluster, moves, leaders)
    text = f"{count_of(len(moves), 'move')} left: {copied} of {whole} bytes copied"
    did(arguments.json, text, left=len(moves), copiedBytes=copied, bytes=whole)


def _drain(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Moves a limited number of partitions at a time. It reads the rest from the cluster each time,
    so that an interrupted drain can continue."""
    from barnabas.client.evacuation import NoOtherBroker, evacuated

    leaving = arguments.broker
    moved: dict[Place, tuple[int, ...]] = {}  # the controller said so: others may learn it later
    while True:
        replicas = {p: row.replicas for p, row in _partitions(cluster.topics().values())}
        replicas |= {place: row for place, row in moved.items() if place in replicas}
        moves = list_reassignments(cluster)
        replicas |= {place: move.target for place, move in moves.items() if place in replicas}
        racks = {row.node_id: row.rack for row in cluster.brokers.values()}
        going = [place for place, move in moves.items() if leaving in move.removing]
        if leaving not in racks and not any(leaving in row for row in replicas.values()):
            _live(cluster, leaving)
        try:
            wanted = evacuated(replicas, leaving, racks)
        except NoOtherBroker as error:
            return fail(f"{error}. Start another broker, or lower the number of replicas.")
        part = dict(list(wanted.items())[: max(arguments.at_once - len(going), 0)])
        if part:
            status = _refused(alter_reassignments(cluster, part))
            if status:
                return status
        elif not going:
            break
        to = {place: moves[place].target for place in going} | part
        _wait(cluster, list(to), arguments)
        moved |= to
        left = len(wanted) - len(part)
        did(
            arguments.json,
            f"{len(moved)} of {len(moved) + left} partitions moved away from broker {leaving}",
            broker=leaving,
            moved=len(moved),
            left=left,
        )
    text = f"broker {leaving} has no replicas"
    did(arguments.json, text, broker=leaving, moved=len(moved), left=0, drained=True)
    return 0


ACTIONS: dict[str, Callable[..., object]] = {
    "describe": _describe,
    "health": _health,
    "under-replicated": _under_replicated,
    "elect": _elect,
    "reassign": _reassign,
    "drain": _drain,
    "features": _features,
    **cluster_stopped.ACTIONS,
}
