"""The settings of authorization, and checks that refuse a start.

    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
    super.users=User:admin;User:CN=ops,O=Example
    allow.everyone.if.no.acl.found=false
    principal.builder.class=spiffe

The broker accepts both authorizers of Kafka, and they mean the same here: their ACLs are alike. A
plugin may take the place of a class; its name has no dot. authorizer.class.name can name a plugin
with the hook authorize, which decides before the ACLs; principal.builder.class one with the hook
build_principal; client.quota.callback.class one with the hook client_quota. A setting that would
protect nothing stops the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.settings import ConfigError

AUTHORIZER, SUPER_USERS = "authorizer.class.name", "super.users"
BUILDER, QUOTAS = "principal.builder.class", "client.quota.callback.class"
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)


def is_fulfilled(name: str, value: str | None) -> bool:
    """Returns whether this build does what the setting requests."""
    if name == AUTHORIZER:
        return value in AUTHORIZERS or plugin_of(value) is not None
    return name == SUPER_USERS or (name in (BUILDER, QUOTAS) and plugin_of(value) is not None)


def plugin_of(value: object) -> str | None:
    """Returns the plugin that a setting names in place of a class; None if it names a class or
    nothing."""
    return value if isinstance(value, str) and value and "." not in value else None


def super_users(values: Mapping[str, str]) -> frozenset[str]:
    """Returns the principals of super.users, which semicolons separate. Raises ConfigError."""
    found = {part.strip() for part in values.get(SUPER_USERS, "").split(";")} - {""}
    for principal in found:
        kind, colon, _name = principal.partition(":")
        if not (kind and colon):
            raise ConfigError(
                f"{SUPER_USERS}: {principal[:60]!r} is not a principal. Write TYPE:NAME, for"
                " example User:admin, and separate principals by semicolons."
            )
    return frozenset(found)


def access_problems(values: Mapping[str, str]) -> list[str]:
    """Returns the errors in the settings of authorization: super.users without an authorizer, or a
    wrong principal."""
    try:
        names = super_users(values)
    except ConfigError as error:
        return error.problems
    if names and not values.get(AUTHORIZER):
        return [
            f"{SUPER_USERS} is set, but {AUTHORIZER} is not: without an authorizer every client may"
            f" send every request. Set {AUTHORIZER}={AUTHORIZERS[0]}, or remove {SUPER_USERS}."
        ]
    return []
