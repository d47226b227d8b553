"""Common parts of the commands that change the log directory of a broker that does not run."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING

from barnabas.cli.output import fail
from barnabas.config import BrokerConfig, ConfigError
from barnabas.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.controller.user_credentials import UserCredentials
    from barnabas.metadata.cluster_state import ClusterState
    from barnabas.security.new_user import NewUser

Command = Callable[[argparse.Namespace], int]


def errors_of_one_line(run: Command) -> Command:
    """Wraps a command: it prints wrong settings, or a directory that cannot be used, in one line,
    and returns exit status 1."""

    @wraps(run)
    def reporting(arguments: argparse.Namespace) -> int:
        from barnabas.metadata.tree import MetadataError
        from barnabas.storage.log_dirs import UnusableDirectory

        try:
            return run(arguments)
        except ConfigError as error:
            for problem in error.problems:
                fail(problem)
            return 1
        except KafkaError as error:
            return fail(error.message or str(error))
        except (UnusableDirectory, MetadataError) as error:
            return fail(str(error))

    return reporting


@contextmanager
def stopped_users(config: BrokerConfig) -> Iterator["StoppedUsers"]:
    """Opens the users of a broker that does not run. Raises MetadataError, and UnusableDirectory
    when the broker runs."""
    from barnabas.controller.user_credentials import UserCredentials
    from barnabas.metadata.cluster_state import ClusterStateReader
    from barnabas.stages.stopped import stopped_tree

    with stopped_tree(config) as tree:
        reader = ClusterStateReader(tree)
        yield StoppedUsers(UserCredentials(tree, reader), reader.state)


class StoppedUsers:
    """The SCRAM users in the directory of a broker that does not run."""

    def __init__(self, credentials: "UserCredentials", state: "ClusterState") -> None:
        self._credentials, self._state = credentials, state

    def store(self, user: "NewUser") -> None:
        """Stores a user. Raises KafkaError, MetadataError."""
        self._credentials.store(user.name, user.mechanism, user.credential())

    def delete(self, name: str, mechanism: str) -> None:
        """Deletes a credential. Raises ResourceNotFound, MetadataError."""
        self._credentials.delete(name, mechanism)

    def found(self, name: str | None) -> list[tuple[str, str, int]]:
        """Returns names, mechanisms and iterations of one user, or of all users."""
        from barnabas.security import credentials

        names = credentials.users(self._state) if name is None else [name]
        return sorted(
            (user, mechanism, iterations)
            for user in names
            for mechanism, iterations in credentials.iterations_of(self._state, user).items()
        )
