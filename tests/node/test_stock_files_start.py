"""Kafka's own single-node property files start our node, which logs how it used them."""

import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from compat.support import Wire

from barnabas.wire import request

STOCK = Path(__file__).resolve().parents[1] / "config" / "stock"
BARNABAS = Path(sys.executable).parent / "barnabas"


@pytest.mark.parametrize("file", sorted(STOCK.glob("*.properties")), ids=lambda path: path.stem)
def test_stock_file_starts(tmp_path, file):
    command = [str(BARNABAS), "start", "--config", str(file)]
    for setting in (f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"):
        command += ["--set", setting]
    said = tmp_path / "said"
    with said.open("w") as output:
        broker = subprocess.Popen(command, stderr=output, stdout=output)
    try:
        deadline = time.monotonic() + 20
        while not (ready := re.search(r"ready: PLAINTEXT://(\S+)", said.read_text())):
            assert broker.poll() is None and time.monotonic() < deadline, said.read_text()
            time.sleep(0.02)
        with closing(Wire(ready[1])) as wire:
            assert len(wire.call(3, 9, request(3).cls(topics=[])).brokers) == 1
    finally:
        broker.terminate()
        assert broker.wait(20) == 0
    text = said.read_text()
    assert "embedded" in text, text
    assert "Traceback" not in text
    assert (tmp_path / ".kafka_cleanshutdown").exists()
