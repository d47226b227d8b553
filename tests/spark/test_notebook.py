"""The notebook in docs/notebooks runs unchanged, cell after cell, in this process and its Spark
session."""

import json
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "spark-pipeline.ipynb"


@pytest.mark.java
def test_the_notebook_runs(spark):
    page = json.loads(PAGE.read_text())
    cells = ["".join(cell["source"]) for cell in page["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 8 and sum(text.count("assert ") for text in cells) >= 4
    names = {"__name__": "__main__"}
    try:
        for number, text in enumerate(cells):
            exec(compile(text, f"{PAGE.name}, code cell {number}", "exec"), names)  # noqa: S102
    finally:
        if "broker" in names:
            names["broker"].stop()
    assert names["spark"] is spark
