"""Passwords and inline keys among the dynamic settings of this broker, in the metadata tree.

They are stored encrypted by password.encoder.secret, and are in clear text only in memory. At the
start the broker encrypts a value of password.encoder.old.secret again, with the new secret. Without
a secret no such setting can be altered. The broker does not change the values of other brokers.
Kafka: DynamicBrokerConfig.toPersistentProps, maybeReEncodePasswords.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.protection import base_name
from barnabas.config.settings import BROKER_SETTINGS

if TYPE_CHECKING:
    from barnabas.security.password_encoder import EncoderSettings

SECRET, OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"


def is_password(name: str) -> bool:
    """Returns whether a setting, with or without a listener prefix, is stored encrypted."""
    setting = BROKER_SETTINGS.get(base_name(name))
    return setting is not None and setting.is_sensitive


class Decoded(NamedTuple):
    """`unreadable`: the settings that no secret decrypts. `is_old`: the old secret decrypted
    some."""

    texts: dict[str, str]
    unreadable: list[str]
    is_old: bool


class StoredPasswords:
    """How this broker stores its passwords."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises ConfigError when the settings name an encryption that is not available."""
        self._secret = _given(config, SECRET)
        self._old_secret = _given(config, OLD_SECRET)
        self._encoder_settings = _encoder_settings(config) if self._secret is not None else None

    @property
    def can_store(self) -> bool:
        return self._secret is not None

    def encoded(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Returns the texts to store. A password needs a secret: DynamicConfig.alter has refused it
        otherwise."""
        found = dict(texts)
        for name in filter(is_password, texts):
            from barnabas.security import password_encoder

            assert self._secret is not None and self._encoder_settings is not None
            found[name] = password_encoder.encode(self._secret, texts[name], self._encoder_settings)
        return found

    def decoded(self, stored: Mapping[str, str]) -> Decoded:
        texts = dict(stored)
        unreadable, is_old = [], False
        for name in filter(is_password, stored):
            text = self._opened(self._secret, stored[name])
            if text is None:
                text = self._opened(self._old_secret, stored[name])
                is_old = is_old or text is not None
            if text is None:
                unreadable.append(name)
                del texts[name]
            else:
                texts[name] = text
        return Decoded(texts, unreadable, is_old)

    @staticmethod
    def _opened(secret: str | None, text: str) -> str | None:
        if secret is None:
            return None
        from barnabas.security import password_encoder

        try:
            return password_encoder.decode(secret, text)
        except password_encoder.BadPassword:
            return None


def _given(config: BrokerConfig, name: str) -> str | None:
    value = config.get(name)
    return str(value) if value not in (None, "") else None


def _encoder_settings(config: BrokerConfig) -> EncoderSettings:
    try:
        from barnabas.security.password_encoder import EncoderSettings
    except ImportError:
        raise ConfigError(
            f"{SECRET}: the encryption needs the package cryptography: pip install"
            " 'barnabas[tls]', or remove the setting."
        ) from None
    settings = EncoderSettings(
        key_factory=str(
            config.get("password.encoder.keyfactory.algorithm") or EncoderSettings().key_factory
        ),
        cipher=config.text("password.encoder.cipher.algorithm"),
        key_bits=config.integer("password.encoder.key.length"),
        iterations=config.integer("password.encoder.iterations"),
    )
    if problems := settings.problems():
        raise ConfigError(
            [f"{name}={config.get(name)}: not available. Use {usage}." for name, usage in problems]
        )
    return settings
