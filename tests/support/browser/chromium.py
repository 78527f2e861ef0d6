"""Headless Chromium, driven by its DevTools protocol over Tornado's WebSocket client."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

__all__ = ["Page", "chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Chromium in a container has no namespaces of its own; and it is to call nobody.
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip


class Page:
    """Page of a browser: what is evaluated in it, and how it looks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        self._loop, self._numbers = loop, itertools.count(1)
        self._comm: WebSocketClientConnection = loop.run_until_complete(_connect(address))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a command of the protocol."""
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, params), 60))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        await self._comm.write_message(
            json.dumps({"id": number, "method": method, "params": params})
        )
        while True:
            message = await self._comm.read_message()
            assert message is not None, "the browser has ended"
            answer = json.loads(message)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url: str, width: int, height: int) -> None:
        """Go to a page, in a window of a size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        failed = self.call("Page.navigate", url=url).get("errorText")
        assert failed is None, failed

    def read(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; None while it cannot be had."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return None if "exceptionDetails" in found else found["result"].get("value")

    def until(self, expression: str, seconds: float = 30) -> Any:
        """Return the value of an expression once it is true."""
        end = time.monotonic() + seconds
        while not (found := self.read(expression)):
            assert time.monotonic() < end, f"it has not come true: {expression}"
            time.sleep(0.05)
        return found

    def picture(self) -> bytes:
        """Return the window as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def chromium() -> Iterator[Page]:
    """Yield a page of a new browser; ``CHROMIUM`` names the program, else it is looked for."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert program, f"none of {NAMES} is installed; make dashboard INSTALL=1 has apt install it"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        loop = asyncio.new_event_loop()
        try:
            yield Page(loop, _address(Path(folder, "DevToolsActivePort"), process))
        finally:
            process.terminate()
            process.wait(30)
            loop.close()


async def _connect(address: str) -> WebSocketClientConnection:
    # A picture is one message.
    return await websocket_connect(address, max_message_size=1 << 26)


def _address(port: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the browser's first page, once it listens."""
    end = time.monotonic() + 60
    while not (port.exists() and (lines := port.read_text().split("\n"))[1:]):
        assert process.poll() is None and time.monotonic() < end, "Chromium has not started"
        time.sleep(0.05)
    with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=30) as answer:
        pages = [each for each in json.load(answer) if each["type"] == "page"]
    return pages[0]["webSocketDebuggerUrl"]
