COUNT_NAMES: tuple[str, ...]
