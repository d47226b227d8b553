"""A clean stop in a cluster: how often the controller is asked, and when nobody is."""

from types import SimpleNamespace

import pytest

from barnabas.config import BrokerConfig
from barnabas.metadata.tree import StoreUnavailable
from barnabas.server.controlled_shutdown import ControlledShutdown


class Stopped:
    """One stop of broker 1 beside broker 2; `answers`: what each attempt meets."""

    def __init__(self, answers, **settings):
        self.answers, self.asked, self.pauses_s, self.followers_stopped = list(answers), 0, [], 0
        values = {name.replace("_", "."): str(value) for name, value in settings.items()}
        ControlledShutdown(
            1,
            BrokerConfig(values),
            lambda: SimpleNamespace(brokers={1: None, 2: None}),
            self._leave,
            None,  # the controller is here
            self._stop_followers,
            self.pauses_s.append,
        ).run()

    def _stop_followers(self):
        self.followers_stopped += 1

    def _leave(self, broker_id):
        assert broker_id == 1 and self.followers_stopped == 1
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


LED = [("t", 0)]  # no other replica is in sync


def test_it_ends_when_nothing_is_led_any_more():
    found = Stopped([LED, []])
    assert (found.asked, found.pauses_s) == (2, [5.0])


@pytest.mark.parametrize("attempts", [1, 4])
def test_the_number_of_attempts_and_their_pauses(attempts):
    settings = {
        "controlled.shutdown.max.retries": attempts,
        "controlled.shutdown.retry.backoff.ms": 250,
    }
    found = Stopped([LED] * 9, **settings)
    assert (found.asked, found.pauses_s) == (attempts, [0.25] * (attempts - 1))


def test_it_is_switched_off():
    found = Stopped([LED], **{"controlled.shutdown.enable": "false"})
    assert (found.asked, found.followers_stopped) == (0, 0)


def test_without_zookeeper_there_is_one_attempt():
    """Each attempt waited for a session timeout: the stop took 18 s."""
    found = Stopped([StoreUnavailable("no connection")] * 9)
    assert (found.asked, found.pauses_s) == (1, [])
