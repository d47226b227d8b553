"""The paths of the console, and what protects them.

    HTML in a name, key or value    autoescape of every value (rendering.py), and a content security
                                    policy without scripts
    forms of other sites (CSRF)     the session's token in each form, the header Origin, cookies
                                    with SameSite=Strict
    a login as somebody else        a token in a cookie and in the form of the login
    DNS rebinding                   without logins, only requests for a loopback name are answered
    guessed passwords               sessions.LoginLimit
    stolen cookies                  HttpOnly, Secure, SameSite=Strict; sessions end (sessions.py)
    frames of other sites           frame-ancestors 'none'

A GET changes nothing. Without logins, and before one, nothing can be changed.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from barnabas import __version__
from barnabas.client import CannotConnect, ClientError
from barnabas.config.listeners import is_loopback
from barnabas.console import brokers, groups, messages, plugins, quotas, topics, transactions
from barnabas.console.gateway import Gateway, WrongPassword
from barnabas.console.rendering import Rendering
from barnabas.console.sessions import TOKEN_BYTES, LoginLimit, Session, Sessions
from barnabas.console.visit import (
    BadParameter,
    Moved,
    NotPermitted,
    OwnBroker,
    Page,
    Visit,
    refusal,
)
from barnabas.errors import (
    BrokerIdNotRegistered,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from barnabas.telemetry.http_server import Answer, Headers, Refused, Request

log = logging.getLogger("barnabas.console")

HTML = "text/html; charset=utf-8"
FIELDS_MAX = 50
USER_CHARS_MAX, PASSWORD_CHARS_MAX = 255, 1024
LOGIN_TOKEN = re.compile("[A-Za-z0-9_-]{43}")
LOGIN_REFUSED = "The broker refuses this login now. Load the page again to log in."
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
SAFE: Headers = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    # With no-referrer, browsers would send forms with `Origin: null`.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
NOT_KEPT = (*SAFE, ("Cache-Control", "no-store"))
KEPT = (*SAFE, ("Cache-Control", "max-age=3600"))

Show = Callable[[Visit], Page]
Change = Callable[[Visit], Moved]

PAGES: dict[str, Show] = {
    "/health": brokers.health,
    "/topics": topics.all_topics,
    "/topic": topics.one_topic,
    "/messages": messages.messages,
    "/groups": groups.all_groups,
    "/share-groups": groups.share_groups,
    "/group": groups.one_group,
    "/transactions": transactions.all_transactions,
    "/transaction": transactions.one_transaction,
    "/quotas": quotas.all_quotas,
    "/plugins": plugins.all_plugins,
    "/brokers": brokers.all_brokers,
    "/broker": brokers.one_broker,
    "/live": brokers.live,
}
CHANGES: dict[str, Change] = {
    "/topics/create": topics.create,
    "/topic/delete": topics.delete,
    "/topic/config": topics.alter,
    "/group/delete": groups.delete,
}
MENU = (
    ("/health", "Health"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/share-groups", "Share groups"),
    ("/transactions", "Transactions"),
    ("/quotas", "Quotas"),
    ("/plugins", "Plugins"),
    ("/brokers", "Brokers"),
    ("/live", "Live"),
)
SECTIONS = {  # a page of one thing: the page in the menu
    "/topic": "/topics",
    "/messages": "/topics",
    "/group": "/groups",
    "/transaction": "/transactions",
    "/broker": "/brokers",
}
FORBIDDEN = (
    TopicAuthorizationFailed,
    GroupAuthorizationFailed,
    ClusterAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    NotPermitted,
)
ABSENT = (
    BrokerIdNotRegistered,
    GroupIdNotFound,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)


class Site:
    """Answers the requests of one console. `now_s`: a monotonic clock."""

    def __init__(
        self, own: OwnBroker, gateway: Gateway, is_open: bool, now_s: Callable[[], float]
    ) -> None:
        self.own, self._gateway = own, gateway
        self.sessions = Sessions(gateway.cluster, now_s)
        self._limit = LoginLimit(now_s)
        self._rendering = Rendering()
        self._is_open = is_open
        self._nobody = Session(None, gateway.cluster, now_s())
        self.cookie = "barnabas-console"  # opening.py adds the port, which cookies do not have

    def close(self) -> None:
        """Ends all sessions."""
        self.sessions.expire(everything=True)
        self._nobody.end()

    def answer(self, request: Request) -> Answer:
        """Answers one request. Raises Refused for one that no page can be shown for."""
        self._check_host(request)
        if request.path == "/style.css":
            return Answer(200, "text/css; charset=utf-8", [self._rendering.style], KEPT)
        if request.method == "POST":
            return self._post(request)
        if request.path == "/favicon.ico":  # browsers ask for it beside every page
            raise Refused(404, "the console has no icon", SAFE)
        if request.path == "/login" and self._gateway.asks_for_login:
            return self._login_page(request, 200, "")
        session = self._session(request)
        if session is None:
            return _go("/login")
        if request.path == "/":
            return _go(MENU[0][0])
        show = PAGES.get(request.path)
        if show is None:
            return self._error(session, 404, "There is no such page.")
        return self._shown(session, request.path, show, _fields(request.query))

    def _check_host(self, request: Request) -> None:
        """Without logins, a page of another site whose name points to this address could read the
        console (DNS rebinding). Raises Refused."""
        if self._gateway.asks_for_login or self._is_open:
            return
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if not is_loopback(host):
            text = (
                "without logins the console is served as http://localhost or http://127.0.0.1 only"
            )
            raise Refused(421, text, SAFE)

    def _session(self, request: Request) -> Session | None:
        if not self._gateway.asks_for_login:
            return self._nobody
        return self.sessions.find(_cookie(request, self.cookie))

    # -- pages ------------------------------------------------------------------------------------

    def _shown(self, session: Session, path: str, show: Show, given: Mapping[str, str]) -> Answer:
        def page(visit: Visit) -> Answer:
            found = show(visit)
            notice, session.notice = session.notice, ""
            values = {"refresh_s": found.refresh_s, "notice": notice} | dict(found.values)
            return self._page(session, 200, found.template, values, path)

        return self._guarded(session, page, given)

    def _guarded(
        self, session: Session, page: Callable[[Visit], Answer], given: Mapping[str, str]
    ) -> Answer:
        """Calls `page`; its errors become pages."""
        try:
            with session.client() as client:
                return page(Visit(self.own, session, client, given))
        except SaslAuthenticationFailed:
            # The user or the password was changed; the session ends with the next request.
            session.end()
            return self._page(
                None, 403, "error.html", {"status": 403, "text": LOGIN_REFUSED}, headers=NOT_KEPT
            )
        except BadParameter as error:
            return self._error(session, 400, str(error))
        except FORBIDDEN as error:
            return self._error(session, 403, refusal(error))
        except ABSENT as error:
            return self._error(session, 404, refusal(error))
        except KafkaError as error:
            return self._error(session, 400, refusal(error))
        except ClientError as error:
            return self._error(session, 502, refusal(error))

    def _page(
        self,
        session: Session | None,
        status: int,
        template: str,
        values: Mapping[str, Any],
        path: str = "",
        headers: Headers = NOT_KEPT,
    ) -> Answer:
        common = {
            "menu": MENU if session is not None else (),
            "path": path,
            "section": SECTIONS.get(path, path),
            "user": session.user if session is not None else "",
            "token": session.token if session is not None else "",
            "node_id": self.own.node_id,
            "version": __version__,
            "refresh_s": 0,
            "notice": "",
        }
        text = self._rendering.page(template, common | dict(values))
        return Answer(status, HTML, [text], headers)

    def _error(self, session: Session, status: int, text: str) -> Answer:
        return self._page(session, status, "error.html", {"status": status, "text": text})

    # -- logins and changes -----------------------------------------------------------------------

    def _post(self, request: Request) -> Answer:
        origin = urlsplit(request.headers.get("origin", "")).netloc
        if not origin or origin != request.headers.get("host", ""):
            raise Refused(403, "the form comes from another site (Origin)", SAFE)
        if not self._gateway.asks_for_login:
            raise Refused(403, "without logins the console changes nothing", SAFE)
        given = _fields(request.body.decode("utf-8", "replace"))
        if request.path == "/login":
            return self._log_in(request, given)
        session = self._session(request)
        if session is None:
            return _go("/login")
        if not hmac.compare_digest(given.get("token", "").encode(), session.token.encode()):
            return self._error(session, 403, "The form is too old. Load the page again.")
        if request.path == "/logout":
            self.sessions.end(_cookie(request, self.cookie))
            return _go("/login", self._set(self.cookie, "", 0))
        change = CHANGES.get(request.path)
        if change is None:
            return self._error(session, 404, "There is no such page.")

        def page(visit: Visit) -> Answer:
            moved = change(visit)
            session.notice = moved.notice
            log.info("%s of %s: %s", session.user[:60], request.host, moved.notice)
            return _go(moved.path)

        return self._guarded(session, page, given)

    def _login_page(
        self, request: Request, status: int, problem: str, more: Headers = ()
    ) -> Answer:
        """A form whose token is also in a cookie. Several forms of one browser have the same."""
        token = _cookie(request, f"{self.cookie}-login")
        if not LOGIN_TOKEN.fullmatch(token):
            token = secrets.token_urlsafe(TOKEN_BYTES)
        headers = (*NOT_KEPT, ("Set-Cookie", self._set(f"{self.cookie}-login", token)), *more)
        values = {"login_token": token, "problem": problem}
        return self._page(None, status, "login.html", values, headers=headers)

    def _log_in(self, request: Request, given: Mapping[str, str]) -> Answer:
        token = _cookie(request, f"{self.cookie}-login")
        if not token or not hmac.compare_digest(given.get("token", "").encode(), token.encode()):
            return self._login_page(
                request, 403, "The form is too old, or cookies are off. Try again."
            )
        user, password = given.get("user", ""), given.get("password", "")
        if not 0 < len(user) <= USER_CHARS_MAX or not 0 < len(password) <= PASSWORD_CHARS_MAX:
            return self._login_page(request, 403, "Give a user and a password.")
        wait_s = self._limit.begin(request.host)
        if wait_s:
            text = f"Too many logins have failed. Try again in {wait_s} seconds."
            return self._login_page(request, 429, text, (("Retry-After", str(wait_s)),))
        try:
            login, client = self._gateway.log_in(user, password)
        except WrongPassword:
            log.warning("%s: the login of %r failed", request.host, user[:60])
            return self._login_page(
                request, 403, "There is no such user, or the password is wrong."
            )
        except ClientError as error:
            if isinstance(error, CannotConnect):
                self._limit.succeeded(request.host)  # says nothing about the password
            return self._login_page(request, 502, refusal(error))
        self._limit.succeeded(request.host)
        self.sessions.end(_cookie(request, self.cookie))
        cookie = self.sessions.begin(login, client)
        log.info("%s: %r logged in", request.host, user[:60])
        return _go("/", self._set(self.cookie, cookie))

    @staticmethod
    def _set(name: str, value: str, age_s: int | None = None) -> str:
        age = "" if age_s is None else f"; Max-Age={age_s}"
        return f"{name}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{age}"


def _go(path: str, cookie: str = "") -> Answer:
    headers: Headers = (*NOT_KEPT, ("Location", path))
    return Answer(303, HTML, [], (*headers, ("Set-Cookie", cookie)) if cookie else headers)


def _cookie(request: Request, name: str) -> str:
    for part in request.headers.get("cookie", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""


def _fields(text: str) -> dict[str, str]:
    """Returns the parameters of a query or a form; of several with one name, the last. Raises
    Refused."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        raise Refused(400, f"at most {FIELDS_MAX} parameters", SAFE) from None
