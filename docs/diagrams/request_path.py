#!/usr/bin/env python3
"""Draws request_path.svg, the way of a request through a broker, beside this file.

Boxes and arrows stand below as rows; tests/cli/test_docs.py compares the committed picture with
what this script writes.
"""

from pathlib import Path
from xml.sax.saxutils import escape

OUT = Path(__file__).with_suffix(".svg")
WIDTH, HEIGHT, BOX_HEIGHT, LINE_HEIGHT = 980, 620, 58, 17
NATIVE, PYTHON, OUTSIDE = "#e3eefb", "#fdf1dc", "#eeeeee"

# name: x, y of the upper left corner, width, colour, lines of text
BOXES = {
    "client": (20, 110, 130, OUTSIDE, ("client", "any Kafka client")),
    "reactor": (200, 110, 170, NATIVE, ("network/reactor", "epoll, timers, limits")),
    "connection": (420, 110, 190, NATIVE, ("network/connection", "frames, header, order")),
    "produce": (660, 30, 290, NATIVE, ("produce/produce", "0: parse, check the batch, append")),
    "fetch": (660, 110, 290, NATIVE, ("fetch/fetch", "1: sessions, read, sendfile slices")),
    "offsets": (660, 190, 290, NATIVE, ("coordinator/", "8, 24-26, 28: check, append, wait")),
    "queue": (420, 290, 190, NATIVE, ("network/request_queue", "bounded; response_cache first")),
    "handlers": (420, 390, 190, PYTHON, ("request handlers", "api/kNN, one file an API")),
    "coordinators": (170, 390, 200, PYTHON, ("coordinator/", "groups, transactions, share")),
    "controller": (170, 490, 200, PYTHON, ("controller, metadata", "topics, settings, the tree")),
    "storage": (420, 490, 190, PYTHON, ("storage, server", "open, recover, retention")),
    "partition": (660, 290, 290, NATIVE, ("partition/partitions", "high watermark, purgatory")),
    "log": (660, 390, 290, NATIVE, ("log/log, log/segment, log/index", "pwritev, mapped indexes")),
    "commit": (660, 490, 290, NATIVE, ("partition/group_commit", "one fdatasync for many appends")),
}
# from, to: the middle of a side (l, r, t, b) each, and a word on the arrow
ARROWS = (
    ("client", "r", "reactor", "l", ""),
    ("reactor", "r", "connection", "l", ""),
    ("connection", "r", "produce", "l", ""),
    ("connection", "r", "fetch", "l", ""),
    ("connection", "r", "offsets", "l", ""),
    ("connection", "b", "queue", "t", "all other keys"),
    ("queue", "b", "handlers", "t", ""),
    ("handlers", "l", "coordinators", "r", ""),
    ("handlers", "b", "storage", "t", ""),
    ("controller", "r", "storage", "l", ""),
    ("handlers", "l", "controller", "r", ""),
    ("coordinators", "b", "controller", "t", ""),
    ("offsets", "b", "partition", "t", ""),
    ("partition", "b", "log", "t", ""),
    ("log", "b", "commit", "t", ""),
    ("storage", "r", "log", "l", ""),
)
# Produce and Fetch reach the partition past the box between them.
BESIDE = (
    '<path d="M950 59 L966 59 L966 319 L952 319 M950 139 L966 139" stroke="#333" fill="none"'
    ' marker-end="url(#tip)"/>'
)


def side(name: str, which: str) -> tuple[float, float]:
    """The middle of a side of a box: x, y."""
    x, y, width, _, _ = BOXES[name]
    return {
        "l": (x, y + BOX_HEIGHT / 2),
        "r": (x + width, y + BOX_HEIGHT / 2),
        "t": (x + width / 2, y),
        "b": (x + width / 2, y + BOX_HEIGHT),
    }[which]


def box(name: str) -> str:
    x, y, width, colour, lines = BOXES[name]
    shape = (
        f'<rect x="{x}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="6" fill="{colour}"'
        ' stroke="#555"/>'
    )
    texts = [
        f'<text x="{x + width / 2}" y="{y + 24 + row * LINE_HEIGHT}" text-anchor="middle"'
        f' font-size="{14 if row == 0 else 12}">{escape(line)}</text>'
        for row, line in enumerate(lines)
    ]
    return "\n".join([shape, *texts])


def arrow(start: str, start_side: str, end: str, end_side: str, word: str) -> str:
    (x1, y1), (x2, y2) = side(start, start_side), side(end, end_side)
    line = f'<path d="M{x1} {y1} L{x2} {y2}" stroke="#333" fill="none" marker-end="url(#tip)"/>'
    if not word:
        return line
    place = f'x="{(x1 + x2) / 2 + 6}" y="{(y1 + y2) / 2 - 4}"'
    return f'{line}\n<text {place} font-size="12">{escape(word)}</text>'


def picture() -> str:
    legend = (
        '<text x="20" y="585" font-size="13">blue: Cython without Python\'s global lock;'
        " yellow: Python; numbers: API keys.</text>\n"
        '<text x="20" y="605" font-size="13">A response goes back on the connection of its'
        " request, in the order of the requests.</text>"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            ' font-family="sans-serif" fill="#111">',
            '<rect width="100%" height="100%" fill="white"/>',
            '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4"'
            ' orient="auto"><path d="M0 0 L9 4 L0 8 z" fill="#333"/></marker></defs>',
            *(arrow(*row) for row in ARROWS),
            BESIDE,
            *(box(name) for name in BOXES),
            legend,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    OUT.write_text(picture())
