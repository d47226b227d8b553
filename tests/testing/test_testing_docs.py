"""All examples of docs/testing.md are run, unchanged."""

import re
from pathlib import Path

from testing.test_pytest_plugin import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_the_examples_pass(tmp_path):
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 8
    count = 0
    for number, text in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(text)
        count += len(re.findall(r"^def test_", text, re.MULTILINE))
    code, output = run(tmp_path, "--strict-markers")
    assert code == 0, output
    assert f"{count} passed" in output


def test_every_method_of_the_handle_is_described():
    from barnabas import Broker

    page = PAGE.read_text()
    names = [name for name in vars(Broker) if not name.startswith("_")]
    assert len(names) > 15
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []
