"""Writes tests/slow.txt: the tests that took longer than SLOW_S seconds, with their set-up.

    python tests/slow_tests.py build/test/{tests,computing}.xml     from reports of tests/run

A name without a case in brackets stands for all cases of that test. tests/conftest.py gives these
tests the mark `slow`.
"""

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SLOW_S = 0.3
ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("slow.txt")


def node_id(case: ElementTree.Element) -> str:
    """pytest's name of a test in a JUnit report, whose class name is the file and the class."""
    parts = case.attrib["classname"].split(".")
    names = [case.attrib["name"]]
    while not (path := Path(*parts).with_suffix(".py")).exists():
        names.insert(0, parts.pop())
    return "::".join([path.as_posix(), *names])


def slow_tests(reports: list[str]) -> list[str]:
    """The longest time of a case counts where several reports have it."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = node_id(case)
            seconds[name] = max(seconds[name], float(case.attrib["time"]))
    cases = defaultdict(list)
    for name in seconds:
        cases[name.partition("[")[0]].append(name)
    found = []
    for test, names in cases.items():
        slow = [name for name in names if seconds[name] > SLOW_S]
        found += [test] if slow == names else slow
    return sorted(found)


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in slow_tests(sys.argv[1:])))
