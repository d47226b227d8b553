"""The one error of the options of source and sink."""


class BadOption(ValueError):
    """An option is missing, contradicts another one, or has an invalid value."""
