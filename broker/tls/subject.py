"""The name of a certificate's subject, as Java writes it: X500Principal.getName(), RFC 2253.

    Name        SEQUENCE of RDN         written from the last to the first, between commas
    RDN         SET of pairs            as they stand, with + between them
    pair        SEQUENCE of OID, value  CN=value

The keywords of RFC 2253 (CN, C, L, ST, STREET, O, OU, DC, UID) are written; a pair of any other
type, emailAddress among them, is its OID and #, followed by its DER in hexadecimal. A value is read
as UTF-8 whatever string type it has, as Java does. tests/tls/vectors has Java's answers. Java:
sun.security.x509.AVA. Next: barnabas.security.certificates.
"""

from __future__ import annotations

import re

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
SEQUENCE, SET, OID = 0x30, 0x31, 6
NAME_BYTES_MAX = 16384
OID_NUMBER_BITS_MAX = 4096
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString
STRINGS = frozenset((12, 19, 20, 22, 27, 30))
# Half a surrogate pair, of which Java makes one replacement character and Python three.
SURROGATE, REPLACEMENT = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?"), "\ufffd".encode()
ESCAPED = frozenset(',=+<>#;"\\')


class BadName(ValueError):
    """The bytes are no DER of a name."""


def subject_name(der: bytes) -> str:
    """The text of a Name in DER. Raises BadName."""
    _expect(len(der) <= NAME_BYTES_MAX)
    [(tag, name, _)] = _parts(der, count=1)
    _expect(tag == SEQUENCE)
    rdns = []
    for tag, rdn, _ in _parts(name):
        _expect(tag == SET)
        rdns.append("+".join(_pair(tag, pair) for tag, pair, _ in _parts(rdn)))
    return ",".join(reversed(rdns))


def _expect(holds: bool) -> None:
    if not holds:
        raise BadName("not a distinguished name in DER")


def _parts(data: bytes, count: int | None = None) -> list[tuple[int, bytes, bytes]]:
    """The elements that follow each other in `data`: tag, content, and all of the element."""
    found, at = [], 0
    while at < len(data):
        _expect(at + 2 <= len(data))
        tag, size, begin = data[at], data[at + 1], at + 2
        if size & 0x80:
            begin += size & 0x7F
            _expect(size != 0x80 and begin <= len(data))
            size = int.from_bytes(data[at + 2 : begin], "big")
        _expect(size <= len(data) - begin)
        found.append((tag, data[begin : begin + size], data[at : begin + size]))
        at = begin + size
    _expect(count is None or len(found) == count)
    return found


def _pair(tag: int, pair: bytes) -> str:
    _expect(tag == SEQUENCE)
    (kind, oid, _), (tag, value, whole) = _parts(pair, count=2)
    _expect(kind == OID)
    dotted = _dotted(oid)
    keyword = KEYWORDS.get(dotted)
    if keyword is None or tag not in STRINGS:
        return f"{keyword or dotted}=#{whole.hex()}"
    text = SURROGATE.sub(REPLACEMENT, value).decode("utf-8", "replace")
    return f"{keyword}={_escaped(text)}"


def _dotted(oid: bytes) -> str:
    _expect(bool(oid) and not oid[-1] & 0x80)
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    _expect(max(numbers).bit_length() <= OID_NUMBER_BITS_MAX)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    text = "".join("\\" + c if c in ESCAPED else c for c in text).replace("\0", "\\00")
    middle = text.strip(" \r")
    if not middle:
        return "".join("\\" + c for c in text)
    before, _, after = text.partition(middle)
    return "".join("\\" + c for c in before) + middle + "".join("\\" + c for c in after)
