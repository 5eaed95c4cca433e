"""Libraries that are imported when a test first uses them.

Every worker imports every test module to collect it. The SDKs of LLM providers take seconds to
import, and most workers run none of their tests.
"""

import warnings
from importlib import import_module


class Lazy:
    """A module under the name that ``import`` would give it."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("_"):  # pytest asks everything in a module whether it is a fixture
            raise AttributeError(attribute)
        with warnings.catch_warnings():
            # Some have invalid escapes, which are noticed where they are compiled.
            warnings.simplefilter("ignore")
            return getattr(import_module(self._name), attribute)
