"""Uuids as Kafka prints them: 16 bytes as 22 characters of base64url, without padding."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache

UUID_BYTES = 16
# Metadata has the ids of all topics that it lists: one answer may have thousands.
UUIDS_KEPT = 16384
TEXT_LETTERS = 22


@lru_cache(maxsize=UUIDS_KEPT)
def uuid_text(raw: bytes) -> str:
    """Returns an id of 16 bytes as 22 characters, as Kafka's Uuid.toString does."""
    assert len(raw) == UUID_BYTES, "a uuid has 16 bytes"
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


@lru_cache(maxsize=UUIDS_KEPT)
def uuid_bytes(text: str) -> bytes:
    """Returns the 16 bytes of an id. Raises ValueError, also when the last bits of the text are not
    those of any uuid."""
    if len(text) == TEXT_LETTERS and text.isascii():
        raw = urlsafe_b64decode(text + "==")  # skips letters outside the alphabet
        if len(raw) == UUID_BYTES and uuid_text(raw) == text:
            return raw
    raise ValueError(f"{text[:60]!r} is not an id of 22 base64url characters")
