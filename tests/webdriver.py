"""A browser for tests: speaks the WebDriver protocol to chromedriver with nothing but the standard library."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def find_browser() -> tuple[str, str] | str:
    """Paths of a browser and its driver; else why there is none. Nothing is installed: `make browser` does that."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    driver = shutil.which("chromedriver")
    missing = " and ".join(name for name, there in (("chromium", browser), ("chromedriver", driver)) if not there)
    return (browser, driver) if browser and driver else f"no {missing} on the path; `make browser` installs both"


class Browser:
    """One headless browser session."""

    def __init__(self, browser: str, driver: str, profile: Path) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options = {"binary": browser, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            self._wait()
            self.session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        except Exception:
            self.close()
            raise

    def _wait(self) -> None:
        for _ in range(150):
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise RuntimeError("chromedriver did not answer within 15 s")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        # no proxy: the driver is on this machine
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def call(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """One command of the session."""
        return self._call(method, f"/session/{self.session}{path}", {} if body is None and method == "POST" else body)

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page from disk and forget what was logged before."""
        self.call("/url", {"url": "about:blank"})
        self.logs("browser"), self.logs("performance")
        self.call("/url", {"url": page.as_uri() + fragment})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a piece of JavaScript returns."""
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def element(self, selector: str) -> str:
        """The path of an element, for `/click` and `/value`."""
        return f"/element/{self.call('/element', {'using': 'css selector', 'value': selector})[ELEMENT]}"

    def click(self, selector: str) -> None:
        """Click as a user does."""
        self.call(self.element(selector) + "/click")

    def type(self, selector: str, text: str) -> None:
        """Type into an empty field."""
        path = self.element(selector)
        self.call(path + "/clear")
        self.call(path + "/value", {"text": text})

    def hover(self, selector: str) -> None:
        """Move the mouse over an element."""
        where = self.call("/element", {"using": "css selector", "value": selector})
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", where)
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": where}
        self.call(
            "/actions",
            {
                "actions": [
                    {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
                ]
            },
        )

    def logs(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since the last call: `browser` is the console, `performance` the network."""
        return self.call("/se/log", {"type": kind})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """One command of the DevTools protocol."""
        return self.call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode(self.call("/screenshot", method="GET"))

    def close(self) -> None:
        """End the session and the driver."""
        try:
            if hasattr(self, "session"):
                self._call("DELETE", f"/session/{self.session}")
        finally:
            self.process.terminate()
            self.process.wait(timeout=20)
