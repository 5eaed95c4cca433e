"""What the page about metrics uses of prometheus-client, without a server and its port."""


class Counter:
    def __init__(self, name, documentation, labelnames=()):
        self._labelnames = labelnames
        self.values = {}

    def labels(self, *values):
        assert len(values) == len(self._labelnames)
        return _Child(self.values, values)


class Histogram(Counter):
    """Has the same form; sums what it observes."""


class _Child:
    def __init__(self, values, key):
        self._values, self._key = values, key

    def inc(self, amount=1):
        assert amount >= 0
        self._values[self._key] = self._values.get(self._key, 0.0) + amount

    observe = inc


def start_http_server(port):
    assert 0 < port < 65536
