"""Errors that both old clients raise."""

from collections.abc import Sequence


class InvalidConfig(ValueError):
    """Invalid settings, one line for each problem (InvalidConfigException)."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(" ".join(problems))
