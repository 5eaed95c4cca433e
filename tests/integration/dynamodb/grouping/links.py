from contextlib import contextmanager


@contextmanager
def slow(proxy, round_trip_ms):
    """A longer way to the store."""
    link = proxy.link
    link.request_ms = link.answer_ms = round_trip_ms / 2
    try:
        yield
    finally:
        link.request_ms = link.answer_ms = 0
