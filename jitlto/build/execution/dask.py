"""A Dask cluster as an executor. Jobs are sent by content, so a worker needs only jitlto and a toolchain."""

import re
import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from jitlto.base.errors import BuildError, ToolchainError
from jitlto.build.execution.transport import versions

T = TypeVar("T")

_ADDRESS = re.compile(r"dask://((?:[^\s:/@\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5})/?")
_PATIENCE = 10  # seconds to wait for a scheduler's answer and for its first worker


class DaskExecutor(Executor):
    """Runs calls in the workers of a Dask cluster; created by :func:`connect`.

    The scheduler runs a call whose worker is lost on another one. Closing leaves the user's cluster running.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor: Executor = client.get_executor(pure=False)  # a failed call that is submitted again runs again
        self._shared: dict[str, Any] = {}

    def share(self, key: str, value: dict[str, bytes]) -> Any:
        """Send a value to the cluster once; return what stands for it in calls.

        It is the result of a task, which is done again if the workers that have it are lost; others fetch it from them.
        """
        if key not in self._shared:
            self._shared[key] = self._client.submit(dict, value, key=f"jitlto-{key}")
        return self._shared[key]

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call ``fn`` in a worker."""
        # Dask's submit takes other keywords.
        return self._executor.submit(partial(fn, **kwargs) if kwargs else fn, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect: after the submitted calls are done, or at once if ``cancel_futures`` or not ``wait``."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._client.close()


def connect(url: str) -> DaskExecutor:
    """Connect to a Dask cluster.

    Args:
        url: ``dask://HOST:PORT`` of the scheduler.

    Returns:
        The executor, a context manager.

    Raises:
        BuildError: If ``url`` is malformed, or no scheduler with workers answers there within ten seconds.
        ToolchainError: If the package ``distributed`` is missing, or jitlto on a worker.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None or int(match[1].rpartition(":")[2]) > 65535:
        hint = "write dask://HOST:PORT of the scheduler"
        raise BuildError(f"invalid cluster address {url!r}", code="build-cluster-address", hint=hint)
    address = match[1]
    try:
        from distributed import Client  # an extra, which takes a second to import
    except ImportError as error:
        what = f"the package distributed cannot be imported: {error}"
        raise ToolchainError(what, code="toolchain-missing", hint="pip install 'jitlto[dask]'") from error
    make: Callable[..., Any] = Client
    with ExitStack() as stack:
        try:
            _check_answers(address)
            client = make(f"tcp://{address}", timeout=_PATIENCE, set_as_default=False)
            stack.callback(client.close)
            client.wait_for_workers(1, timeout=_PATIENCE)
            client.run(versions)  # that of each is checked with each job, which would wait for ever without a jitlto
        except (OSError, ValueError) as error:  # a time-out is an OSError
            what = f"no Dask scheduler with a worker answers: {error}"
            hint = f"check that it is reachable from here, and start a worker with `dask worker tcp://{address}`"
            raise BuildError(what, code="build-cluster-unreachable", where=address, hint=hint) from error
        except Exception as error:
            what, hint = f"a worker cannot run jitlto: {error!r}", "install the same jitlto on every worker"
            raise ToolchainError(what, code="toolchain-worker", where=address, hint=hint) from error
        stack.pop_all()
    return DaskExecutor(client)


def _check_answers(address: str) -> None:
    """Raise OSError if no scheduler answers; Dask would wait forever for a program that accepts and stays silent."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as connection:
        size = connection.recv(8, socket.MSG_WAITALL)  # a Dask scheduler first sends that of a short greeting
    if len(size) != 8 or int.from_bytes(size, "little") > 1 << 16:
        raise OSError("a different program is listening there")
