"""A real standalone Spark cluster: a master and two workers, each a process of its own.

The workers have two different hosts, because Spark runs the second copy of a slow task only on
another host: all of 127/8 is this machine.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark
from durability.broker_process import free_port
from spark.spark_home import quick_java

CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
HOSTS = ("127.0.0.1", "127.0.0.2")
START_S = 90


class Standalone:
    """Runs until it is closed. `url`: for --master. Each worker has one core."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port()
        self.url = f"spark://{HOSTS[0]}:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._deadline = time.monotonic() + START_S
        # A worker that finds no master tries again after ten seconds.
        self._start("master", HOSTS[0], "master.Master", "--port", str(port))
        self._wait("master", "I have been elected leader")
        for host in HOSTS:
            words = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / host))
            self._start(host, host, "worker.Worker", *words, self.url)
        for host in HOSTS:
            self._wait(host, "Successfully registered with master")

    @property
    def workers(self) -> list[int]:
        """Pids, in the order of HOSTS."""
        return [one.pid for one in self._processes[1:]]

    def _start(self, name: str, host: str, kind: str, *words: str) -> None:
        command = [CLASS, f"org.apache.spark.deploy.{kind}", "--host", host, "--webui-port", "0"]
        env = os.environ | {
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick_java(),
        }
        with open(self.folder / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, *words],
                    cwd=self.folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _wait(self, name: str, words: str) -> None:
        log = self.folder / f"{name}.log"
        while words not in (said := log.read_text()):
            if any(one.poll() is not None for one in self._processes):
                break
            if time.monotonic() > self._deadline:
                break
            time.sleep(0.05)
        else:
            return
        self.close()
        raise AssertionError(f"{name}: {said[-2000:]}")

    @staticmethod
    def settings() -> dict[str, str]:
        """The settings of an application: an executor on each host, and copies of slow tasks."""
        return {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": quick_java(),
            "spark.pyspark.python": sys.executable,
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
        }

    def close(self) -> None:
        for one in reversed(self._processes):
            one.terminate()
        for one in self._processes:
            one.wait(30)
