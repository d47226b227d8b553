"""Runs the tests that failed in a stage of tests/run once more, one after the other.

    second_look.py CACHE RECORD [OPTIONS OF PYTEST]

CACHE is the cache directory of the stage's pytest, RECORD a file that gets the names of tests which
passed then. The exit status is 0 when all passed. On a busy machine a test may lose a race that is
in the test, not in the product; tests behind it in its file may fail with it, because they share a
broker. Failures in more than LIMIT_FILES files are no such race, and a test that judges whether
acknowledged records are kept gets no second look: its first failure counts.
"""

import json
import subprocess
import sys
from pathlib import Path

LIMIT_FILES = 3
COUNT_AT_ONCE = ("tests/history/", "tests/durability/", "tests/simulation/")


def refusal(failed: list[str]) -> str | None:
    """Why these tests get no second look, or None."""
    if not failed:
        return "no test failed: pytest itself did"
    files = {name.partition("::")[0] for name in failed}
    if len(files) > LIMIT_FILES:
        return f"tests of {len(files)} files failed; a second look is for at most {LIMIT_FILES}"
    if firm := [name for name in failed if name.startswith(COUNT_AT_ONCE)]:
        return f"the first failure counts: {', '.join(firm)}"
    return None


def main(cache: str, record: str, *options: str) -> int:
    kept = Path(cache, "v/cache/lastfailed")
    failed = sorted(json.loads(kept.read_text())) if kept.exists() else []
    if why := refusal(failed):
        print(f"no second look: {why}")
        return 1
    print(f"second look, alone: {', '.join(failed)}", flush=True)
    command = [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", *failed]
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        with Path(record).open("a") as file:
            file.writelines(f"{name}\n" for name in failed)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
