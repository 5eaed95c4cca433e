"""The marks of thresholds among the requests of a client, and the events that it was told of."""

from zae_limiter.hooks import Hooks


def is_mark(exchange):
    """Tell whether a request marks a threshold: it sets that one attribute and nothing else."""
    return _sets_only(exchange, "e")


def is_exhaustion(exchange):
    """Tell whether a request marks an exhausted quota."""
    return _sets_only(exchange, "d")


def _sets_only(exchange, letter):
    if exchange.operation != "UpdateItem":
        return False
    names = exchange.body["ExpressionAttributeNames"].values()
    update = exchange.body["UpdateExpression"]
    return update.count("=") == 1 and any(
        name[0] == letter and name[1:].isdigit() for name in names
    )


class Told(Hooks):
    """Remembers the percentages that were raised."""

    def __init__(self):
        self.percents = []

        self.exhausted = []

    def on_threshold(self, event):
        self.percents.append(event.percent)

    def on_exhausted(self, event):
        self.exhausted.append(event.requested)
