"""Pages as HTML, by Jinja2 (docs/decisions/console.md says why).

Every value is escaped (autoescape), and a name that a template uses and nobody set is an error.
`shown` makes characters visible that would change how the text around them looks: control
characters, and those that reverse the direction of text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape

from barnabas.client.admin import SOURCES
from barnabas.console.visit import link

PACKAGE = "barnabas.console"
CHART_WIDTH, CHART_HEIGHT = 300, 60
MS_MAX = 253_402_300_800_000  # year 9999
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def source(name: str) -> str:
    """Returns a file of templates/."""
    return (files(PACKAGE) / "templates" / name).read_text(encoding="utf-8")


def shown(text: object) -> str:
    """Returns a text with \\xNN in place of characters that are not seen."""
    return _HIDDEN.sub(lambda found: _escape(found.group()), str(text))


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def count(number: float | None) -> str:
    """Returns a number with commas; a dash for None."""
    return "–" if number is None else f"{number:,.0f}"


def size(number: float | None) -> str:
    """Returns a number of bytes in the unit that fits."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def moment(timestamp_ms: int | None) -> str:
    """Returns a time in UTC; a dash for none."""
    import time

    if timestamp_ms is None or not 0 <= timestamp_ms < MS_MAX:
        return "–"
    seconds, ms = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f".{ms:03d}"


def chart(values: Sequence[float]) -> str:
    """Returns the points of an SVG polyline of CHART_WIDTH to CHART_HEIGHT."""
    most = max(values, default=0) or 1
    step = CHART_WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{index * step:.1f},{CHART_HEIGHT - 2 - value / most * (CHART_HEIGHT - 4):.1f}"
        for index, value in enumerate(values)
    )


class Rendering:
    """The templates of the console."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FunctionLoader(source),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "shown": shown,
            "count": count,
            "size": size,
            "moment": moment,
            "chart": chart,
        }
        self._templates.globals |= {"link": link, "sources": SOURCES}
        self.style = source("style.css").encode()

    def page(self, template: str, values: Mapping[str, Any]) -> bytes:
        """Returns a page in UTF-8."""
        text = self._templates.get_template(template).render(values)
        return text.encode("utf-8", "replace")
