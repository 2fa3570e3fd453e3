"""A real browser, driven through ChromeDriver's own REST interface (W3C WebDriver): no library in between."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64decode
from contextlib import contextmanager
from pathlib import Path

from lakemark.sandbox import loopback

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ENTER, CONTROL = "\ue007", "\ue009"
# Without a network of its own Chromium would wait for its makers' hosts.
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1400,2200",
)


class Browser:
    """One window. Elements are named by XPath; whatever is not there yet is waited for."""

    def __init__(self, port, session, folder):
        self.port, self.session, self.folder = port, session, folder

    def ask(self, method, path, body=None):
        return call(self.port, method, f"/session/{self.session}{path}", body)

    def go(self, url):
        self.ask("POST", "/url", {"url": url})

    def all(self, xpath):
        found = self.ask("POST", "/elements", {"using": "xpath", "value": xpath})
        return [one[ELEMENT] for one in found]

    def find(self, xpath, *, within_seconds=240):
        """The first element that is there and shown."""
        ends = time.monotonic() + within_seconds
        while time.monotonic() < ends:
            for one in self.all(xpath):
                try:
                    if self.ask("GET", f"/element/{one}/displayed"):
                        return one
                except Failed:
                    break  # the page was drawn anew meanwhile
            time.sleep(0.2)
        self.shot("missing")
        raise AssertionError(f"no {xpath} on {self.ask('GET', '/url')}: {self.text()[:3000]}")

    def click(self, xpath):
        ends = time.monotonic() + 240
        while True:
            try:
                return self.ask("POST", f"/element/{self.find(xpath)}/click", {})
            except Failed:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.2)

    def press_until_gone(self, xpath, *, within_seconds=300, patience_seconds=15):
        """Clicks, and again where it is still shown after `patience_seconds`: as where a page tells of an error and stays."""
        ends = time.monotonic() + within_seconds
        while self.shows(xpath):
            assert time.monotonic() < ends, f"{xpath} does not go: {self.text()[:3000]}"
            try:
                self.ask("POST", f"/element/{self.find(xpath, within_seconds=1)}/click", {})
            except (AssertionError, Failed):
                continue  # it went meanwhile, or was drawn anew
            patience = time.monotonic() + patience_seconds
            while time.monotonic() < patience and self.shows(xpath):
                time.sleep(0.2)

    def shows(self, xpath):
        """Whether one such element is shown now."""
        try:
            return any(self.ask("GET", f"/element/{one}/displayed") for one in self.all(xpath))
        except Failed:
            return True  # drawn anew meanwhile: asked again

    def type(self, xpath, text):
        """Types, and sees that it stands there: a page that is drawn anew meanwhile forgets what came before."""
        ends = time.monotonic() + 240
        while True:
            one = self.find(xpath)
            try:
                self.ask("POST", f"/element/{one}/value", {"text": text})
                if text.endswith(ENTER) or self.ask("GET", f"/element/{one}/property/value") == text:
                    return
                self.ask("POST", f"/element/{one}/clear", {})
            except Failed:
                if time.monotonic() > ends:
                    raise
            assert time.monotonic() < ends, f"{xpath} does not take {text!r}"
            time.sleep(0.2)

    def text(self):
        (body,) = self.all("//body")
        return self.ask("GET", f"/element/{body}/text")

    def run(self, script, *arguments):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def shot(self, name):
        """A picture of the page, for people."""
        path = self.folder / f"{name}.png"
        path.write_bytes(b64decode(self.ask("GET", "/screenshot")))
        return path


class Failed(Exception):
    """What ChromeDriver refused."""


def call(port, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, method=method, headers={"Content-Type": "application/json"}
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(asked, timeout=240) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise Failed(error.read().decode(errors="replace")) from None


@contextmanager
def browsing(folder: Path, *, chromium: str, driver: str):
    """A browser with an empty profile below `folder`; it and its driver are ended afterwards."""
    (port,) = loopback.free_ports(1)
    with (folder / "chromedriver.log").open("wb") as log:
        process = subprocess.Popen([driver, f"--port={port}"], stdout=log, stderr=subprocess.STDOUT)
    try:
        ends = time.monotonic() + 240
        while loopback.is_free(port):
            assert process.poll() is None, "ChromeDriver ended"
            assert time.monotonic() < ends, "ChromeDriver does not start"
            time.sleep(0.1)
        options = {"binary": chromium, "args": [*ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        session = call(port, "POST", "/session", wanted)["sessionId"]
        try:
            yield Browser(port, session, folder)
        finally:
            call(port, "DELETE", f"/session/{session}")
    finally:
        process.terminate()
        process.wait(timeout=180)
