"""The power is cut after any call of a run that appends, rolls, compacts, deletes and commits. What
the disk has then is made from a recording of the run (recording.py), and a broker starts on it:
everything that was acknowledged is there.

Before this, the recording shows the order of the calls. A name that the answer depends on is on the
disk before the answer is sent, and a file that replaces another is on the disk before its name.
"""

import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.support import Wire
from durability import recording
from durability.recorded_run import LOGS, add_mark
from durability.recording import Call, Choice, Directory, File, SimulatedDisk
from durability.test_killed_at_each_call import SETTINGS, Acknowledged, check, values_by_offset
from long_form import pick

from barnabas import Broker
from barnabas.client import Cluster
from barnabas.node import CannotStart

pytestmark = [
    pytest.mark.takes(seconds=15),
    pytest.mark.timeout(pick(short=300, long=3600)),
    pytest.mark.skipif(recording.missing() is not None, reason=recording.missing() or ""),
]

IMAGES = pick(short=12, long=600)
LIES = pick(short=4, long=200)
# Changes of names that something depends on. A producer snapshot may be lost: it is made again.
KINDS = ("log", "index", "directory", "checkpoint", "swap")
TRANSIENT = (".tmp", ".cleaned", ".deleted", "-delete", ".swap", ".lock")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, list[Call]]:
    work = tmp_path_factory.mktemp("recorded")
    return work / "disk", recording.record(work, work / "disk", "durability.recorded_run")


def steps(run: tuple[Path, list[Call]]) -> Iterator[tuple[Call, SimulatedDisk, list[bytes]]]:
    """Yields each call, the disk after it, and the marks that follow on this answer."""
    folder, calls = run
    disk = SimulatedDisk(folder)
    marks, answer = defaultdict(list), -1  # before the first answer: how Acknowledged begins
    for at, call in enumerate(calls):
        if call.name == "send":
            answer = at
        elif call.name == "mark":
            marks[answer].append(call.data)
    for at, call in enumerate(calls):
        disk.apply(call)
        yield call, disk, marks[at]


# ------------------------------------------------------------------------------------ the order


# Their own threads write them while requests are answered, and no answer depends on them.
ANY_TIME = {f"{name}-offset-checkpoint" for name in ("cleaner", "recovery-point", "replication")}


def kind_of(names: dict[str, File | Directory | None]) -> str:
    """What a change of names is that an answer, or a later call, depends on."""
    made = [name for name, entry in names.items() if entry is not None]
    gone = [name for name, entry in names.items() if entry is None]
    if not made or made[0].endswith(TRANSIENT):
        return ""
    if gone:
        return {".tmp": "checkpoint", ".swap": "swap"}.get(os.path.splitext(gone[0])[1], "")
    if isinstance(names[made[0]], Directory):
        return "directory"
    return os.path.splitext(made[0])[1].removeprefix(".")


def directories(at: Directory, path: str = "") -> Iterator[tuple[str, Directory]]:
    yield path, at
    for name, entry in at.now.items():
        if isinstance(entry, Directory):
            yield from directories(entry, f"{path}/{name}")


def has_records(directory: Directory) -> bool:
    return any(name.endswith(".log") and entry.now for name, entry in directory.now.items())


def out_of_order(run: tuple[Path, list[Call]]) -> list[str]:
    """Names each change of names, or of a content, that was flushed too late."""
    found = []
    for call, disk, marks in steps(run):
        if call.name == "rename" and not call.target.endswith(("-delete", ".deleted")):
            entry = disk.at(call.target)
            if isinstance(entry, File) and entry.changes:
                found.append(f"content: {call.target} got its name first")
        if call.name == "unlink" and call.path.endswith(".deleted"):
            directory = disk.at(os.path.dirname(call.path))
            if any(kind_of(names) == "swap" for names in directory.changes):
                found.append(f"swap: {call.path} was removed first")
        if marks:
            waiting = {"directory"}
            if any(mark.startswith((b"('start'", b"('created'")) for mark in marks):
                waiting.add("checkpoint")  # the answer of DeleteRecords or CreateTopics
            for path, directory in directories(disk.root):
                kinds = waiting | (
                    {"log", "index", "snapshot"} if has_records(directory) else set()
                )
                for names in directory.changes:
                    if kind_of(names) in kinds and not ANY_TIME & names.keys():
                        found.append(f"{kind_of(names)}: {path} {list(names)} before {marks}")
    for path, directory in directories(disk.root):
        for names in directory.changes:
            if kind_of(names) in KINDS:
                found.append(f"{kind_of(names)}: {path} {list(names)} at the end")
    return found


def without_flushes(
    run: tuple[Path, list[Call]], is_dropped: Callable[[Call, File | Directory], bool]
) -> tuple[Path, list[Call]]:
    folder, calls = run
    disk, kept = SimulatedDisk(folder), []
    for call in calls:
        if call.name == "sync" and is_dropped(call, disk.entry(call)):
            continue
        disk.apply(call)
        kept.append(call)
    return folder, kept


def test_names_and_contents_are_on_the_disk_before_what_depends_on_them(run):
    made = Counter()
    for call, disk, _ in steps(run):
        if call.name in ("create", "mkdir", "rename"):
            made[kind_of(disk.at(os.path.dirname(call.target or call.path)).changes[-1])] += 1
    assert not set(KINDS) - set(made), made
    assert out_of_order(run) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_is_not_flushed_is_found(run, kind):
    def is_dropped(_, entry):
        return isinstance(entry, Directory) and any(kind_of(row) == kind for row in entry.changes)

    assert any(row.startswith(kind) for row in out_of_order(without_flushes(run, is_dropped)))


@pytest.mark.parametrize("suffix", [".tmp", ".log.cleaned", ".index.cleaned"])
def test_a_content_that_is_not_flushed_is_found(run, suffix):
    def is_dropped(call, _):
        return call.path.endswith(suffix)

    assert any(row.startswith("content") for row in out_of_order(without_flushes(run, is_dropped)))


# ----------------------------------------------------------------------------------- the images


def starts_with_everything(image: Path, done: Acknowledged) -> None:
    given = {"log.dirs": str(image / LOGS), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(given | SETTINGS | {"log.durability": "fsync"}) as broker:
        check(broker.bootstrap_servers, done)


def images(
    run: tuple[Path, list[Call]], folder: Path, seed: str, count: int
) -> Iterator[tuple[str, Path, Acknowledged]]:
    """Yields a label, an image of the disk and what was acknowledged before it; `count` times."""
    chance = random.Random(seed)
    choices = {
        "nothing": Choice(),
        "names": Choice(names=1),
        "contents": Choice(data=1),
        "some": Choice(chance=chance),
    }
    done = Acknowledged()
    moments = Counter(chance.choices(range(len(run[1])), k=count))
    for at, (call, disk, marks) in enumerate(steps(run)):
        for mark in marks:
            add_mark(done, mark)
        for _ in range(moments[at]):
            name = chance.choice(list(choices))
            image = folder / "image"
            shutil.rmtree(image, ignore_errors=True)
            disk.write_image(image, choices[name])
            yield f"after call {at} ({call.name} {call.path}): {name}", image, done


def test_an_image_of_any_moment_has_what_was_acknowledged(run, tmp_path):
    seed = os.environ.get("BARNABAS_HISTORY_SEED") or str(random.getrandbits(32))
    print(f"BARNABAS_HISTORY_SEED={seed} chooses these images of a recording again")
    tried = 0
    for label, image, done in images(run, tmp_path, seed, IMAGES):
        print(label)
        starts_with_everything(image, done)
        tried += 1
    assert tried == IMAGES
    print(f"seed {seed}: {tried} images")


def test_a_disk_that_lies_loses_records_and_none_is_wrong(run, tmp_path):
    """The disk says "flushed" for half of the flushes, and has not. That is not survived: records
    are lost. What is served was sent, at its offset; or the start is refused in one line."""
    seed = os.environ.get("BARNABAS_HISTORY_SEED") or str(random.getrandbits(32))
    print(f"BARNABAS_HISTORY_SEED={seed} has the same lies in a recording again")
    chance, lost, refused = random.Random(seed), 0, 0
    for number in range(LIES):
        folder, calls = without_flushes(run, lambda _call, _entry: chance.random() < 0.5)
        disk, done = SimulatedDisk(folder), Acknowledged()
        for call, disk, marks in steps((folder, calls)):  # noqa: B007
            for mark in marks:
                add_mark(done, mark)
        image = tmp_path / str(number)
        disk.write_image(image, Choice(chance=chance))
        try:
            lost += len(done.plain) - len(served(image, done))
        except CannotStart as error:
            assert "\n" not in str(error)
            refused += 1
    print(f"{lost} records lost in {LIES - refused} starts, {refused} refused")
    assert lost or refused, "the fault did not happen"


def served(image: Path, done: Acknowledged) -> dict[int, bytes]:
    """Returns the acknowledged records that are there; none is wrong."""
    given = {"log.dirs": str(image / LOGS), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(given | SETTINGS | {"log.durability": "fsync"}) as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            if "plain" not in cluster.topics():
                return {}
        with Wire(broker.bootstrap_servers) as wire:
            found = values_by_offset(wire)
    assert all(found[offset] == done.plain[offset] for offset in found.keys() & done.plain.keys())
    return {offset: found[offset] for offset in found.keys() & done.plain.keys()}
