"""An event loop whose time passes only while nothing is left to do, however busy the machine."""

import asyncio
import selectors


class _NoWait(selectors.DefaultSelector):
    """Adds up the time that it should have waited."""

    def __init__(self):
        super().__init__()
        self.waited_s = 0.0

    def select(self, timeout=None):
        ready = super().select(timeout and 0)
        if timeout and not ready:
            self.waited_s += timeout
        return ready


class IdleTimeLoop(asyncio.SelectorEventLoop):
    """For code without threads and other processes: they would get no time."""

    def __init__(self):
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self):
        return self._no_wait.waited_s


def run_in_idle_time(main):
    """Run a coroutine to its end."""
    with asyncio.Runner(loop_factory=IdleTimeLoop) as runner:
        return runner.run(main)


def idle_clock():
    """Return a clock of milliseconds that is the one of the running loop."""
    loop = asyncio.get_running_loop()
    return lambda: 1_700_000_000_000 + int(loop.time() * 1000)
