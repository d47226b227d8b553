"""Generates docs/settings.md: `python -m barnabas.config.reference > docs/settings.md`."""

from __future__ import annotations

from barnabas.config.settings import Setting, read_table
from barnabas.config.values import allowed_text

TITLES = {"broker": "Broker settings", "topic": "Topic settings", "group": "Group settings"}
HEAD_WITHOUT_EFFECT = "| name | default | meaning | why without effect |\n|---|---|---|---|\n"
INTRODUCTION = """# Settings

`python -m barnabas.config.reference` generates this page from `broker/config/settings.tsv`; change
the table, not this page. Names and types are those of Kafka. Defaults are those of Kafka 4.4 unless
the meaning says otherwise.

- A file has one `name=value` on each line. Later sources win: defaults, file, environment
  (`KAFKA_LOG_DIRS` or `BARNABAS_LOG_DIRS` for `log.dirs`), `--set name=value`. A dynamic setting
  (`barnabas configs alter`, `kafka-configs`) overrides all of these, also after a restart, until it
  is deleted; the start logs each setting that a dynamic one overrides.
- The first tables list the settings that have an effect in this build. The last ones list the
  settings that it accepts without effect, each with the reason.
- Tier **A** settings behave as in Kafka; **B** settings are accepted and reported, with little
  effect.
- **Change**: `live` settings can be altered while the broker runs, for one broker or for all;
  `per broker` settings for one broker only; the others need a restart.
"""


def page() -> str:
    parts = [INTRODUCTION]
    table = read_table()  # read again: a default of the loaded table depends on the user
    for scope, title in TITLES.items():
        parts.append(f"\n## {title}\n\n{_head(scope)}\n")
        parts += [_row(setting) for setting in table[scope].values() if setting.is_effective]
    for scope, title in TITLES.items():
        found = [setting for setting in table[scope].values() if not setting.is_effective]
        if found:
            parts.append(f"\n## {title} without effect\n\n{HEAD_WITHOUT_EFFECT}")
            parts += [_row_without_effect(setting) for setting in found]
    return "".join(parts)


def _head(scope: str) -> str:
    seventh = "change" if scope == "broker" else "follows"
    return (
        f"| name | type | default | allowed | tier | {seventh} | meaning |\n"
        "|---|---|---|---|---|---|---|"
    )


def _row_without_effect(setting: Setting) -> str:
    cells = [f"`{setting.name}`", _default(setting), setting.meaning, setting.why_without_effect]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(setting: Setting) -> str:
    return {None: "none", "": "empty"}.get(setting.default, f"`{setting.default}`")


def _row(setting: Setting) -> str:
    unit = f" {setting.unit}" if setting.unit else ""
    if setting.scope == "broker":
        last = {"read-only": "restart", "per-broker": "per broker", "cluster-wide": "live"}
        seventh = last[setting.mode]
    else:
        names = [s.name for s in setting.synonyms if not s.same_resource]
        seventh = ", ".join(f"`{name}`" for name in names)
    cells = [
        f"`{setting.name}`",
        setting.type.lower(),
        _default(setting),
        allowed_text(setting).replace("|", "\\|") + unit,
        setting.tier,
        seventh,
        setting.meaning.replace("|", "\\|"),
    ]
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
