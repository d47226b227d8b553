"""S3 and compatible stores, through boto3: conditional puts instead of renames.

    s3://BUCKET/PREFIX (s3a: is the same)   credentials, region and AWS_ENDPOINT_URL_S3 as in every
                                            program with boto3

`If-None-Match: *` writes a name only once: S3 has it since August 2024, and so do MinIO, R2, Ceph,
Google's store and others. A store that ignores the header would silently accept a second writer's
bytes. So this module tests each store first: it puts a probe twice, and refuses a store that
accepts both. We considered pyarrow's S3 file system and s3fs: the first sends no such header, the
second uses boto3 itself.

S3 has no rename. `publish` copies file by file inside the store, and puts _SUCCESS last, if it is
absent: readers ignore the others without it. A crash before that leaves copies, which the next
attempt overwrites.
"""

import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from barnabas.spark.failures import CheckpointError
from barnabas.spark.store import FILE_BYTES_MAX, SUCCESS

WRITER = "writer"  # metadata of an object: the put that wrote it
SPOOLED_BYTES = 4 * 1024 * 1024  # of a new file that stay in memory; more go to TMPDIR
CONFLICTS_MAX = 5  # responses 409: another put of that name is in progress
DELETED_AT_ONCE = 1000  # S3's limit


class S3Files:
    """The objects below a prefix."""

    def __init__(self, url: str) -> None:
        try:
            import boto3
        except ImportError:
            raise CheckpointError(url, "needs boto3: pip install 'barnabas[s3]'") from None
        parts = urlsplit(url)
        if not parts.netloc:
            raise CheckpointError(url, "needs a bucket: s3://BUCKET/PREFIX")
        self.url, self.bucket = url.rstrip("/"), parts.netloc
        self.prefix = parts.path.strip("/")
        self.client: Any = boto3.client("s3")
        self._is_tried = False

    def shown(self, path: str) -> str:
        return f"{self.url}/{path}"

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}" if self.prefix else path

    def _below(self, directory: str) -> str:
        """Returns the prefix of the keys of all objects in a directory."""
        return "".join(f"{part}/" for part in (self.prefix, directory) if part)

    def names(self, directory: str) -> list[str]:
        prefix = self._below(directory)
        found = set()
        with self._names(directory):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=prefix, Delimiter="/"):
                found |= {row["Key"][len(prefix) :] for row in page.get("Contents", ())}
                found |= {row["Prefix"][len(prefix) : -1] for row in page.get("CommonPrefixes", ())}
        return sorted(name for name in found if name[:1] not in ("", "."))

    def read(self, path: str) -> bytes:
        with self._names(path):
            answer = self.client.get_object(Bucket=self.bucket, Key=self._key(path))
            if answer["ContentLength"] > FILE_BYTES_MAX:
                raise CheckpointError(self.shown(path), f"it is larger than {FILE_BYTES_MAX} bytes")
            data: bytes = answer["Body"].read()
        return data

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._try()
        if not self._put_once(path, data):
            raise FileExistsError(17, "it already exists", self.shown(path))

    def _put_once(self, path: str, data: bytes) -> bool:
        """Returns whether the name has these bytes now. When a response was lost, boto3 repeats the
        put and finds its own object, which `writer` identifies."""
        writer = str(uuid.uuid4())
        for attempt in range(CONFLICTS_MAX):
            try:
                with self._names(path):
                    self.client.put_object(
                        Bucket=self.bucket,
                        Key=self._key(path),
                        Body=data,
                        IfNoneMatch="*",
                        Metadata={WRITER: writer},
                    )
                return True
            except FileExistsError:
                with self._names(path):
                    there = self.client.head_object(Bucket=self.bucket, Key=self._key(path))
                return bool(there["Metadata"].get(WRITER) == writer)
            except BlockingIOError:
                if attempt == CONFLICTS_MAX - 1:
                    raise
        return False

    def _try(self) -> None:
        """Tests a store once, before the first put. Raises CheckpointError."""
        if self._is_tried:
            return
        probe = f".probe.{uuid.uuid4()}"
        try:
            if not self._put_once(probe, b"1") or self._put_once(probe, b"2"):
                raise CheckpointError(
                    self.url,
                    "this store does not honour If-None-Match: a second writer would go unnoticed",
                )
        finally:
            self.delete(probe)
        self._is_tried = True

    def replace(self, path: str, data: bytes) -> None:
        with self._names(path):
            self.client.put_object(Bucket=self.bucket, Key=self._key(path), Body=data)

    def delete(self, path: str) -> None:
        with self._names(path):
            self.client.delete_object(Bucket=self.bucket, Key=self._key(path))

    def delete_tree(self, directory: str) -> None:
        with self._names(directory):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(
                Bucket=self.bucket,
                Prefix=self._below(directory),
                PaginationConfig={"PageSize": DELETED_AT_ONCE},
            ):
                rows = [{"Key": row["Key"]} for row in page.get("Contents", ())]
                if rows:
                    self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": rows})

    def modified_ms(self, path: str) -> int:
        with self._names(path):
            found = self.client.head_object(Bucket=self.bucket, Key=self._key(path))
        return round(found["LastModified"].timestamp() * 1000)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as file:
            yield file  # type: ignore[misc]
            file.seek(0)
            with self._names(path):
                self.client.upload_fileobj(file, self.bucket, self._key(path))

    def publish(self, files: Mapping[str, str], directory: str, *, gathered: str) -> None:
        if SUCCESS in self.names(directory):
            raise FileExistsError(17, "it already exists", self.shown(directory))
        for name, path in files.items():
            if name != SUCCESS:
                source = {"Bucket": self.bucket, "Key": self._key(path)}
                with self._names(path):
                    self.client.copy(source, self.bucket, self._key(f"{directory}/{name}"))
        self.put_if_absent(f"{directory}/{SUCCESS}", self.read(files[SUCCESS]))

    @contextmanager
    def _names(self, path: str) -> Iterator[None]:
        """Turns boto3's errors into those of files, with the object's name."""
        from botocore.exceptions import BotoCoreError, ClientError

        shown = self.shown(path)
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if code in ("NoSuchKey", "404"):
                raise FileNotFoundError(2, "there is no such object", shown) from None
            if status == 412:
                raise FileExistsError(17, "it already exists", shown) from None
            if status == 409:
                raise BlockingIOError(11, "another writer is writing this name", shown) from None
            if status == 403:
                raise PermissionError(13, f"the store answers {code}", shown) from None
            raise OSError(5, f"the store answers {code}: {_message(error)}", shown) from None
        except BotoCoreError as error:
            raise OSError(5, str(error), shown) from None


def _message(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Message", os.strerror(5)))
