"""The SPARK_HOME of the processes of these tests: the installed Spark, with faster starts.

It has no pyspark.zip. Spark puts that file first on the path of its Python
processes, and modules in a zip are compiled at each import: 1.1 s of CPU for each process, 0.2 s
from the installed package.

Its JVMs map their classes from an archive that one of them has written at its
end (Java's -XX:ArchiveClassesAtExit): a `spark-load` takes 8 s of CPU, and 11 s without. Both are
kept in ~/.cache/barnabas for one version of Spark and of Java.
"""

import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
DRIVER = Path(__file__).with_name("driver.py")
# Classes alone fill the initial heap of a JVM, which would cause a garbage collection each time.
PLAIN_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=192m"
ARCHIVE_S = 200


def installed() -> Path | None:
    """PySpark's folder."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


@contextmanager
def locked(name: Path) -> Iterator[None]:
    """Holds a lock that the other processes of a run use, too."""
    with open(name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def spark_home() -> Path:
    package = installed()
    assert package is not None
    java = Path(os.path.realpath(shutil.which("java") or "java")).parent.parent
    # The archive identifies jars by their dates, which differ in each installation of the same
    # Spark.
    home = CACHE / "spark-home" / f"{version('pyspark')}-{java.name}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_suffix(".lock")):
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            for part in ("bin", "jars"):
                shutil.copytree(package / part, home / part, copy_function=link_or_copy)
            (home / "complete").touch()
    return home


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@functools.cache
def quick_java() -> str:
    """Options of a JVM that runs for seconds."""
    archive = spark_home() / "classes.jsa"
    with locked(spark_home().with_suffix(".lock")):
        if not archive.exists():
            make_archive(archive)
    return f"{PLAIN_JAVA} -XX:SharedArchiveFile={archive}"


def make_archive(archive: Path) -> None:
    """Writes the archive with the classes of a small query."""
    from barnabas import Broker

    new, place = archive.with_suffix(".new"), archive.with_suffix(".work")
    java = f"{PLAIN_JAVA} -XX:ArchiveClassesAtExit={new}"
    with Broker({}) as broker:
        broker.create_topic("t", partitions=2)
        given = {
            "settings": {
                "spark.ui.enabled": "false",
                "spark.driver.memory": "512m",
                "spark.driver.extraJavaOptions": java,
            },
            "format": "barnabas",
            "options": {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"},
            "place": str(place),
            "pause_s": 0,
        }
        # Its JVM, which writes the archive after the end of the driver, keeps the pipe open until
        # then.
        done = subprocess.run(
            [sys.executable, str(DRIVER), json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | environment(),
            timeout=ARCHIVE_S,
            check=False,
        )
    shutil.rmtree(place, ignore_errors=True)
    assert new.exists(), done.stdout.decode()[-3000:]
    new.rename(archive)


def environment() -> dict[str, str]:
    """The environment of a driver on this machine."""
    return {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


if __name__ == "__main__":  # for tests/run, which makes the archive before the tests
    print(quick_java())
