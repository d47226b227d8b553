"""`barnabas storage snapshot` and `fork`: take the copy that a running broker makes of itself.

The broker makes the snapshot inside its log directories (broker/storage/snapshot.py); this command,
which the caller runs on the same machine, moves it to its place. So the broker never writes to a
path that a caller names. The parts of several log directories become one directory. The target gets
its name last: a directory of that name is complete.
"""

import errno
import os
import shutil
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from barnabas.metadata import znodes
from barnabas.metadata.database import FILE_NAME
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.server.local_requests import NoLocalBroker, ask
from barnabas.stages.opened import METADATA_DIRECTORY
from barnabas.storage import checkpoints
from barnabas.storage.log_dirs import META, LogDir
from barnabas.storage.replace_file import replace_file, sync_directory

ANSWER_S = 600.0
CHECKPOINTS = (
    checkpoints.RECOVERY_POINT,
    checkpoints.HIGH_WATERMARK,
    checkpoints.LOG_START,
    checkpoints.CLEANER,
)
# Settings that a broker stored at run time and that a second one cannot share with it.
OWN_SETTINGS = ("listeners", "advertised.listeners")

Copied = Callable[[int, int], None]  # files, bytes


class NotTaken(Exception):
    """Why there is no snapshot: one plain line."""


def check_target(target: Path) -> None:
    """Raises NotTaken when the target is in use or cannot be made."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise NotTaken(f"{target} exists and is not an empty directory. Give another one.")
    if not target.absolute().parent.is_dir():
        raise NotTaken(f"there is no directory {target.absolute().parent}. Make it first.")


def take(
    directory: Path, target: Path, copied: Copied = lambda _files, _bytes: None, *, forks: bool
) -> dict[str, Any]:
    """Makes a snapshot of the broker whose first log directory is `directory`, as `target`.
    `copied` is called after each file that had to be copied to another file system; `forks`: gives
    the snapshot an identity of its own. Returns the facts for the user. Raises NotTaken,
    MetadataError, OSError."""
    check_target(target)
    began = time.monotonic()
    try:
        answer = ask(directory, "snapshot", ANSWER_S)
    except NoLocalBroker as error:
        raise NotTaken(str(error)) from error
    except TimeoutError as error:
        raise NotTaken(f"the broker on {directory} did not answer in {ANSWER_S:.0f} s") from error
    if "error" in answer:
        raise NotTaken(f"the broker makes no snapshot: {answer['error']}")
    parts = [Path(made) for _source, made in answer["directories"]]
    building = target.with_name(target.name + ".part")
    with suppress(FileNotFoundError):
        shutil.rmtree(building)
    linked = _move(parts, building, copied)
    cluster_id = give_identity(building) if forks else None
    if target.exists():
        target.rmdir()
    building.rename(target)
    sync_directory(target.absolute().parent)
    for part in parts:
        with suppress(OSError):
            part.parent.rmdir()
    return {
        "directory": str(target),
        "partitions": answer["partitions"],
        "linkedFiles": answer["linked_files"] if linked else 0,
        "copiedBytes": answer["copied_bytes"],
        "pauseMs": answer["pause_us"] / 1000,
        "seconds": round(time.monotonic() - began, 3),
        "clusterId": cluster_id or LogDir(target).identity().get("cluster.id"),
    }


def _move(parts: Sequence[Path], building: Path, copied: Copied) -> bool:
    """Moves the parts of a snapshot into one directory. Returns whether links are still links: they
    become copies on another file system."""
    if len(parts) == 1:
        return _move_one(parts[0], building, copied)
    owner = parts[0].stat()
    building.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(building, owner.st_uid, owner.st_gid)
    linked = True
    offsets: dict[str, dict[checkpoints.TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
    for part in parts:
        for name in CHECKPOINTS:
            offsets[name] |= checkpoints.read_offsets(part / name)
            (part / name).unlink()
        for path in part.iterdir():
            if (building / path.name).exists():
                path.unlink()  # meta.properties and snapshot.json are the same in each
            else:
                linked = _move_one(path, building / path.name, copied) and linked
        part.rmdir()
    for name, found in offsets.items():
        checkpoints.write_offsets(building / name, found)
        if os.geteuid() == 0:
            os.chown(building / name, owner.st_uid, owner.st_gid)
    return linked


def _move_one(source: Path, target: Path, copied: Copied) -> bool:
    try:
        source.rename(target)
        return True
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise

    def copy(one: str, other: str) -> str:
        shutil.copy2(one, other)
        copied(1, os.stat(other).st_size)
        return other

    if source.is_dir():
        shutil.copytree(source, target, copy_function=copy)
        shutil.rmtree(source)
    else:
        copy(str(source), str(target))
        source.unlink()
    return False


def give_identity(directory: Path) -> str:
    """Makes the directory that of a cluster of its own, with the same node id, because the replicas
    in its metadata name that. Returns the new cluster id. Raises OSError, MetadataError."""
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    meta = directory / META
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("cluster.id=")]
    store = directory / METADATA_DIRECTORY
    owner = (store / FILE_NAME).stat()
    tree = EmbeddedTree(store, clock_ms=lambda: int(time.time() * 1000))
    try:
        tree.set(znodes.CLUSTER_ID_PATH, znodes.encode_cluster_id(cluster_id))
        for node in tree.subtree(znodes.config_path("brokers", "x").rpartition("/")[0]):
            config = znodes.decode_config(node.data)
            kept = {name: value for name, value in config.items() if name not in OWN_SETTINGS}
            if kept != config:
                tree.set(node.path, znodes.encode_config(kept))
    finally:
        tree.close()
    lines.append(f"cluster.id={cluster_id}")
    replace_file(meta, "".join(f"{line}\n" for line in lines).encode())
    if os.geteuid() == 0:
        for path in (meta, *store.iterdir()):
            os.chown(path, owner.st_uid, owner.st_gid)
    return cluster_id
