"""A real HDFS in one Java process: a name node and a data node on 127.0.0.1."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from durability.broker_process import free_port

VERSION = "3.5.0"
START_S = 240
CLASS = "org.apache.hadoop.test.MiniDFSClusterManager"


def jars() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    home = os.environ.get("BARNABAS_HADOOP_HOME", f"{cache}/barnabas/hadoop")
    return Path(home) / VERSION / "libs"


def missing() -> str | None:
    if shutil.which("java") is None:
        return "needs Java"
    return None if any(jars().glob("*.jar")) else "needs tests/hadoop/fetch"


class MiniHdfs:
    """Runs until it is closed. `hdfs`: its URL for Spark; `web`: its URL for WebHDFS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.http_port = free_port(), free_port()
        details = folder / "details.json"
        options = ["-format", "-datanodes", "1", "-writeDetails", str(details)]
        options += ["-nnport", str(self.port), "-httpport", str(self.http_port)]
        options += ["-D", f"hdfs.minidfs.basedir={folder / 'dfs'}", "-cmdport", "0"]
        quick = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command = ["java", *quick, "-cp", f"{jars()}/*", CLASS, *options]
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while not (details.exists() and json.loads(details.read_text() or "null")):
            assert self._process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    @property
    def hdfs(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def web(self) -> str:
        return f"webhdfs://127.0.0.1:{self.http_port}"

    def conf_dir(self) -> str:
        """A HADOOP_CONF_DIR that says where the name node's HTTP is."""
        place = self.folder / "conf"
        place.mkdir(exist_ok=True)
        (place / "hdfs-site.xml").write_text(
            "<configuration><property><name>dfs.namenode.http-address</name>"
            f"<value>0.0.0.0:{self.http_port}</value></property></configuration>"
        )
        return str(place)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
