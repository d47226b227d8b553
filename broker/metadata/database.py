"""The file of the embedded store: an SQLite database `metadata.db`.

    meta   name text, value integer        zxid: number of the last commit
                                           session: number of the last session
    nodes  path text (key), data blob, version, ctime_ms, mtime_ms, ephemeral_owner, czxid, mzxid,
           sequence_next, crc               crc: CRC-32 of all the other columns
    application_id 0x6261726e ("barn"), user_version = SCHEMA_VERSION

The same directory has `metadata.db-wal`, which belongs to the database (copy and restore both or
neither), and `metadata.db.lock`, which the process with the open store locks.

Invariants: one transaction for each commit, with its zxid; every node but the root has its parent;
each row matches its CRC. The write-ahead log has synchronous=FULL: a commit returns after fsync.
After a crash during a commit, the log has no valid commit frame for it, and the next start finds
the state of the commit before. After a crash during a checkpoint, the log repairs the database,
because it is truncated only after an fsync of the database file. SQLite itself would not notice a
flipped bit in a row; the CRC shows it.

An error before COMMIT is rolled back and means "not done". After an error of COMMIT itself (for
example of its fsync) the outcome is unknown: the store closes the connection, and `reopen` takes
the content of the file as the state, after a checkpoint has written and synced all of it again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from barnabas.metadata.node_table import Changes, Entry, NodeTable
from barnabas.metadata.tree import OutcomeUnknown, Stat, StoreUnavailable

FILE_NAME = "metadata.db"
SCHEMA_VERSION = 1
APPLICATION_ID = 0x6261726E
WAL_PAGES_MAX = 1000  # SQLite's default: a checkpoint every 4 MB of log
WAL_BYTES_MAX = 16 * 1024 * 1024  # a checkpoint truncates the log to this size

_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE nodes (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL,"
    " ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, ephemeral_owner INTEGER NOT NULL,"
    " czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, sequence_next INTEGER NOT NULL,"
    " crc INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO meta VALUES ('zxid', 0), ('session', 0)",
)
_PUT = "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

Upgrade = Callable[[sqlite3.Connection], None]
# Schema version -> the function that upgrades a file of that version to the next one, in one
# transaction.
UPGRADES: dict[int, Upgrade] = {}

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_MACHINE = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
}


class StoreInUse(StoreUnavailable):
    """Another process, or another broker of this process, has the file open."""


class StoreCorrupt(StoreUnavailable):
    """The file is damaged, or another program wrote it."""


class SchemaTooNew(StoreUnavailable):
    """A later version of barnabas wrote the file."""


Row = tuple[str, bytes, int, int, int, int, int, int, int, int]


_NUMBERS = struct.Struct("<7q")


def row_crc(path: str, entry: Entry) -> int:
    """Returns the CRC-32 of the path, the numbers and the data of a row."""
    numbers = _NUMBERS.pack(*entry.stat, entry.sequence_next)
    return zlib.crc32(entry.data, zlib.crc32(numbers, zlib.crc32(path.encode())))


def _row(path: str, entry: Entry) -> Row:
    return (path, entry.data, *entry.stat, entry.sequence_next, row_crc(path, entry))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unavailable(path: Path | str, error: OSError) -> StoreUnavailable:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "Free some space on its disk." if is_full else "Check its permissions and its disk."
    return StoreUnavailable(f"{path}: {error.strerror}. {remedy}")


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


class Database:
    """The open file. One thread at a time uses it, under the store's writer lock. `synced` False is
    for tests: a crash of the machine may then lose commits."""

    def __init__(
        self,
        directory: Path,
        *,
        wal_pages_max: int = WAL_PAGES_MAX,
        upgrades: dict[int, Upgrade] | None = None,
        synced: bool = True,
    ) -> None:
        self.path = directory / FILE_NAME
        self._wal_pages_max = wal_pages_max
        self._synced = synced
        self._upgrades = UPGRADES if upgrades is None else upgrades
        self._connection: sqlite3.Connection | None = None
        self._prepare_directory(directory)
        self._lock: int | None = self._take_lock()
        try:
            self._make_file()
            self._connect()
            _sync_directory(directory)
        except BaseException:
            self.close()
            raise

    def _prepare_directory(self, directory: Path) -> None:
        try:
            if not directory.is_dir():
                directory.mkdir(parents=True, mode=0o700)
                _sync_directory(directory.parent)
        except OSError as error:
            raise _unavailable(directory, error) from error

    def _take_lock(self) -> int:
        path = f"{self.path}.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unavailable(path, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace") or "unknown"
            os.close(lock)
            raise StoreInUse(
                f"{self.path} is in use by the process {holder}. Stop it first, or give this"
                " broker a directory of its own."
            ) from None
        except OSError as error:
            os.close(lock)
            raise _unavailable(path, error) from error
        return lock

    def _make_file(self) -> None:
        """Creates the file with read permission for its owner only, because it contains
        credentials; SQLite gives the log the same mode."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(self.path, flags, 0o600))
        except OSError as error:
            raise _unavailable(self.path, error) from error

    def _connect(self) -> None:
        connection = None
        try:
            connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
            # Exclusive mode comes before WAL: the log's index then is in memory, without a -shm
            # file.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(
                    f"{self.path}: SQLite cannot keep a write-ahead log in this directory (journal"
                    f" mode {mode}). Set log.dirs to a directory on a local disk."
                )
            connection.execute(f"PRAGMA synchronous={'FULL' if self._synced else 'OFF'}")
            connection.execute(f"PRAGMA wal_autocheckpoint={self._wal_pages_max}")
            connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES_MAX}")
            self._bring_schema_up(connection)
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise self._corrupt(damage)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise self._refusal(error) from error
        except StoreUnavailable:
            if connection is not None:
                connection.close()
            raise
        self._connection = connection

    def _bring_schema_up(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise self._corrupt("an SQLite database of another program")
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{self.path} has schema version {version}; this barnabas knows up to"
                f" {SCHEMA_VERSION}. Use the version that wrote it, or a later one."
            )
        if tables and version == SCHEMA_VERSION:
            return
        connection.execute("BEGIN IMMEDIATE")
        if not tables:
            for statement in _SCHEMA:
                connection.execute(statement)
            root = Entry(b"", Stat(0, 0, 0, 0, 0, 0), 0)
            connection.execute(_PUT, _row("/", root))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        else:
            for step in range(version, SCHEMA_VERSION):
                if step not in self._upgrades:
                    raise self._corrupt(f"schema version {step}, which never existed")
                self._upgrades[step](connection)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")

    def begin_session(self) -> int:
        """Deletes the ephemeral nodes of all former sessions, and gives this session its number, in
        one commit. Returns the number. Raises StoreUnavailable."""
        connection = self._require()
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM nodes WHERE ephemeral_owner != 0")
            connection.execute(
                "UPDATE meta SET value = value + 1 WHERE name IN ('session', 'zxid')"
            )
            query = "SELECT value FROM meta WHERE name = 'session'"
            row = connection.execute(query).fetchone()
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._refusal(error) from error
        if row is None or not isinstance(row[0], int):
            raise self._corrupt("the number of the last session is missing")
        return row[0]

    def load(self) -> tuple[NodeTable, int]:
        """Returns all nodes and the number of the last commit. Raises StoreCorrupt when a row does
        not match its CRC or a parent is missing, and StoreUnavailable."""
        table = NodeTable()
        connection = self._require()
        try:
            query = "SELECT value FROM meta WHERE name = 'zxid'"
            zxid = connection.execute(query).fetchone()
            for row in connection.execute("SELECT * FROM nodes"):
                path = row[0]
                entry = Entry(row[1], Stat._make(row[2:8]), row[8])
                if not self._agrees(path, entry, row[9]):
                    raise self._corrupt(f"the row of node {path!r} does not match its CRC")
                table.put(path, entry)
        except sqlite3.Error as error:
            raise self._refusal(error) from error
        if zxid is None or not isinstance(zxid[0], int):
            raise self._corrupt("the number of the last commit is missing")
        orphan = table.orphan()
        if orphan is not None or table.find("/") is None:
            raise self._corrupt(f"the parent of node {orphan or '/'!r} is missing")
        return table, zxid[0]

    @staticmethod
    def _agrees(path: str, entry: Entry, crc: int) -> bool:
        """Returns whether a row matches its CRC and has the right types: damage can change the type
        of a column, not only its value."""
        try:
            return isinstance(entry.data, bytes) and row_crc(path, entry) == crc
        except (AttributeError, TypeError, UnicodeError, struct.error):
            return False

    def commit(self, table: NodeTable, changes: Changes) -> None:
        """Commits the changes, which are durable when this returns. Raises StoreUnavailable (not
        done) and OutcomeUnknown (call `reopen`)."""
        connection = self._require()
        gone = [(p,) for p, e in changes.entries.items() if e is None and table.find(p) is not None]
        put = [_row(p, entry) for p, entry in changes.entries.items() if entry is not None]
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM nodes WHERE path = ?", gone)
            connection.executemany(_PUT, put)
            connection.execute("UPDATE meta SET value = ? WHERE name = 'zxid'", (changes.zxid,))
        except sqlite3.Error as error:
            self._roll_back(connection)
            raise self._refusal(error) from error
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_FULL:  # the last frame of the log was not written
                self._roll_back(connection)
                raise self._refusal(error) from error
            self._disconnect()
            raise OutcomeUnknown(
                f"{self.path}: {error}; it is unknown whether the file has the commit"
            ) from error

    def copy_to(self, path: Path) -> None:
        """Copies the content to a new database file without a write-ahead log, and does not sync
        it. Raises StoreUnavailable."""
        connection = self._require()
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            copy = sqlite3.connect(path, isolation_level=None)
            try:
                copy.execute("PRAGMA synchronous=OFF")
                copy.execute("PRAGMA journal_mode=OFF").fetchone()
                connection.backup(copy)
            finally:
                copy.close()
        except OSError as error:
            raise _unavailable(path, error) from error
        except sqlite3.Error as error:
            raise StoreUnavailable(f"cannot copy {self.path} to {path}: {error}") from error

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()  # nothing was committed; `reopen` opens the file again

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def reopen(self) -> None:
        """Opens the file again after an error. Raises StoreUnavailable."""
        self._disconnect()
        self._connect()

    def _require(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreUnavailable(f"{self.path} is not open")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass  # the next connection checks the file

    def close(self) -> None:
        """Closes the file and releases its lock. A second call does nothing."""
        self._disconnect()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _corrupt(self, detail: str) -> StoreCorrupt:
        detail = " ".join(detail.split())
        return StoreCorrupt(
            f"{self.path} is damaged: {detail}. Nothing was changed. Put back a copy of it (with"
            f" its {FILE_NAME}-wal, or without when the copy had none), or move both files away to"
            " begin with an empty tree: topics, configurations and the cluster id are then gone"
            " from it."
        )

    def _refusal(self, error: sqlite3.Error) -> StoreUnavailable:
        code = _code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreInUse(f"{self.path} is locked by another process. Stop it first.")
        if code == sqlite3.SQLITE_FULL:
            return StoreUnavailable(f"{self.path}: {error}. Free some space; nothing was changed.")
        if code in _DAMAGED or code not in _MACHINE:
            return self._corrupt(str(error))
        return StoreUnavailable(f"{self.path}: {error}. Nothing was changed.")
