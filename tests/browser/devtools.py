"""A headless browser, spoken to over pipes: the DevTools protocol without any library."""

import base64
import fcntl
import itertools
import json
import os
import subprocess
import time

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # No network: no name but that of this machine has an address.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
# The browser expects its pipes at descriptors 3 and 4; those that we pass are others.
AT_THEIR_PLACES = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$0" "$@" about:blank'
FIRST_FREE = 10


class Browser:
    """One browser with one tab. Ends with the block."""

    def __init__(self, program, profile):
        self._to_browser, self._from_browser = os.pipe(), os.pipe()
        ends = _moved(self._to_browser[0]), _moved(self._from_browser[1])
        self._process = subprocess.Popen(
            [
                *("bash", "-c", AT_THEIR_PLACES, program, *map(str, ends)),
                *(*FLAGS, f"--user-data-dir={profile}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=ends,
        )
        for end in ends:
            os.close(end)
        self._numbers = itertools.count(1)
        self._received = b""
        self._session = None
        self.events = []

    def __enter__(self):
        tab = next(
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        )
        attached = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "DOM", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *exc_info):
        self._process.kill()
        self._process.wait()
        os.close(self._to_browser[1])
        os.close(self._from_browser[0])

    def call(self, method, **parameters):
        """Call a method of the protocol; events that come meanwhile are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_browser[1], json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        """Open a page and return when it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression):
        """Return the value of an expression of JavaScript in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def elements(self):
        """Iterate over all elements of the page, those of closed shadow trees included."""
        left = [self.call("DOM.getDocument", depth=-1, pierce=True)["root"]]
        while left:
            node = left.pop()
            yield node
            left += node.get("children", ()) or ()
            left += node.get("shadowRoots", ())

    def requested(self):
        """Return the addresses that the page has asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def wait_for(self, expression, seconds=30):
        """Return the value of an expression as soon as it is true; fail if it never is."""
        # While a page is left for another one, there is nothing to evaluate in.
        seen = eventually(lambda: self._value(expression), seconds)
        assert seen, f"never true: {expression}; the page is {self._value('location.href')}"
        return seen

    def _value(self, expression):
        try:
            return self.evaluate(expression)
        except AssertionError:
            return None

    def show(self, width, height, scheme="light"):
        """Set the size of the window and the colour scheme that the person prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, *, whole=False):
        """Return a picture of the window, or of the whole page, as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def errors(self):
        """Return the errors that the console of the page has shown, and dialogs."""
        found = []
        for event in self.events:
            method, values = event["method"], event.get("params", {})
            if method == "Runtime.exceptionThrown" or method == "Page.javascriptDialogOpening":
                found.append(values)
            if method == "Runtime.consoleAPICalled" and values["type"] in ("error", "assert"):
                found.append(values)
            if method == "Log.entryAdded" and values["entry"]["level"] == "error":
                found.append(values["entry"])
        return found

    def _next(self):
        while b"\0" not in self._received:
            piece = os.read(self._from_browser[0], 2**16)
            assert piece, "the browser has ended"
            self._received += piece
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)


def eventually(look, seconds=30):
    """Return what ``look`` returns as soon as that is true, or the last of it."""
    until = time.monotonic() + seconds
    while not (seen := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return seen


def _moved(descriptor):
    """Return a copy that is none of those which the browser expects."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD, FIRST_FREE)
    os.close(descriptor)
    return copy
