"""The messages of the protocol: schemas as text, classes and codecs made from them on first use.

Read on: messages.py (the door), schema.py (the text), headers.py, api_keys.py, json_form.py;
the bytes themselves are cext/codec/wire.pyx. Beside them are the codecs of what a records field
holds: batches.py and compression.py. I/O is elsewhere.
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
