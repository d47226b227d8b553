"""The messages of the protocol: schemas as text, classes and codecs made from them on first use.

Read on: messages.py (all messages), schema.py (the text), headers.py, api_keys.py, json_form.py;
cext/codec/wire.pyx encodes and decodes the bytes. batches.py and compression.py are the codecs of
the content of a records field. This package does no I/O.
"""

from barnabas.cext.codec.wire import MalformedMessage, UnwritableMessage
from barnabas.cext.codec.wire_struct import Struct
from barnabas.wire.messages import Message, by_name, request, response

__all__ = [
    "MalformedMessage",
    "Message",
    "Struct",
    "UnwritableMessage",
    "by_name",
    "request",
    "response",
]
