"""Archives whose bytes depend on the names, modes and bytes of their files only.

pack.py payload FOLDER INTO LEVEL   a tar archive for release/launcher.c, compressed with zstd;
                                    prints the macros that describe it
pack.py sdist FILE DIRECTORY        the same source distribution with the times of the commit
                                    (SOURCE_DATE_EPOCH)
"""

import gzip
import hashlib
import os
import re
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

GLIBC = re.compile(rb"GLIBC_2\.(\d+)")


def plain(row: tarfile.TarInfo, time_s: int) -> tarfile.TarInfo:
    """The entry without what differs between two builds."""
    row.mtime, row.uid, row.gid, row.uname, row.gname = time_s, 0, 0, "", ""
    row.mode = 0o755 if row.isdir() or row.mode & 0o100 else 0o644
    row.pax_headers = {}
    return row


def write_payload(folder: Path, into: Path, level: int) -> None:
    import zstandard

    memory = BytesIO()
    with tarfile.open(fileobj=memory, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            row = archive.gettarinfo(path, path.relative_to(folder).as_posix())
            if row.isreg():
                archive.addfile(plain(row, 0), BytesIO(path.read_bytes()))
            elif row.isdir() or row.issym():
                archive.addfile(plain(row, 0))
            else:
                raise SystemExit(f"{path} is not a file, a directory or a symbolic link")
    packed = zstandard.ZstdCompressor(level=level).compress(memory.getvalue())
    into.write_bytes(packed)
    checksum = hashlib.sha256(packed).hexdigest()[:32]
    print(f'-DHASH="{checksum}" -DGLIBC_MINOR={glibc_minor(folder)}')


def glibc_minor(folder: Path) -> int:
    """Returns N of the newest glibc 2.N that a program or library of the folder needs."""
    newest = 0
    for path in folder.rglob("*"):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            needs = subprocess.run(["readelf", "-V", path], capture_output=True, check=True).stdout
            newest = max([newest, *(int(found) for found in GLIBC.findall(needs))])
    return newest


def write_sdist(path: Path, into: Path) -> None:
    time_s = int(os.environ["SOURCE_DATE_EPOCH"])
    memory = BytesIO()
    with (
        tarfile.open(path) as before,
        tarfile.open(fileobj=memory, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for row in sorted(before.getmembers(), key=lambda row: row.name):
            archive.addfile(plain(row, time_s), before.extractfile(row) if row.isreg() else None)
    (into / path.name).write_bytes(gzip.compress(memory.getvalue(), mtime=time_s))


if __name__ == "__main__":
    action, *words = sys.argv[1:]
    if action == "payload":
        write_payload(Path(words[0]), Path(words[1]), int(words[2]))
    else:
        write_sdist(Path(words[0]), Path(words[1]))
