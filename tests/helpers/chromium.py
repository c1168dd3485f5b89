"""A headless Chromium that tests drive by its debugging pipe, without driver or network."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
BLANK = "about:blank"
# Of keys on which the browser acts by their code: the focus moves, a dialog is closed.
KEY_CODES = {"Tab": 9, "Escape": 27}


class Unusable(Exception):
    """The reason why there is no browser here, as a part of a sentence."""


@cache
def find() -> str:
    """Return the first Chromium of this machine that shows a file of a temporary folder.

    The one of a Linux distribution may be a stub, or may see no such folder.

    Raises:
        Unusable: There is none.
    """
    reasons = []
    for program in filter(None, map(shutil.which, NAMES)):
        try:
            _try(program)
        except (AssertionError, OSError) as error:
            reasons.append(f"{program}: {error}")
        else:
            return program
    raise Unusable("; ".join(reasons) or f"there is no {', '.join(NAMES)}")


def _try(program: str) -> None:
    """Show a file; raise `AssertionError` or `OSError` if that fails."""
    # Processes of the browser may still write to the folder while it is deleted.
    with TemporaryDirectory(prefix="chromium", ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "page.html"
        page.write_text("<title>shown</title>")
        browser = Chromium(Path(folder) / "profile", program)
        try:
            browser.open(page.as_uri())
            assert browser.run("document.title") == "shown", "it shows no file"
        finally:
            browser.close()


class Chromium:
    """One browser with one page."""

    def __init__(self, profile: Path, program: str) -> None:
        (to_read, self.to_write), (self.to_listen, to_speak) = os.pipe(), os.pipe()
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_speak}'
        arguments = [
            "bash",
            "-c",
            command,
            program,
            *FLAGS,
            f"--user-data-dir={profile}",
            BLANK,
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(arguments, pass_fds=(to_read, to_speak), **quiet)
        os.close(to_read)
        os.close(to_speak)
        self.left, self.number, self.session, self.target, self.errors = b"", 0, "", "", list[str]()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        answer = self._answer(method, **parameters)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _answer(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer, which has a result or an error."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"])[:600])
            if answer.get("id") == self.number:
                return answer

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.left:
            assert select.select([self.to_listen], [], [], 60)[0], "Chromium does not answer."
            read = os.read(self.to_listen, 1 << 20)
            assert read, "Chromium has ended."
            self.left += read
        message, _, self.left = self.left.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, address: str, width: int = 1400) -> None:
        """Show an address in a page of a width, in the light, as if for the first time."""
        if not self.session:
            self.target = self.call("Target.createTarget", url=BLANK)["targetId"]
            attached = self.call("Target.attachToTarget", targetId=self.target, flatten=True)
            self.session = attached["sessionId"]
            for domain in ("Page", "Runtime"):
                self.call(f"{domain}.enable")
        elif self.run("location.href") != BLANK:
            self.run("sessionStorage.clear()")
            self._go(BLANK)  # else an address that differs in its fragment would not be loaded
        self.resize(width, 1000)
        features = [{"name": "prefers-color-scheme", "value": "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self._go(address)

    def _go(self, address: str) -> None:
        """Load an address, and wait until the page before it is gone."""
        before = self._time_origin()
        self.call("Page.navigate", url=address)
        wait(lambda: self._time_origin() not in (None, before), f"{address} is loaded", 60)

    def _time_origin(self) -> float | None:
        """Return when the page began, which no other page did; None while there is none."""
        answer = self._answer("Runtime.evaluate", expression="performance.timeOrigin")
        value: float | None = answer.get("result", {}).get("result", {}).get("value")
        return value

    def resize(self, width: int, height: int) -> None:
        """Make the page as wide and high, in px."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> Any:
        """Wait until an expression is true."""
        return wait(lambda: self.run(condition), condition, seconds)

    def press(self, key: str) -> None:
        """Press a key, by its name, on what has the focus."""
        more: dict[str, Any] = {" ": {"text": " "}, "Enter": {"text": "\r"}}.get(key, {})
        if key in KEY_CODES:
            more = {"windowsVirtualKeyCode": KEY_CODES[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to_write)
        os.close(self.to_listen)


def wait(ready: Callable[[], Any], condition: str, seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (value := ready()):
        assert time.monotonic() < end, f"still not so: {condition}"
        time.sleep(0.02)
    return value
