"""The CRC instructions of 64-bit ARM, compiled for that processor and run in an emulator."""

import platform
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

HERE = Path(__file__).parent
HEADERS = HERE.parent.parent / "cext" / "codec"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"


@pytest.fixture(scope="module")
def arm_checksums(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], dict[str, int]]:
    if platform.machine() == "aarch64":
        pytest.skip("this machine is ARM: tests/cext/test_crc.py runs the instructions themselves")
    if not shutil.which(COMPILER) or not shutil.which(EMULATOR):
        pytest.skip(f"needs {COMPILER} and {EMULATOR} (gcc-aarch64-linux-gnu, qemu-user-static)")
    program = tmp_path_factory.mktemp("arm") / "crc"
    flags = ["-O3", "-Wall", "-Werror", "-Wno-unused-function", "-static", f"-I{HEADERS}"]
    subprocess.run([COMPILER, *flags, str(HERE / "crc_arm.c"), "-o", str(program)], check=True)

    def run(data: bytes) -> dict[str, int]:
        done = subprocess.run([EMULATOR, str(program)], input=data, capture_output=True, check=True)
        return {name: int(crc) for name, crc in map(str.split, done.stdout.decode().splitlines())}

    return run


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 1000, 65_537])
def test_the_arm_instructions_give_what_the_oracle_gives(
    arm_checksums: Callable[[bytes], dict[str, int]], size: int
) -> None:
    data = random.Random(size).randbytes(size)
    assert arm_checksums(data) == {"arm": crc32c(data), "table": crc32c(data)}
