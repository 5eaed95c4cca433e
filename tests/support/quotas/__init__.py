"""A simulation of quotas: clients, faults and conditional writes around a few bucket items.

``table`` holds the items, ``rules`` plans the writes, ``client`` sends them, ``ledger`` checks every
write that was applied against what the calls have really cost, ``world`` makes random histories, and
``defects`` are rules, clients and tables that lack one guard.

The rules are those of the design, written down without the package: only the calendar is its own.
``rules.Rules`` is the seam for the code of an engine: an adapter that plans the same ``Write`` from
an item can take its place.
"""
