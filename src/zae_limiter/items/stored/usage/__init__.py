"""The stored forms of usage, in the order in which an hour passes through them.

``clauses`` counts an hour in the write to a bucket item, and ends it. ``hours`` reads the hours
that the item holds. ``day_row`` keeps a finished hour in the row of its day.
"""
