from barnabas.cext.network.handler import NativeHandler

class ResponseCache(NativeHandler):
    """The response cache of one broker: a native handler for Reactor. `apis` are those whose
    answers it may hold: (API key, first version, last version) each."""
    def __init__(self, apis: tuple[tuple[int, int, int], ...]) -> None: ...
    @property
    def generation(self) -> int:
        """The current generation. Read it before the state that the answer describes."""
    @property
    def served(self) -> int:
        """The number of requests that the cache answered."""
    @property
    def held_bytes(self) -> int: ...
    def forget(self) -> None:
        """Invalidates all answers, because the state that they describe has changed."""
    def store(
        self,
        *,
        generation: int,
        listener_index: int,
        api_key: int,
        api_version: int,
        question: bytes,
        frame: bytes,
        good_codes: int,
        caller: bytes = ...,
    ) -> bool:
        """Stores the framed answer to `question` (the request's body), which was made in that
        generation and has `good_codes` error codes, all of them 0. `caller`: PendingRequest.caller.
        Returns False if a change has overtaken the answer or it is too large."""
