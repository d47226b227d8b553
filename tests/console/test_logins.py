"""Logins of the console: users of the broker, cookies, CSRF tokens, limits."""

import hashlib

import pytest
from console.console_broker import ADMIN, ALICE, PASSWORD, ruled_broker

from barnabas.client.scram_users import NewCredential, store_credentials
from barnabas.client.security import Sasl
from barnabas.console import sessions
from barnabas.console.sessions import LoginLimit, Sessions

PATHS = ("/", "/health", "/topics", "/topic?name=x", "/messages?topic=x", "/nothing")
CHANGES = ("/topics/create", "/topic/delete", "/topic/config", "/group/delete")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_needs_a_login(ruled, path):
    reply = ruled.browser().get(path)
    assert (reply.status, reply.headers["Location"], reply.text) == (303, "/login", "")


@pytest.mark.parametrize("user", [ADMIN, ALICE])
def test_a_user_of_the_broker_logs_in(ruled, user):
    browser = ruled.browser()
    reply = browser.log_in(user)
    assert (reply.status, reply.headers["Location"]) == (303, "/")
    assert user in browser.get("/topics").words


def set_password(cluster, user, password):
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b"saltsalt", 4096)
    store_credentials(cluster, [NewCredential(user, 1, 4096, b"saltsalt", salted)])


def test_a_scram_user_logs_in(ruled):
    with ruled.client() as cluster:
        set_password(cluster, "carol", "of carol")
    browser = ruled.browser()
    assert browser.log_in("carol", "of carol").status == 303
    assert "carol" in browser.get("/topics").words


def test_cookies_are_for_this_site_over_https_only(ruled):
    browser = ruled.browser()
    lines = browser.get("/login").headers.get_all("Set-Cookie")
    lines += browser.log_in().headers.get_all("Set-Cookie")
    for line in lines:
        assert line.endswith("; Path=/; Secure; HttpOnly; SameSite=Strict"), line
    names = {line.partition("=")[0] for line in lines}
    port = ruled.console.address.rpartition(":")[2]
    assert names == {f"barnabas-console-{port}", f"barnabas-console-{port}-login"}


@pytest.mark.parametrize(
    ("user", "password"), [(ADMIN, "wrong"), ("nobody", PASSWORD), ("", ""), (ADMIN, "x" * 2000)]
)
def test_a_wrong_password_is_refused(user, password):
    with ruled_broker() as watched:
        browser = watched.browser()
        assert browser.log_in(user, password).status == 403
        assert browser.get("/topics").status == 303


def test_failed_logins_of_an_address_are_limited():
    with ruled_broker() as watched:
        browser = watched.browser()
        for _ in range(sessions.FAILURES_MAX):
            assert browser.log_in(ADMIN, "wrong").status == 403
        reply = browser.log_in(ADMIN, PASSWORD)
        assert reply.status == 429 and 1 <= int(reply.headers["Retry-After"]) <= 61
        assert browser.get("/topics").status == 303


def test_the_limit_ends_with_its_window():
    now_s = 0.0
    limit = LoginLimit(lambda: now_s)
    for _ in range(sessions.FAILURES_MAX):
        assert limit.begin("a") == 0
    assert limit.begin("a") == 61 and limit.begin("b") == 0
    now_s = 60.0
    assert limit.begin("a") == 0


def test_logins_that_succeed_do_not_count():
    limit = LoginLimit(lambda: 0.0)
    for _ in range(3 * sessions.ALL_FAILURES_MAX):
        assert limit.begin("a") == 0
        limit.succeeded("a")


def test_all_addresses_together_are_limited_and_few_are_kept():
    limit = LoginLimit(lambda: 0.0)
    assert [limit.begin(str(i)) for i in range(sessions.ALL_FAILURES_MAX)] == [0] * 100
    assert limit.begin("another") > 0
    for i in range(3 * sessions.ADDRESSES_MAX):
        limit.begin(str(i))
    assert len(limit._by_host) <= sessions.ADDRESSES_MAX


class Client:
    def __init__(self):
        self.is_closed = False

    def close(self):
        self.is_closed = True


def some_sessions():
    clock = [0.0]
    return Sessions(lambda _: Client(), lambda: clock[0]), clock


def test_sessions_end_when_they_are_idle_or_old():
    found, clock = some_sessions()
    client = Client()
    idle, used = (
        found.begin(Sasl("PLAIN", "a", "p"), client),
        found.begin(Sasl("PLAIN", "b", "p"), Client()),
    )
    while clock[0] < sessions.AGE_S_MAX - 1000:
        clock[0] += 1000
        assert found.find(used) is not None
    assert found.find(idle) is None
    found.expire()
    assert client.is_closed
    clock[0] += 1001
    assert found.find(used) is None


def test_one_session_too_many_ends_the_one_unused_for_longest():
    found, _ = some_sessions()
    cookies = [found.begin(Sasl("PLAIN", "a", "p"), Client()) for _ in range(sessions.SESSIONS_MAX)]
    assert found.find(cookies[0]) is not None
    found.begin(Sasl("PLAIN", "a", "p"), Client())
    assert found.find(cookies[0]) is not None and found.find(cookies[1]) is None


def test_a_logout_ends_the_session(ruled):
    browser = ruled.logged_in()
    kept = dict(browser.cookies)
    token = browser.get("/topics").token
    assert browser.post("/logout", {"token": token}).headers["Location"] == "/login"
    browser.cookies = kept
    assert browser.get("/topics").status == 303


@pytest.mark.parametrize("path", [*CHANGES, "/logout"])
def test_a_form_without_the_token_of_the_session_changes_nothing(ruled, path):
    ruled.produce("kept", (None, b"1"))
    browser, other = ruled.logged_in(), ruled.logged_in()
    form = {"name": "kept", "confirmed": "kept", "id": "g", "key": "retention.ms", "value": "1"}
    for token in ("", "x", other.get("/topics").token):
        assert browser.post(path, form | {"token": token}).status == 403
    assert browser.get("/topic?name=kept").status == 200


@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://127.0.0.1"])
def test_a_form_of_another_site_is_refused(ruled, origin):
    browser = ruled.logged_in()
    form = {"token": browser.get("/topics").token, "name": "made-elsewhere"}
    assert browser.post("/topics/create", form, Origin=origin).status == 403
    assert browser.get("/topic?name=made-elsewhere").status == 404


def test_a_login_needs_the_token_of_its_form(ruled):
    browser = ruled.browser()
    browser.get("/login")
    form = {"user": ADMIN, "password": PASSWORD}
    assert browser.post("/login", form | {"token": "x"}).status == 403
    browser.cookies.clear()
    assert browser.post("/login", form | {"token": ""}).status == 403
    assert browser.get("/topics").status == 303


def test_another_form_does_not_spoil_the_first(ruled):
    """A second tab, and the request for an icon that every browser sends beside a page."""
    browser = ruled.browser()
    form = {"token": browser.get("/login").token, "user": ADMIN, "password": PASSWORD}
    assert browser.get("/favicon.ico").status == 404
    browser.get("/topics")
    browser.get("/login")
    assert browser.post("/login", form).status == 303


def test_no_password_is_logged_or_shown(ruled, caplog):
    caplog.set_level("DEBUG")
    browser = ruled.browser()
    browser.log_in(ADMIN, "wrong but secret")
    browser.log_in()
    browser.get("/topics")
    assert "wrong but secret" not in caplog.text and PASSWORD not in caplog.text


def test_a_changed_password_ends_the_session(ruled):
    with ruled.client() as cluster:
        set_password(cluster, "dave", "first")
        browser = ruled.browser()
        assert browser.log_in("dave", "first").status == 303
        set_password(cluster, "dave", "second")
    assert browser.get("/topics").status == 200  # on a connection that was logged in before
    for session in ruled.console.site.sessions._found.values():
        for client in session._kept:
            client.close()
    assert browser.get("/topics").status == 403
    assert browser.get("/topics").status == 303
