"""docs/settings.md from the table: `python -m barnabas.config.reference > docs/settings.md`."""

from __future__ import annotations

from barnabas.config.settings import Setting, read_table
from barnabas.config.values import allowed_text

TITLES = {"broker": "Broker settings", "topic": "Topic settings", "group": "Group settings"}
INTRODUCTION = """# Settings

Made from `broker/config/settings.tsv` by `python -m barnabas.config.reference`; change the table,
not this page. Names and types are Kafka's, defaults those of Kafka 4.4 except where the meaning
says otherwise.

- A file has one `name=value` a line. Later sources win: defaults, file, environment
  (`KAFKA_LOG_DIRS` or `BARNABAS_LOG_DIRS` for `log.dirs`), `--set name=value`. A setting that was
  altered while a broker ran (`barnabas configs alter`, `kafka-configs`) beats all of these, also
  after a restart, until it is deleted; the start logs each that such an alteration beats.
- Tier **A** behaves as in Kafka, **B** is accepted and reported with little or no effect; settings
  without a tier are accepted and have no effect.
- **Works**: whether this build does what the setting says. Where it cannot, the last column says
  why; where it says nothing, the setting waits for a part that is not built yet.
- **Change**: `live` settings can be altered while the broker runs, for one broker or for all;
  `per broker` ones for one broker only; the others need a restart.
"""


def page() -> str:
    parts = [INTRODUCTION]
    for scope, title in TITLES.items():
        parts.append(f"\n## {title}\n\n{_head(scope)}\n")
        # Of the file: in the table in force a default depends on the user.
        parts += [_row(setting) for setting in read_table()[scope].values()]
    return "".join(parts)


def _head(scope: str) -> str:
    if scope == "broker":
        return (
            "| name | type | default | allowed | tier | works | change | meaning |\n"
            "|---|---|---|---|---|---|---|---|"
        )
    return (
        "| name | type | default | allowed | tier | works | follows | meaning |\n"
        "|---|---|---|---|---|---|---|---|"
    )


def _row(setting: Setting) -> str:
    default = {None: "none", "": "empty"}.get(setting.default, f"`{setting.default}`")
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
        default,
        allowed_text(setting).replace("|", "\\|") + unit,
        setting.tier,
        "yes" if setting.is_effective else "no",
        seventh,
        _meaning(setting).replace("|", "\\|"),
    ]
    return "| " + " | ".join(cells) + " |\n"


def _meaning(setting: Setting) -> str:
    why = setting.why_without_effect
    return f"{setting.meaning}. No effect: {why}" if why else setting.meaning


if __name__ == "__main__":
    print(page(), end="")
