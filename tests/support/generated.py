"""Strategies for requests that are nearly right, and for text that should be nothing but text."""

from urllib.parse import quote, quote_from_bytes

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# Text that would be markup, an expression of a template, or a header, if it were not text.
MARKUP, SUM, HEADER = "\"'><zael onx=1>", "{{31337*1001}}", "\r\nX-Injected: yes"
SIGNS_OF_A_BREACH = (b"<zael", b"31368337", b"Traceback (most")
ODD = [
    "=", ",", " ", "\n", "#", "/", "..", "%", "*", "$SYSTEM", "_default_", "0", "-1", "1", "nan",
    "inf", "1e400", "²", "9" * 400, "true", "\0", "\x85", "\u202e", "é", "e\u0301", "💥", "x" * 300,
    MARKUP, SUM, HEADER, "javascript:alert(1)", "//evil.example", "\\", "'", "; DROP TABLE bucket",
]  # fmt: skip
CONTROL = bytes([*range(32), 127])  # servers for HTTP refuse them before a program sees them


def texts(known):
    """Return texts that are made of known ones and of odd ones, and any others."""
    return st.lists(st.sampled_from([*known, *ODD]), max_size=3).map("".join) | st.text(max_size=40)


def spoiled(right, names, wrong):
    """Return the fields of ``right``, or those without some of them and with some wrong ones."""
    few = st.sets(names, max_size=2)
    return right | st.builds(_spoiled, right, few, st.dictionaries(names, wrong, max_size=2))


def _spoiled(right, missing, wrong):
    return {name: value for name, value in right.items() if name not in missing} | wrong


def quoted(text):
    """Return a text as a part of an address; half characters become question marks."""
    return quote(text.encode("utf-8", "replace"), safe="")


# Parts of an address that are seldom UTF-8.
QUOTED_BYTES = st.binary(max_size=12).map(lambda data: quote_from_bytes(data, safe=""))


def as_query(fields):
    return "&".join(f"{name}={quoted(str(value))}" for name, value in fields.items())


def on_one_line(text):
    """Return the value of one header, whatever the text contains."""
    return text.encode("utf-8", "replace").translate(None, CONTROL)


def examples(count):
    """Return settings with more examples than other properties have: a request is short."""
    factor = max(1, settings.default.max_examples // 10)
    return settings(max_examples=count * factor, suppress_health_check=list(HealthCheck))
