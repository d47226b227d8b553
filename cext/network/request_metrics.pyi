TIME_NAMES: tuple[str, ...]
