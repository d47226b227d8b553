"""Refuses batches with a value that contains one of some words.

plugin.no-secrets.words=password,token
produce.interceptors=no-secrets        (of the topic)
"""

from barnabas import hookimpl
from barnabas.hooks import Option, Reject


class NoSecrets:
    """Refuses values that contain a secret."""

    OPTIONS = {"words": Option("list", "what no value may contain")}

    def __init__(self, options):
        self.words = [word.encode() for word in options["words"]]

    @hookimpl
    def intercept_produce(self, batch):
        for index, record in enumerate(batch.records):
            if any(word in (record.value or b"") for word in self.words):
                return Reject(f"record {index} contains a secret")
        return None
