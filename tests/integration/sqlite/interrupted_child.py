"""A process that is interrupted again and again at its work, and says what it has taken."""

import signal
import sys
import time
from itertools import count

from zae_limiter import SyncRateLimiter, SyncRepository

COST = 5


def work(limiter, states, numbers):
    while True:
        number = next(numbers)
        states[number] = "entering"
        with limiter.acquire("user", "api", {"rpm": 3}) as lease:
            states[number] = "inside"
            lease.adjust(rpm=2)
            states[number] = "leaving"
        states[number] = "done"


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(url, interrupts):
    """After each interrupt it says so; only then comes the next one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
    limiter, states, numbers = SyncRateLimiter(SyncRepository.open(url=url)), {}, count()
    for _ in range(interrupts):
        try:
            say("ready")
            work(limiter, states, numbers)
        except KeyboardInterrupt:
            pass
    outcomes = list(states.values())
    say(f"{outcomes.count('done')} {outcomes.count('leaving')}")
    time.sleep(60)  # until it is killed


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
