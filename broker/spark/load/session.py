"""The Spark session of a load, and load tasks as Spark jobs.

The driver is this process, also with a cluster: PySpark starts its JVM through spark-submit with
the same settings. `submit` runs the driver on the cluster itself."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from barnabas.spark.load.java import java_home
from barnabas.spark.load.layout import Loaded
from barnabas.spark.load.task import LoadTask, load_range

TASK_ATTEMPTS = 4  # Spark's default on clusters; a local master has 1 by default
POLL_S = 0.2
GATEWAY = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it when it has started the JVM
DEPLOY_MODE, WORKER_PYTHON = "spark.submit.deployMode", "spark.pyspark.python"
LOG_LEVEL = "spark.log.level"
CONF = {
    "spark.app.name": "barnabas spark-load",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # At level ERROR each attempt of a failed task would log a page; the load reports one line.
    LOG_LEVEL: "FATAL",
}
Result = TypeVar("Result")
REASON = re.compile(r"^(?:[a-z]\w*\.)+([A-Z]\w+): (.+)$|^(\w+Error): (.+)$", re.M)


class LoadFailed(Exception):
    """A task failed as often as it may; `str` gives one plain line."""


class NoSpark(Exception):
    """PySpark is not installed; `str` gives one plain line."""


def is_local(master: str) -> bool:
    """Returns whether Spark runs in one JVM on this machine (local, local[...])."""
    return master == "local" or master.startswith("local[")


def local_master(threads: int | None = None) -> str:
    """Returns the URL of a local master with `threads` threads; None: one for each core."""
    return f"local[{threads or '*'},{TASK_ATTEMPTS}]"


def runs_there(conf: Mapping[str, str]) -> bool:
    """Returns whether the driver must run on the cluster, and this process is not the driver."""
    return conf.get(DEPLOY_MODE) == "cluster" and not is_submitted()


def is_submitted() -> bool:
    """Returns whether spark-submit started this process."""
    return GATEWAY in os.environ


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Changes environment variables until the context ends."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _pyspark() -> Any:
    try:
        import pyspark
    except ImportError:
        raise NoSpark("PySpark is needed: pip install 'barnabas[spark]'") from None
    return pyspark


@contextmanager
def spark_session(master: str, conf: Mapping[str, str]) -> Iterator[Any]:
    """Yields a SparkSession, which ends with this context. Raises NoJava, NoSpark."""
    _pyspark()
    from pyspark.sql import SparkSession

    with java_home() as home:
        changes = {} if home is None else {"JAVA_HOME": home}
        if is_local(master) and not is_submitted():
            changes |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        if WORKER_PYTHON in conf:
            changes["PYSPARK_PYTHON"] = conf[WORKER_PYTHON]
        with environment(changes):
            builder = SparkSession.builder
            if not is_submitted():
                builder = builder.master(master)
            for name, value in {**CONF, **conf}.items():
                builder = builder.config(name, value)
            with _quiet_start(is_shown=LOG_LEVEL in conf or is_submitted()):
                session = builder.getOrCreate()
            try:
                yield session
            finally:
                session.stop()


@contextmanager
def _quiet_start(is_shown: bool) -> Iterator[None]:
    """Redirects the standard error of a JVM that starts to a file: Spark and Java write six to
    eight lines there at each start, whatever the log level is. When the start fails, this prints
    the file. `is_shown`: no redirection, because the user set spark.log.level or the JVM runs
    already."""
    if is_shown:
        yield
        return
    with tempfile.TemporaryFile() as file, os.fdopen(os.dup(2), "wb") as before:
        sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            file.seek(0)
            before.write(file.read())
            raise
        finally:
            os.dup2(before.fileno(), 2)


def submit(master: str, conf: Mapping[str, str], app: Path, arguments: Sequence[str]) -> int:
    """Runs `app` by spark-submit and returns its exit status. Executors need barnabas in the Python
    of spark.pyspark.python. Raises NoJava, NoSpark."""
    import subprocess

    home = os.environ.get("SPARK_HOME")
    program = Path(home or Path(_pyspark().__file__).parent) / "bin" / "spark-submit"
    if shutil.which(program) is None:
        raise NoSpark(f"there is no {program}")
    command = [str(program), "--master", master]
    for name, value in {**CONF, **conf}.items():
        command += ["--conf", f"{name}={value}"]
    with java_home() as java:
        changes = {"PYSPARK_DRIVER_PYTHON": sys.executable}
        if java is not None:
            changes["JAVA_HOME"] = java
        with environment(changes):
            return subprocess.run([*command, str(app), *arguments], check=False).returncode


class WatchedJob:
    """Runs a function that is a Spark job, and reports its progress: it calls `report(done,
    records, bytes)` while the job runs and after it. The job's tasks `add` their counts to
    `sums`."""

    def __init__(self, context: Any, report: Callable[[int, int, int], None] | None) -> None:
        self._context, self._report = context, report
        self.sums = tuple(context.accumulator(0) for _ in range(3))

    def run(self, job: Callable[[], Result]) -> Result:
        """Returns what `job` returns, and raises its error. An exception during the wait cancels
        the job."""
        with ThreadPoolExecutor(1, "spark-job") as pool:
            future = pool.submit(job)
            try:
                while not future.done():
                    self._tell()
                    try:
                        future.exception(POLL_S)
                    except TimeoutError:
                        continue
            except BaseException:
                self._context.cancelAllJobs()
                raise
        self._tell()
        return future.result()

    def _tell(self) -> None:
        if self._report is not None:
            self._report(*(one.value for one in self.sums))


def add(sums: Sequence[Any], found: Loaded) -> None:
    """Adds the counts of a finished task; the task calls it at its end."""
    for one, value in zip(sums, (1, found.records, found.body_bytes), strict=True):
        one.add(value)


def attempt_number() -> int:
    """Returns the attempt number of the current Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context else 0


class SparkTasks:
    """Runs load tasks as one Spark job, a Spark task for each."""

    def __init__(self, context: Any, report: Callable[[int, int, int], None] | None = None) -> None:
        self._context, self._report = context, report

    def __call__(self, tasks: Sequence[LoadTask]) -> list[Loaded]:
        """Returns the result of each task. Raises LoadFailed."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        watched = WatchedJob(self._context, self._report)
        sums = watched.sums

        def run(task: LoadTask) -> Loaded:
            found = load_range(task, attempt_number())
            add(sums, found)
            return found

        job = self._context.parallelize(list(tasks), len(tasks)).map(run)
        try:
            return list(watched.run(job.collect))
        except (Py4JError, PySparkException) as error:  # which one depends on what a task raised
            raise LoadFailed(reason_of(str(error))) from error


def reason_of(text: str, otherwise: str | None = None) -> str:
    """Returns the line with the cause, from a Java exception that holds a Python traceback.
    `otherwise`: the text before that line when no task failed."""
    failed = f"a task failed {TASK_ATTEMPTS} times: "
    text = text.strip()
    if text.startswith("An error occurred while calling"):  # Py4J's line comes before Java's
        text = text.partition("\n: ")[2] or text
    found = (failed if otherwise is None else otherwise) + text.partition("\n")[0]
    for line in REASON.finditer(text):
        kind, said = line[1] or line[3], line[2] or line[4]
        if not kind.startswith(("Spark", "PythonException", "Py4J")):
            found = f"{failed}{kind}: {said}"  # the last one is what the task raised
    return found
