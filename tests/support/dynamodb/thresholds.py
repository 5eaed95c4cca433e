"""The marks of thresholds among the requests of a client, and the events that it was told of."""

from zae_limiter.hooks import Hooks


def is_mark(exchange):
    """Tell whether a request marks a threshold: it sets that one attribute and nothing else."""
    if exchange.operation != "UpdateItem":
        return False
    names = exchange.body["ExpressionAttributeNames"].values()
    update = exchange.body["UpdateExpression"]
    return update.count("=") == 1 and any(name[0] == "e" and name[1:].isdigit() for name in names)


class Told(Hooks):
    """Remembers the percentages that were raised."""

    def __init__(self):
        self.percents = []

    def on_threshold(self, event):
        self.percents.append(event.percent)
