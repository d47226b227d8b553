"""`barnabas spark-load` as a process: its command, its child processes, and its files."""

import os
import sys
import time
from pathlib import Path

import pyspark
from spark.loading import dataset, tree
from spark.spark_home import environment, quick_java

import barnabas.cli

RUN_S = 150
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
APP = str(Path(barnabas.cli.__file__).parent / "spark_app.py")


def driver_words(java=None):
    """Settings of a driver's JVM; java: its options."""
    return [
        *("--conf", "spark.driver.memory=512m"),
        *("--conf", f"spark.driver.extraJavaOptions={java or quick_java()}"),
    ]


def command(broker, topics, place, *words, report=("--json",), java=None):
    return [
        *(sys.executable, "-m", "barnabas", "spark-load", topics, *report),
        *("--bootstrap-server", broker.bootstrap_servers),
        *("--to", f"{place}/lake", "--checkpoint", f"{place}/cp"),
        *driver_words(java),
        *words,
    ]


def submitted(words, master):
    """The same load by spark-submit, and the environment for that."""
    return [SUBMIT, "--master", master, APP, *words[4:]], os.environ | environment()


def children_of(pid):
    """The children of a process and of its children, by name."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            found[int(place.name)] = (parent, b" ".join(words).decode("utf-8", "replace"))
    below, grown = {pid}, True
    while grown:
        more = {one for one, (parent, _) in found.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return {one: found[one][1] for one in below if one in found}


def wait_for(what, process, seconds=RUN_S):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert process.poll() is None, "the load ended before its fault came"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def staged(place):
    return [n for n in tree(f"{place}/lake", "_staging") if n.endswith(".parquet")]


def offsets_of(place, topic):
    table = dataset(Path(place) / "lake" / topic).to_table(columns=["partition", "offset"])
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
