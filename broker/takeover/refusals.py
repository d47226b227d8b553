"""Why an import cannot be done: one line for each reason, with the file or the name it is about.

Some reasons are a loss that an operator may accept (`--allow-loss`); these become notes then.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.storage.log_dirs import UnusableDirectory


class CannotImport(UnusableDirectory):
    """An import is refused. `problems`: one plain line for each reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__(" ".join(self.problems))
