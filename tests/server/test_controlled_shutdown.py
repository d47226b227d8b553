"""A clean stop in a cluster: how often the controller is asked, and when nobody is."""

from types import SimpleNamespace

import pytest

from barnabas.config import BrokerConfig
from barnabas.metadata.tree import StoreUnavailable
from barnabas.server.controlled_shutdown import ControlledShutdown


class Stopped:
    """One stop of broker 1 beside broker 2; `answers`: what each attempt meets. `led`: what this
    broker leads when it looks, at last nothing; `told`: whether broker 2 knows the new leaders when
    it looks, at last it does."""

    def __init__(self, answers, led=(), told=(), **settings):
        self.answers, self.asked, self.pauses_s, self.followers_stopped = list(answers), 0, [], 0
        led, told = list(led), list(told)
        values = {name.replace("_", "."): str(value) for name, value in settings.items()}
        ControlledShutdown(
            1,
            BrokerConfig(values),
            lambda: SimpleNamespace(brokers={1: None, 2: None}),
            self._leave,
            lambda: led.pop(0) if led else set(),
            lambda: told.pop(0) if told else True,
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
ONCE = {"controlled.shutdown.max.retries": 1}


def test_it_ends_when_nothing_is_led_any_more():
    found = Stopped([LED, []])
    assert (found.asked, found.pauses_s) == (2, [5.0])


def test_it_waits_until_it_leads_nothing_and_the_others_know_it(caplog):
    """A broker that had begun to stop ignored the controller: a write that waited for followers was
    answered at its timeout. And a controller ended its connections with LeaderAndIsr under way."""
    here = {("t", 0), ("t", 1)}
    assert Stopped([[]], led=[here] * 2).pauses_s == [0.01] * 2
    assert Stopped([[]], led=[here], told=[False] * 3).pauses_s == [0.01] * 4
    assert Stopped([LED], led=[here, set(LED)], **ONCE).pauses_s == [0.01]
    assert not [row for row in caplog.records if "stops before" in row.message]
    assert Stopped([[]], led=[here] * 9999).pauses_s == [0.01] * 500
    assert "this node stops before all brokers know the new leaders" in caplog.text


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
