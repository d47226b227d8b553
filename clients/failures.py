"""Errors that both old clients raise."""

from collections.abc import Sequence


class InvalidConfig(ValueError):
    """Settings that cannot be used, one plain line a problem (InvalidConfigException)."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(" ".join(problems))
