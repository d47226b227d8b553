"""HDFS through its REST interface (WebHDFS, which HttpFS and Knox serve too), in Python alone.

The other ways need more than pip installs: libhdfs needs a native library and a Hadoop
installation, the Java client needs a JVM beside every Python worker. fsspec's webhdfs lacks a
rename that refuses an existing name (docs/decisions/storage-libraries.md). The calls, all below
http://NODE/webhdfs/v1/PATH:

    GET    LISTSTATUS, GETFILESTATUS, OPEN          OPEN and CREATE answer 307 with the address of
    PUT    MKDIRS, CREATE, RENAME                   a data node, which gets the same request
    DELETE DELETE

This store writes a file under a temporary name and renames it with renameoptions=NONE. The name
node refuses the rename when the name exists, in one step, as for Spark itself. The same rename
publishes a directory. HDFS keeps its own checksums, so there are no .crc files.

    webhdfs://HOST:PORT/PATH    the name node's HTTP address, or a gateway's; swebhdfs: over TLS
    hdfs://HOST[:PORT]/PATH     HTTP at HOST:9870, or the address in HADOOP_CONF_DIR/hdfs-site.xml
    hdfs://SERVICE/PATH         name nodes of a service that hdfs-site.xml describes (the store
                                finds the active one); hdfs:///PATH is fs.defaultFS of core-site.xml

The user is HADOOP_USER_NAME or the user of this process. Kerberos is not supported: a cluster that
requires it answers 401, which is an error.

The store does not repeat a broken request, because it does not know whether the name node carried
out a rename. The next read of the checkpoint shows it.

Source: Apache Hadoop's WebHDFS REST API; seen with Hadoop 3.5.0.
"""

import getpass
import http.client
import json
import os
import posixpath
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from barnabas.spark.failures import CheckpointError
from barnabas.spark.store import FILE_BYTES_MAX

TIMEOUT_S = 60.0
HTTP_PORT = 9870
HTTPS_PORT = 9871
ANSWER_BYTES_MAX = 256 * 1024 * 1024  # of a listing; a file may have FILE_BYTES_MAX
CHUNK_BYTES = 1024 * 1024
SPOOLED_BYTES = 4 * 1024 * 1024  # of a new file that stay in memory; more go to TMPDIR
NAME_NODES_MAX = 16


class Unreached(Exception):
    """The node did not get the request: the caller may send it to another one."""


class WebHdfsFiles:
    """A directory of HDFS; the first file creates it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self.tls = parts.scheme == "swebhdfs"
        self.root = parts.path.rstrip("/") or "/"
        self.nodes = _nodes(url, parts.scheme, parts.netloc)
        self.user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    def shown(self, path: str) -> str:
        return f"{self.url}/{path}"

    def names(self, directory: str) -> list[str]:
        try:
            found = self._json("GET", directory, "LISTSTATUS")
        except FileNotFoundError:
            return []
        rows = found["FileStatuses"]["FileStatus"]
        return sorted(row["pathSuffix"] for row in rows if row["pathSuffix"][:1] not in ("", "."))

    def read(self, path: str) -> bytes:
        data = self._call("GET", path, "OPEN", answer_bytes_max=FILE_BYTES_MAX)
        if len(data) > FILE_BYTES_MAX:
            raise CheckpointError(self.shown(path), f"it is larger than {FILE_BYTES_MAX} bytes")
        return data

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._put(path, data, "NONE")

    def replace(self, path: str, data: bytes) -> None:
        self._put(path, data, "OVERWRITE")

    def _put(self, path: str, data: bytes, options: str) -> None:
        folder, name = posixpath.split(path)
        made = posixpath.join(folder, f".{name}.{uuid.uuid4()}.tmp")
        self._call("PUT", made, "CREATE", body=data, overwrite="false")
        try:
            self._rename(made, path, options)
        except OSError:
            self.delete(made)
            raise

    def _rename(self, path: str, target: str, options: str) -> None:
        destination = posixpath.join(self.root, target)
        self._call("PUT", path, "RENAME", destination=destination, renameoptions=options)

    def delete(self, path: str) -> None:
        self._call("DELETE", path, "DELETE", recursive="false")

    def delete_tree(self, directory: str) -> None:
        self._call("DELETE", directory, "DELETE", recursive="true")

    def modified_ms(self, path: str) -> int:
        return int(self._json("GET", path, "GETFILESTATUS")["FileStatus"]["modificationTime"])

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as file:
            yield file  # type: ignore[misc]
            file.seek(0)
            self._call("PUT", path, "CREATE", body=file, overwrite="false")

    def publish(self, files: Mapping[str, str], directory: str, *, gathered: str) -> None:
        for folder in {posixpath.dirname(posixpath.join(gathered, name)) for name in files}:
            self._call("PUT", folder, "MKDIRS")
        for name, path in files.items():
            self._rename(path, posixpath.join(gathered, name), "NONE")
        self._call("PUT", posixpath.dirname(directory), "MKDIRS")
        self._rename(gathered, directory, "NONE")

    # ------------------------------------------------------------------------------- HTTP

    def _json(self, method: str, path: str, op: str) -> Any:
        data = self._call(method, path, op)
        try:
            return json.loads(data)
        except ValueError:
            raise OSError(0, "the answer is not from WebHDFS", self.shown(path)) from None

    def _call(
        self,
        method: str,
        path: str,
        op: str,
        *,
        body: bytes | IO[bytes] | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        **parameters: str,
    ) -> bytes:
        """Returns the body of the response. Raises FileNotFoundError, FileExistsError,
        PermissionError, OSError; each names the file."""
        query = urlencode({"op": op, "user.name": self.user, **parameters})
        place = quote(posixpath.join(self.root, path).rstrip("/") or "/")
        unreached: OSError | None = None
        for node in self.nodes[:NAME_NODES_MAX]:
            target, size = f"/webhdfs/v1{place}?{query}", answer_bytes_max
            try:
                status, headers, data = self._ask(node, method, target, None, size)
                if status == 307:
                    there = urlsplit(headers.get("Location", ""))
                    target = f"{there.path}?{there.query}"
                    status, _, data = self._ask(there.netloc, method, target, body, size)
            except Unreached as error:
                unreached = OSError(0, str(error), self.shown(path))
                continue
            except (OSError, http.client.HTTPException) as error:
                raise OSError(5, f"{node}: {error}", self.shown(path)) from None
            if 200 <= status < 300:
                return data
            kind, reason = _remote(data)
            if kind == "StandbyException":
                unreached = OSError(0, f"{node} is a standby name node", self.shown(path))
                continue
            raise self._failure(path, status, kind, reason)
        assert unreached is not None, "there is a name node"
        raise unreached

    def _ask(
        self,
        address: str,
        method: str,
        target: str,
        body: bytes | IO[bytes] | None,
        answer_bytes_max: int,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        connection = kind(address, timeout=TIMEOUT_S, blocksize=CHUNK_BYTES)
        try:
            connection.connect()
        except OSError as error:
            raise Unreached(f"{address}: {error.strerror or error}") from None
        headers = {"Content-Type": "application/octet-stream"}
        if body is not None and not isinstance(body, bytes):
            size = body.seek(0, os.SEEK_END)
            body.seek(0)
            headers["Content-Length"] = str(size)
        try:
            connection.request(method, target, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(answer_bytes_max + 1)
        finally:
            connection.close()

    def _failure(self, path: str, status: int, kind: str, reason: str) -> OSError:
        shown = self.shown(path)
        if kind == "FileNotFoundException" or (status == 404 and not kind):
            return FileNotFoundError(2, reason or "there is no such file", shown)
        if kind == "FileAlreadyExistsException":
            return FileExistsError(17, "it already exists", shown)
        if status == 401:
            return PermissionError(1, "HDFS asks for Kerberos, which is not supported", shown)
        if kind == "AccessControlException":
            return PermissionError(13, reason, shown)
        return OSError(5, f"HDFS answers {status} {kind}: {reason}", shown)


def _remote(data: bytes) -> tuple[str, str]:
    """Returns the class of the Java exception and its first line."""
    try:
        found = json.loads(data)["RemoteException"]
        return str(found["exception"]), str(found.get("message", "")).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        return "", data[:200].decode("utf-8", "replace")


# ------------------------------------------------------------------------------ name nodes


def _nodes(url: str, scheme: str, netloc: str) -> list[str]:
    """Returns the HTTP addresses of the name nodes. Raises CheckpointError."""
    if scheme != "hdfs":
        if not netloc:
            raise CheckpointError(url, f"{scheme}: needs HOST:PORT")
        default = HTTPS_PORT if scheme == "swebhdfs" else HTTP_PORT
        return [netloc if urlsplit(f"//{netloc}").port else f"{netloc}:{default}"]
    conf = hadoop_conf()
    if not netloc:
        netloc = urlsplit(conf.get("fs.defaultFS", "")).netloc
        if not netloc:
            raise CheckpointError(
                url, "hdfs:/// needs fs.defaultFS (HADOOP_CONF_DIR/core-site.xml)"
            )
    names = conf.get(f"dfs.ha.namenodes.{netloc}")
    if names is not None:
        keys = [f"dfs.namenode.http-address.{netloc}.{name.strip()}" for name in names.split(",")]
        found = [conf[key] for key in keys if key in conf]
        if not found:
            raise CheckpointError(url, f"hdfs-site.xml has no {keys[0]}")
        return found
    host = urlsplit(f"//{netloc}").hostname or ""
    address = conf.get("dfs.namenode.http-address")
    if address is None:
        return [f"{host}:{HTTP_PORT}"]
    bound, _, port = address.rpartition(":")
    return [f"{host}:{port}" if bound in ("", "0.0.0.0") else address]


def hadoop_conf() -> dict[str, str]:
    """Returns the settings in core-site.xml and hdfs-site.xml of HADOOP_CONF_DIR; {} without them.
    Raises CheckpointError."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml") if folder else ():
        place = Path(folder or "") / name
        if not place.exists():
            continue
        try:
            rows = ElementTree.parse(place).getroot().findall("property")
        except ElementTree.ParseError as error:
            raise CheckpointError(str(place), f"not XML: {error}") from None
        found |= {
            row.findtext("name", "").strip(): row.findtext("value", "").strip() for row in rows
        }
    return found
