"""Chromium by its own debugging pipe: open a page, ask it things, hear what it complains of and what it requests.

`--dump-dom` cannot do this: it often ends before the first frame, and charts are drawn when a frame shows them near.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any


class Browser:
    """One headless window; `complaints` are console errors and policy violations, `requests` the addresses it asked."""

    def __init__(self, profile: Path, width: int, height: int) -> None:
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # Chromium reads file descriptor 3 and writes 4; the shell moves ours there.
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
        shell = f'exec chromium {flags} --disable-component-update "$@" 3<&{read_commands} 4>&{write_answers}'
        window = [f"--window-size={width},{height}", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        # Its temporary files are taken away at the end; their path must be short, because there are sockets in it.
        self._leavings = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", *window, "about:blank"],
            env={**os.environ, "TMPDIR": self._leavings.name},
            pass_fds=(read_commands, write_answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._number, self._rest, self._session = 0, b"", None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Runtime", "Log", "Network", "Page"):
            self._call(f"{part}.enable")
        # A headless window is never narrower than 500 pixels; a phone is.
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **screen)

    def open(self, file: Path) -> None:
        self._call("Page.navigate", url=file.as_uri())

    def ask(self, expression: str) -> Any:
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 30) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.ask(expression):
                return True
            time.sleep(0.1)
        return False

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move(self, x: float, y: float) -> None:
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        self._leavings.cleanup()
        os.close(self._commands)
        os.close(self._answers)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._notice(answer.get("method", ""), answer.get("params", {}))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                raise RuntimeError("chromium ended")
            self._rest += piece
        first, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(first)
        return answer

    def _notice(self, event: str, told: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.complaints.append(str(told["args"]))
        elif event == "Log.entryAdded":
            self.complaints.append(str(told["entry"]["text"]))
