"""Who is logged in at the console, and how often logins may fail.

A session is found by the SHA-256 of its cookie, so that memory and time of a look-up tell nothing
of the cookie. It keeps its user's password in memory, because the console logs in again at brokers
when a connection has ended. All sessions end with the process.

| limit | value |
|---|---|
| SESSIONS_MAX | sessions at once; one more ends the one that was not used for the longest time |
| IDLE_S_MAX, AGE_S_MAX | seconds without a request, and since the login |
| CLIENTS_KEPT_MAX | connected clients that a session keeps for its next pages |
| FAILURES_MAX, ALL_FAILURES_MAX | failed logins of one address, and of all, in WINDOW_S seconds |
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.client import Cluster
from barnabas.client.security import Sasl

SESSIONS_MAX = 100
IDLE_S_MAX = 30 * 60.0
AGE_S_MAX = 8 * 3600.0
CLIENTS_KEPT_MAX = 2
FAILURES_MAX, ALL_FAILURES_MAX, WINDOW_S = 5, 100, 60.0
ADDRESSES_MAX = 1000
TOKEN_BYTES = 32

MakeClient = Callable[[Sasl | None], Cluster]


class Session:
    """One user of the console. `login` None: nobody has logged in, and nothing may be changed.
    `token`: the CSRF token of its forms; `notice`: a line for the next page."""

    def __init__(self, login: Sasl | None, make: MakeClient, began_s: float) -> None:
        self.login, self._make = login, make
        self.began_s = self.used_s = began_s
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self.notice = ""
        self._lock = threading.Lock()
        self._kept: list[Cluster] = []
        self.has_ended = False

    @property
    def user(self) -> str:
        return "" if self.login is None else self.login.user

    @contextmanager
    def client(self) -> Iterator[Cluster]:
        """A client with the login of the session, for one page."""
        with self._lock:
            found = self._kept.pop() if self._kept else None
        client = found or self._make(self.login)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self.keep(client)

    def keep(self, client: Cluster) -> None:
        """Keeps a client for the next page, or closes it."""
        with self._lock:
            is_kept = len(self._kept) < CLIENTS_KEPT_MAX and not self.has_ended
            if is_kept:
                self._kept.append(client)
        if not is_kept:
            client.close()

    def end(self) -> None:
        """Closes the clients of the session."""
        with self._lock:
            self.has_ended, kept = True, self._kept
            self._kept = []
        for client in kept:
            client.close()


def _name_of(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()


class Sessions:
    """The sessions of one console. `now_s`: a monotonic clock."""

    def __init__(self, make: MakeClient, now_s: Callable[[], float]) -> None:
        self._make, self._now_s = make, now_s
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, Session] = OrderedDict()  # the one used last at the end

    def begin(self, login: Sasl, client: Cluster) -> str:
        """Begins a session of a user whose password is right. Returns its cookie."""
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        session = Session(login, self._make, self._now_s())
        session.keep(client)
        ended = []
        with self._lock:
            self._found[_name_of(cookie)] = session
            while len(self._found) > SESSIONS_MAX:
                ended.append(self._found.popitem(last=False)[1])
        for one in ended:
            one.end()
        return cookie

    def find(self, cookie: str) -> Session | None:
        """Returns the session of a cookie; None when there is none, or it has expired."""
        now_s = self._now_s()
        with self._lock:
            session = self._found.get(_name_of(cookie))
            if session is None or self._is_over(session, now_s):
                return None
            session.used_s = now_s
            self._found.move_to_end(_name_of(cookie))
            return session

    def end(self, cookie: str) -> None:
        """Ends a session; does nothing when there is none."""
        with self._lock:
            session = self._found.pop(_name_of(cookie), None)
        if session is not None:
            session.end()

    def expire(self, everything: bool = False) -> None:
        """Ends the sessions that have expired, or all."""
        now_s = self._now_s()
        with self._lock:
            over = [
                name
                for name, session in self._found.items()
                if everything or self._is_over(session, now_s)
            ]
            ended = [self._found.pop(name) for name in over]
        for session in ended:
            session.end()

    @staticmethod
    def _is_over(session: Session, now_s: float) -> bool:
        is_idle = now_s - session.used_s > IDLE_S_MAX
        return session.has_ended or is_idle or now_s - session.began_s > AGE_S_MAX


class LoginLimit:
    """How many logins may fail. A login counts as failed from its begin on, so that many at once
    are limited too; `succeeded` takes it back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._all: deque[float] = deque()
        self._by_host: OrderedDict[str, deque[float]] = OrderedDict()

    def begin(self, host: str) -> int:
        """Begins a login from an address. Returns 0, or the seconds to wait when too many have
        failed."""
        now_s = self._now_s()
        with self._lock:
            own = self._by_host.setdefault(host, deque())
            self._by_host.move_to_end(host)
            if len(self._by_host) > ADDRESSES_MAX:
                self._by_host.popitem(last=False)
            for times, most in ((own, FAILURES_MAX), (self._all, ALL_FAILURES_MAX)):
                while times and now_s - times[0] >= WINDOW_S:
                    times.popleft()
                if len(times) >= most:
                    return max(int(WINDOW_S - (now_s - times[0])) + 1, 1)
            own.append(now_s)
            self._all.append(now_s)
            return 0

    def succeeded(self, host: str) -> None:
        with self._lock:
            for times in (self._by_host.get(host), self._all):
                if times:
                    times.pop()
