"""A page in headless Chromium, driven by the DevTools protocol over a pipe: no library and no port is needed.

Protocol: https://chromedevtools.github.io/devtools-protocol/; with ``--remote-debugging-pipe`` Chromium reads messages
from descriptor 3 and writes them to 4, each ended by a NUL byte.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
_PATIENCE = 60.0  # seconds for an answer


def find() -> str | None:
    """The browser: what ``JITLTO_TEST_CHROMIUM`` names, or one on the path."""
    return os.environ.get("JITLTO_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


class Page:
    """One tab."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        #: Its name and version, e.g. ``HeadlessChrome/150.0.7871.100``.
        self.browser_version: str = self.send("Browser.getVersion")["product"]
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: object) -> Any:
        """Ask for something and wait for its answer; events that come meanwhile are kept."""
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        data = json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        while data:
            data = data[os.write(self._writing, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._reading, 1 << 20) if ready else b""
            assert data, "Chromium does not answer"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, path: Path, query: str = "", **media: str) -> None:
        """Load a file and wait until it is loaded.

        With a query such as ``?q=word``, and media features such as ``prefers_color_scheme="dark"``.
        """
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri() + query)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, awaited."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key by its name, e.g. ``Tab``."""
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
            self.send("Input.dispatchKeyEvent", **event, **(text if kind == "keyDown" else {}))

    def complaints(self) -> list[str]:
        """What stands in the console since the page was opened: errors, warnings and uncaught exceptions."""
        said = []
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    said.append(str(parameters["exceptionDetails"]))
                case "Log.entryAdded":
                    said.append(str(parameters["entry"]["text"]))
                case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                    said.append(str(parameters["args"]))
        return said

    def requests(self) -> list[str]:
        """The addresses that were asked for since the page was opened, its own first."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(parameters["request"]["url"]) for parameters in sent]


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Page]:
    """A fresh browser with one page."""
    command = [
        program,
        "--headless",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        "--no-first-run",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--hide-scrollbars",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()

    def connect() -> None:
        # Through high descriptors: either end may be 3 or 4 itself.
        reading, writing = (os.dup2(end, at) for end, at in ((theirs_in, 1000), (theirs_out, 1001)))
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=connect,
        pass_fds=(3, 4),
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_in, ours_out)
    finally:
        os.close(ours_out)  # Chromium ends when its pipe does
        os.close(ours_in)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
