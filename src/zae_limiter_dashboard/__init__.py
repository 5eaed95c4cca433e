"""The operator's page: who is limited, by which limit and until when, in a browser.

``zae-limiter dashboard`` serves it for a limiter on any engine. The modules are topics: ``session``
and ``guard`` decide who may ask, ``board`` reads the store in the background, ``rows``,
``overview`` and the ``…_view`` modules say what a page shows, ``actions`` change something, and
``pages`` are the routes.
"""
