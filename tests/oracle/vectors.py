"""The golden vectors of tests/vectors (its README says how they were made)."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
MESSAGE_FILES = ("rpc", "internal", "data")


@cache
def vectors(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    for vector in found:
        vector["bytes"] = bytes.fromhex(vector["hex"])
    return found


def message_vectors() -> list[dict[str, Any]]:
    return [vector for name in MESSAGE_FILES for vector in vectors(name)]
