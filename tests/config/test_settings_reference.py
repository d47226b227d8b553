from pathlib import Path

from barnabas.config import security_reference
from barnabas.config.reference import page
from barnabas.config.settings import settings_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
SECURITY_PAGE = PAGE.parent / "security" / "settings.md"
# Parts of names by which a new setting of security is seen to lack its topic.
TELLING = ("ssl.", "sasl.", "authorizer", "password", "credential", "principal", "unauthenticated")


def test_the_page_is_current():
    """If this fails, run `python -m barnabas.config.reference > docs/settings.md`."""
    assert PAGE.read_text() == page()


def test_every_setting_is_on_the_page():
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == sum(len(settings_of(s)) for s in ("broker", "topic", "group"))
    assert {row.replace("\\|", "").count("|") for row in rows} == {8, 5}


def test_settings_without_effect_stand_apart():
    working, without_effect = page().split(" without effect\n", 1)
    for scope in ("broker", "topic", "group"):
        for setting in settings_of(scope).values():
            there = working if setting.is_effective else without_effect
            assert f"\n| `{setting.name}` |" in there, setting.name


def test_the_page_of_security_settings_is_current():
    """If this fails: `python -m barnabas.config.security_reference > docs/security/settings.md`."""
    assert SECURITY_PAGE.read_text() == security_reference.page()


def test_every_setting_of_security_has_a_topic():
    without = [
        name
        for name, setting in settings_of("broker").items()
        if (setting.is_sensitive or any(part in name for part in TELLING))
        and security_reference.topic_of(name) is None
    ]
    assert without == []
