"""The console in Debian's Chromium: login, cookies, keyboard, narrow screen, light and dark.

With BARNABAS_PICTURES=DIR it also writes the pictures of docs/console.md there.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
from console.console_broker import ADMIN, PASSWORD, ruled_broker
from long_form import pick

from barnabas.client.groups import commit_offsets
from barnabas.client.producer import Producer

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs Debian's packages chromium and chromium-driver",
    ),
    pytest.mark.slow,
    pytest.mark.takes(seconds=15),
]
PAGES = (
    "/health",
    "/topics",
    "/topic?name=orders",
    "/messages?topic=orders&decoder=json",
    "/groups",
    "/group?id=billing",
    "/share-groups",
    "/transactions",
    "/quotas",
    "/plugins",
    "/brokers",
    "/broker",
    "/live",
)
FEW = ("/health", "/topic?name=orders", "/messages?topic=orders&decoder=json")
SIZES = {"desktop": (1280, 900), "narrow": (390, 800)}
# Contrast of WCAG 2 between text and what is behind it, for every element with text of its own.
CONTRAST = """
const light = c => { const v = c.match(/[\\d.]+/g).map(Number).slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2] };
const behind = e => { for (; e; e = e.parentElement) {
  const b = getComputedStyle(e).backgroundColor;
  if (!b.endsWith(', 0)')) return b } return 'rgb(255, 255, 255)' };
const bad = [];
for (const e of document.body.querySelectorAll('*')) {
  const has_text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (!has_text || !e.checkVisibility()) continue;
  const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(e.outerHTML.slice(0, 90));
}
return bad"""


@pytest.fixture(scope="module")
def watched():
    with ruled_broker(**{"plugins": "audit"}) as found:
        with found.client() as cluster:
            for name in ("orders", "payments", "clicks"):
                cluster.topic(name, create=True)
            with Producer(cluster, "orders") as producer:
                for number in range(300):
                    order = {"order": number, "customer": "Łukasz & Söhne", "total": number * 1.5}
                    producer.send(json.dumps(order).encode(), key=f"order-{number}".encode())
            commit_offsets(cluster, "billing", {"orders": {0: 120}})
        for number in range(3):
            found.console.look()
            order = json.dumps({"order": 300 + number, "customer": "Ada", "total": 7.5})
            found.produce("orders", *[(f"order-{number}".encode(), order.encode())] * 40)
        found.console.look()
        yield found


@pytest.fixture(scope="module")
def chromium():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def browser(chromium, watched):
    from selenium.webdriver.common.by import By

    chromium.get(watched.console.address)
    assert chromium.switch_to.active_element.get_attribute("name") == "user"  # autofocus
    chromium.switch_to.active_element.send_keys(ADMIN)
    chromium.find_element(By.NAME, "password").send_keys(PASSWORD + "\n")
    assert chromium.title.startswith("Health"), chromium.page_source
    return chromium


def look(browser, size, scheme):
    width, height = SIZES[size]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_fit_and_can_be_read(browser, watched, size, scheme):
    look(browser, size, scheme)
    folder = os.environ.get("BARNABAS_PICTURES")
    is_first = (size, scheme) == ("desktop", "light")
    for path in PAGES if is_first else pick(short=FEW, long=PAGES):
        browser.get(watched.console.address + path)
        assert browser.find_elements("css selector", "h1"), path
        assert "chrome-error" not in browser.current_url
        assert browser.execute_script(CONTRAST) == [], path
        wide = "return document.documentElement.scrollWidth > innerWidth"
        assert not browser.execute_script(wide), path
        if folder:
            name = path.partition("?")[0].strip("/")
            browser.save_screenshot(str(Path(folder) / f"console-{name}-{size}-{scheme}.png"))
    said = [row["message"] for row in browser.get_log("browser")]
    assert not [row for row in said if "Content Security Policy" in row or "SEVERE" in row], said


def test_the_keyboard_reaches_everything(browser, watched):
    from selenium.webdriver.common.keys import Keys

    look(browser, "desktop", "light")
    browser.get(watched.console.address + "/topics")

    def focused():
        return browser.switch_to.active_element

    def press(key):
        browser.switch_to.active_element.send_keys(key)

    press(Keys.TAB)
    assert focused().text == "Skip to the page"
    assert focused().location["x"] >= 0  # it comes into view
    press(Keys.ENTER)
    assert focused().tag_name == "main"
    seen = []
    for _ in range(30):
        press(Keys.TAB)
        outline = browser.execute_script(
            "return getComputedStyle(document.activeElement).outlineStyle"
        )
        seen.append(focused().text or focused().get_attribute("name") or focused().tag_name)
        assert outline != "none" or focused().tag_name == "body", seen
        if seen[-1] == "Create a topic":
            break
    assert {"find", "Find", "orders", "payments"} <= set(seen)
    press(Keys.ENTER)  # opens the form
    press(Keys.TAB)
    focused().send_keys("typed", Keys.ENTER)
    assert browser.title.startswith("Topic typed")
    assert "Topic typed was created." in browser.find_element("css selector", ".notice").text


def test_scripts_have_no_access_to_cookies_and_do_not_run(browser, watched):
    evil = b"<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    watched.produce("evil", (evil, evil))
    browser.get(watched.console.address + "/messages?topic=evil&from=oldest")
    assert browser.title.startswith("Messages of evil")
    assert evil.decode() in browser.find_element("css selector", "pre").text
    assert browser.execute_script("return document.cookie") == ""
    cookies = {row["name"]: row for row in browser.get_cookies()}
    assert all(row["secure"] and row["httpOnly"] for row in cookies.values())
    assert all(row["sameSite"] == "Strict" for row in cookies.values())


def test_a_logout_in_the_browser(watched, chromium, browser):
    browser.get(watched.console.address + "/health")
    browser.find_element("css selector", ".who button").click()
    assert browser.title.startswith("Log in")
    browser.get(watched.console.address + "/topics")
    assert browser.title.startswith("Log in")
