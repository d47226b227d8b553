"""The error that source and sink raise for an option."""


class BadOption(ValueError):
    """An option is missing, contradicts another one, or has an invalid value."""
