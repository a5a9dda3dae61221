"""A Dask cluster of processes of this machine behind a slow network: every message is counted and held back."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import psutil  # which distributed requires

from jitlto.build.execution.dask import DaskExecutor, connect
from jitlto.compile.compiler import CompileJob

SLEEP = 0.1


def sleep(job: CompileJob) -> None:
    """Take as long as a compile without a core."""
    time.sleep(SLEEP)


def nothing(job: CompileJob | int) -> None:
    """Do nothing in a worker."""


class Network:
    """The process between a scheduler, its workers and the client."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_forward, args=(theirs, latency / 1000), daemon=True)
        self._process.start()
        self.scheduler = 0  # its process

    def route(self, name: str, port: int) -> int:
        """Return a port that leads to ``port``."""
        self._pipe.send((name, port))
        return int(self._pipe.recv())

    def counts(self) -> dict[str, int]:
        """Return the bytes so far by name of the connections and direction."""
        self._pipe.send(None)
        found: dict[str, int] = self._pipe.recv()
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def _forward(pipe: Connection, latency: float) -> None:
    counts: dict[str, int] = {}

    async def pump(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await held.get()
                if (left := due - loop.time()) > 0:
                    await asyncio.sleep(left)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            writer.close()

        delivery = asyncio.create_task(deliver())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                counts[name] = counts.get(name, 0) + len(data)
                held.put_nowait((loop.time() + latency, data))
        held.put_nowait((loop.time() + latency, b""))
        with contextlib.suppress(ConnectionError):
            await delivery

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        while True:
            request = await loop.run_in_executor(None, pipe.recv)
            if request is None:
                pipe.send(counts)
                continue
            name, port = request

            async def connected(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name, port: int = port
            ) -> None:
                there, back = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pump(f"from {name}", reader, back), pump(f"to {name}", there, writer))

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            pipe.send(server.sockets[0].getsockname()[1])

    asyncio.run(serve())


@contextlib.contextmanager
def cluster(workers: int, latency: float) -> Iterator[tuple[DaskExecutor, Network]]:
    """Start a scheduler and workers whose messages take ``latency`` milliseconds; connect to it."""
    network, started = Network(latency), []
    try:
        port = _free_port()
        started.append(_dask("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"))
        network.scheduler = started[0].pid
        _await_listener(port)
        inside = f"tcp://127.0.0.1:{network.route('workers', port)}"
        for _ in range(workers):
            own = _free_port()
            address = f"tcp://127.0.0.1:{network.route('scheduler', own)}"
            listen = ("--listen-address", f"tcp://127.0.0.1:{own}", "--contact-address", address)
            started.append(_dask("worker", inside, *listen, "--nthreads", "1", "--no-nanny", "--no-dashboard"))
        with connect(f"dask://127.0.0.1:{network.route('client', port)}") as executor:
            executor._client.wait_for_workers(workers, timeout=60)
            yield executor, network
    finally:
        for process in reversed(started):
            process.kill()
        for process in started:
            process.wait()
        network.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _await_listener(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit("the scheduler has not started in a minute")


def _dask(kind: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cpu_seconds(process: int) -> float:
    """Return the processor time that a process has used."""
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)
