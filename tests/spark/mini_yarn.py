"""A real YARN in one Java process: a resource manager and a node manager on 127.0.0.1, which starts
the containers of its applications as processes of this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark
from spark.mini_hdfs import jars

MAIN = Path(__file__).with_name("MiniYarn.java")
# The installed Spark: on YARN, Spark sends its pyspark.zip to the nodes.
SPARK_HOME = Path(pyspark.__file__).parent
START_S = 150


class MiniYarn:
    """Runs until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf_dir = folder / "conf"
        self.conf_dir.mkdir()
        logs = ":".join(map(str, (SPARK_HOME / "jars").glob("log4j*.jar")))  # of YARN's, too
        quick = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command = ["java", *quick, "-cp", f"{jars()}/*:{logs}", str(MAIN)]
        self._log = folder / "log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self.conf_dir / "yarn-site.xml")],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while "ready" not in self._log.read_text().splitlines():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.1)

    def environment(self) -> dict[str, str]:
        """The environment of the submitting process."""
        return os.environ | {"HADOOP_CONF_DIR": str(self.conf_dir), "SPARK_HOME": str(SPARK_HOME)}

    def settings(self, place: Path) -> dict[str, str]:
        """The settings of an application with one executor; `place`: for the files that Spark
        sends."""
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        found = {
            "spark.pyspark.python": sys.executable,
            # Spark's 400 MB, which every node has already.
            "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
            "spark.yarn.stagingDir": str(place),
            "spark.yarn.am.memory": "256m",
            "spark.yarn.am.extraJavaOptions": quick,
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": quick,
        }
        for name in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
            found |= {f"{name}.SPARK_LOCAL_IP": "127.0.0.1"}
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def said(self) -> list[str]:
        """The standard output of the containers of all applications."""
        return [path.read_text() for path in self.folder.rglob("container_*/stdout")]
