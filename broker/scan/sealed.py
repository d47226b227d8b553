"""Sealed snapshots: a topic's files as they were at one moment. Reading them needs no broker.

    DIR/sealed.json              {"version": 1, "clusterId", "topic", "topicId", "partitions":
                                 {"0": {"earliest", "highWatermark", "lastStableOffset"}, ...}}
    DIR/TOPIC-PARTITION/         partition.metadata, and of each segment that reaches into
                                 [earliest, highWatermark) .log .index .timeindex .txnindex

The broker never writes to an inactive segment again, so the snapshot has hard links to these where
the file system allows it. They take no space until the broker deletes the segments. The active
segment is a copy, cut at its size. `seal` makes the directory under another name and renames it
when it is complete. Limits: one topic for each snapshot.
"""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barnabas.client import Cluster
from barnabas.scan.failures import DamagedFiles, NoFilesHere
from barnabas.scan.log_directory import LogDirectory
from barnabas.scan.plan import Bounds, ask_bounds, checked_partitions, directories_here
from barnabas.wire.uuids import uuid_bytes, uuid_text

MANIFEST = "sealed.json"
VERSION = 1
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def seal(
    topic: str,
    into: str | os.PathLike[str],
    *,
    bootstrap_servers: str = "127.0.0.1:9092",
    partitions: Iterable[int] | None = None,
) -> Path:
    """Makes a snapshot at `into`, which must not exist yet, and returns its path. `partitions`:
    None for all. Raises FileExistsError, NoFilesHere, OSError, and errors of client and broker."""
    target = Path(into)
    if target.exists():
        raise FileExistsError(f"{target} already exists")
    with Cluster(bootstrap_servers) as cluster:
        known = cluster.topic(topic)
        indexes = checked_partitions(topic, known.partitions, partitions)
        bounds = ask_bounds(cluster, topic, indexes)
        places = directories_here(cluster, topic, indexes)
        if missing := sorted(set(indexes) - set(places)):
            raise NoFilesHere(f"partitions {missing} of topic {topic} are not on this machine")
        manifest = {
            "version": VERSION,
            "clusterId": cluster.cluster_id,
            "topic": topic,
            "topicId": uuid_text(known.topic_id),
            "partitions": {str(index): _bounds_json(bounds[index]) for index in indexes},
        }
    making = target.with_name(f".{target.name}.{os.urandom(4).hex()}.making")
    try:
        for index in indexes:
            _take(places[index], bounds[index], making / f"{topic}-{index}")
        (making / MANIFEST).write_text(json.dumps(manifest, indent=2))
        os.rename(making, target)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


def _bounds_json(bounds: Bounds) -> dict[str, int]:
    return {
        "earliest": bounds.earliest,
        "highWatermark": bounds.high_watermark,
        "lastStableOffset": bounds.last_stable,
    }


def _take(place: LogDirectory, bounds: Bounds, into: Path) -> None:
    def take(bases: list[int]) -> None:
        shutil.rmtree(into, ignore_errors=True)  # of an attempt during which segments were swapped
        into.mkdir(parents=True)
        first = max((base for base in bases if base <= bounds.earliest), default=bases[0])
        for base in bases:
            if first <= base <= bounds.high_watermark:
                _take_segment(place.path, base, into, linked=base != bases[-1])

    place.of_one_state(take)
    metadata = place.path / "partition.metadata"
    if metadata.exists():
        shutil.copyfile(metadata, into / metadata.name)


def _take_segment(source: Path, base_offset: int, into: Path, *, linked: bool) -> None:
    for suffix in SUFFIXES:
        name = f"{base_offset:020d}{suffix}"
        try:
            _take_file(source / name, into / name, linked=linked)
        except FileNotFoundError:
            if suffix == ".log":
                raise


def _take_file(source: Path, target: Path, *, linked: bool) -> None:
    if linked:
        try:
            os.link(source, target)
            return
        except FileNotFoundError:
            raise
        except OSError:  # `into` is on another file system, or on one without links
            pass
    shutil.copyfile(source, target)


def read_manifest(directory: Path) -> tuple[str, bytes, dict[int, Bounds]]:
    """Returns the topic, its id, and the bounds of each partition. Raises DamagedFiles,
    NoFilesHere."""
    path = directory / MANIFEST
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        if found["version"] != VERSION:
            raise DamagedFiles(f"{path}: version {found['version']}, not {VERSION}")
        bounds = {
            int(index): Bounds(
                earliest=int(row["earliest"]),
                high_watermark=int(row["highWatermark"]),
                last_stable=int(row["lastStableOffset"]),
            )
            for index, row in found["partitions"].items()
        }
        return str(found["topic"]), uuid_bytes(found["topicId"]), bounds
    except FileNotFoundError:
        raise NoFilesHere(f"{directory} is not a sealed snapshot: it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFiles(f"{path}: {error!r}") from error
