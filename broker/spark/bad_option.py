"""The one error of the options of source and sink."""


class BadOption(ValueError):
    """An option that is missing, contradicts another, or has a value that it cannot have."""
