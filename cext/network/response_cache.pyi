from barnabas.cext.network.handler import NativeHandler

class KeptAnswers(NativeHandler):
    """The response cache of one API key of one broker: a native handler for Reactor."""
    def __init__(self, api_key: int) -> None: ...
    @property
    def api_key(self) -> int: ...
    @property
    def generation(self) -> int:
        """To be read before what an answer is made of."""
    @property
    def served(self) -> int:
        """How many requests were answered from here."""
    @property
    def held_bytes(self) -> int: ...
    def forget(self) -> None:
        """What answers are made of has changed."""
    def keep(
        self,
        *,
        generation: int,
        listener_index: int,
        api_version: int,
        question: bytes,
        frame: bytes,
        good_codes: int,
    ) -> bool:
        """The framed answer to `question` (the request's body), made in that generation and without
        an error. False when it is not kept: overtaken, or too large."""
