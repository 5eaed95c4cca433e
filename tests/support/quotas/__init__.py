"""A simulation of quotas: clients, faults and conditional writes around a few bucket items.

``table`` holds the items, ``rules`` and ``admin`` plan the writes, ``client`` sends them, and
``ledger`` compares every write that was applied with the true costs of the calls. ``world`` makes
random histories; ``defects`` are rules, clients and worlds that lack one guard.

The rules are those of the design, written down without the package: only the calendar is its own.
``admin.Rules`` is the seam for the code of an engine: an adapter that plans the same ``Write`` from
an item can take its place.
"""
