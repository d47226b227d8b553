"""Generates docs/security/settings.md: `python -m barnabas.config.security_reference > FILE`.

The page lists every setting of the broker that protects something, with its default and its effect,
by what it protects: the table of docs/settings.md without types and tiers.
"""

from __future__ import annotations

from barnabas.config.settings import Setting, read_table

# A name, or a prefix of names if it ends with a dot.
TOPICS = {
    "Listeners": (
        "listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "security.",
        "allow.unauthenticated.remote",
    ),
    "TLS": ("ssl.", "max.tls.handshakes"),
    "Logins": (
        "sasl.",
        "connections.max.reauth.ms",
        "connection.failed.authentication.delay.ms",
        "delegation.token.",
        "principal.builder.class",
    ),
    "Access rules": (
        "authorizer.class.name",
        "super.users",
        "allow.everyone.if.no.acl.found",
        "early.start.listeners",
    ),
    "Limits of clients": (
        "client.quota.callback.class",
        "connections.max.idle.ms",
        "controller.quota.",
        "max.connection.",
        "max.connections",
        "max.connections.",
        "queued.max.request.bytes",
        "quota.",
        "request.receive.timeout.ms",
        "response.send.timeout.ms",
        "socket.request.max.bytes",
        "max.decompressed.bytes",
    ),
    "Metrics page": ("metrics.host", "metrics.port", "metrics.ssl.", "metrics.credentials."),
    "Console": ("console.host", "console.listener.name", "console.ssl."),
    "ZooKeeper": ("zookeeper.auth", "zookeeper.set.acl", "zookeeper.ssl."),
    "Stored passwords": ("password.encoder.",),
}
INTRODUCTION = """# Security settings

`python -m barnabas.config.security_reference` generates this page from
`broker/config/settings.tsv`. A setting of a listener may have `listener.name.NAME.` in front. The
page of [all settings](../settings.md) has types, allowed values and how they change.
"""


def topic_of(name: str) -> str | None:
    """Returns what a setting protects; None if it protects nothing."""
    for topic, names in TOPICS.items():
        if any(name.startswith(n) if n.endswith(".") else name == n for n in names):
            return topic
    return None


def page() -> str:
    parts = [INTRODUCTION]
    settings = list(read_table()["broker"].values())
    for topic in TOPICS:
        parts.append(f"\n## {topic}\n\n| name | default | effect |\n|---|---|---|\n")
        parts += [_row(setting) for setting in settings if topic_of(setting.name) == topic]
    return "".join(parts)


def _row(setting: Setting) -> str:
    default = {None: "none", "": "empty"}.get(setting.default, f"`{setting.default}`")
    effect = setting.meaning
    if not setting.is_effective:
        effect += f" (no effect: {setting.why_without_effect})"
    cells = (f"`{setting.name}`", default, effect)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
