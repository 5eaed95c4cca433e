"""``python -m proof.picture OUT.svg HISTORY ...``: draw how limiters decide during a fault.

Each history is a panel: the decisions of each 100 ms, stacked, below the spans in which a fault was
active. The panels share the time axis, and each has its own scale. A call counts when it ended; one
that was never answered counts when it began. Callers that left are not counted: they asked for no
decision any more.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from gzip import BadGzipFile
from html import escape
from itertools import count
from pathlib import Path

from proof.checker.history import ADMITTED, REJECTED, SECOND_NS, UNKNOWN, History, read_history
from proof.harness.run import lines_of

STEP_NS = SECOND_NS // 10
STEP_S = STEP_NS / SECOND_NS
STEPS_A_SECOND = SECOND_NS // STEP_NS
NEAR_S = STEP_S  # a shorter gap between spans would not be seen in the bars
# Blue, grey and vermilion differ in lightness, too, so that the colour-blind can tell them apart.
COLOURS = {ADMITTED: "#0b4f8a", REJECTED: "#9aa7b4", UNKNOWN: "#d55e00"}
WORDS = {ADMITTED: "admitted", REJECTED: "rejected", UNKNOWN: "unknown: no decision"}
SHADE, MARK, TEXT, LINE = "#fdf0c4", "#7a5c00", "#222222", "#d8d8d8"

# Pixels: the picture, the margins of its plots, and the parts of a panel from top to bottom.
WIDTH, LEFT, RIGHT = 860, 104, 20
HEAD, TITLE, LANE, PLOT, GAP, FOOT = 60, 24, 14, 100, 16, 36
LEAST = 2  # height of a bar and width of a span: a single call and a short fault are seen

Span = tuple[float, float]  # seconds from the start of the run


class Unusable(Exception):
    """A file that is no history, or cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One run: its decisions in each step, and the spans of each fault."""

    title: str
    counts: Mapping[str, Sequence[int]]
    spans: Mapping[str, Sequence[Span]]

    @property
    def seconds(self) -> float:
        return len(self.counts[ADMITTED]) * STEP_S

    @property
    def most_a_second(self) -> int:
        """Return the decisions per second of the highest bar."""
        return max(map(sum, zip(*self.counts.values(), strict=True))) * STEPS_A_SECOND

    @property
    def height(self) -> int:
        return TITLE + LANE * len(self.spans) + PLOT + GAP

    def __str__(self) -> str:
        calls = ", ".join(f"{sum(self.counts[each]):,} {each}" for each in COLOURS)
        spans = [span for found in self.spans.values() for span in found]
        active_s = sum(end - begin for begin, end in joined(spans))
        return f"{self.title}: {calls}; a fault was active for {active_s:.1f} s."


# --- from histories to panels


def panel_in(path: Path) -> Panel:
    """Read a history and return its panel."""
    try:
        return panel_of(read_history(lines_of(path)))
    except (BadGzipFile, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{path} is not a whole history of a run (JSON lines in gzip)") from error
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from error


def panel_of(history: History) -> Panel:
    """Return the panel of a history; ValueError if nobody called in it."""
    start = min(each.before for each in history.operations)
    ends = max([history.finish_ns, *(each.end for each in history.faults)])
    counts = {outcome: [0] * ((ends - start) // STEP_NS + 1) for outcome in COLOURS}
    for each in history.decisions:
        if each.outcome in counts:
            counted_at = each.before if each.after is None else each.after
            counts[each.outcome][(counted_at - start) // STEP_NS] += 1
    spans: dict[str, list[Span]] = {}
    for struck in history.faults:
        span = (struck.begin - start) / SECOND_NS, (struck.end - start) / SECOND_NS
        spans.setdefault(struck.name.replace("_", " "), []).append(span)
    return Panel(
        title=f"{history.run['subject']}, {history.run['fault']}",
        counts=counts,
        spans={name: joined(found) for name, found in spans.items()},
    )


def joined(spans: Iterable[Span]) -> list[Span]:
    """Join spans that overlap or nearly touch."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin - found[-1][1] < NEAR_S:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def ticks(most: float, at_most: int) -> range:
    """Return 0 and the multiples of a round number up to ``most``: at most so many, at least 0."""
    rounds = (digit * 10**power for power in count() for digit in (1, 2, 5))
    step = next(each for each in rounds if most < at_most * each)
    return range(0, int(most) + 1, step)


# --- from panels to SVG


def svg(panels: Sequence[Panel]) -> str:
    """Return the picture; the same panels make the same text."""
    pixels = (WIDTH - LEFT - RIGHT) / max(each.seconds for each in panels)
    height = HEAD + sum(each.height for each in panels) + FOOT
    parts, top = [*_legend(len(panels) > 1)], HEAD
    for each in panels:
        parts += _panel(each, top, pixels)
        top += each.height
    parts += _time_axis(panels, top - GAP, pixels)
    body = "\n".join(parts)
    described = escape("\n".join(map(str, panels)))
    return f"""\
<svg viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" role="img"
  aria-labelledby="title desc" font-family="DejaVu Sans, sans-serif" font-size="13" fill="{TEXT}">
<title id="title">Decisions of limiters while faults are active</title>
<desc id="desc">{described}</desc>
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>
{body}
</svg>
"""


def _legend(has_scales: bool) -> Iterator[str]:
    """Yield the title and the meaning of the colours."""
    note = "; each panel has its own scale" if has_scales else ""
    yield _text(16, 24, "Decisions per second", 'font-weight="bold"')
    yield _text(178, 24, f"in steps of 100 ms{note}")
    meanings = [(COLOURS[each], WORDS[each]) for each in COLOURS]
    for place, (colour, words) in enumerate([*meanings, (SHADE, "fault active")]):
        x = 16 + 130 * place + (50 if colour == SHADE else 0)
        edge = f' stroke="{MARK}"' if colour == SHADE else ""
        yield f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"{edge}/>'
        yield _text(x + 18, 47, words)


def _panel(panel: Panel, top: int, pixels: float) -> Iterator[str]:
    """Yield one panel, from the back to the front."""
    ceiling = top + TITLE + LANE * len(panel.spans)
    yield _text(16, top + 14, panel.title, 'font-weight="bold"')
    for place, (name, spans) in enumerate(panel.spans.items()):
        yield from _lane(name, spans, top + TITLE + LANE * place, ceiling + PLOT, pixels)
    # Bars that are drawn higher than they are must not leave the plot.
    scale = (PLOT - LEAST * len(COLOURS)) / (panel.most_a_second or 1)
    yield from _scale(panel, ceiling + PLOT, scale, pixels)
    yield from _bars(panel, ceiling + PLOT, scale * STEPS_A_SECOND, pixels)
    yield _line(panel, ceiling + PLOT, pixels, TEXT)


def _lane(name: str, spans: Sequence[Span], top: int, bottom: int, pixels: float) -> Iterator[str]:
    """Yield the name and the spans of a fault, and the shade of each span down to the axis."""
    yield _text(LEFT - 8, top + 10, name, f'text-anchor="end" font-size="12" fill="{MARK}"')
    for begin, end in spans:
        place = f'x="{_x(begin, pixels)}" width="{max(LEAST, (end - begin) * pixels):.1f}"'
        yield f'<rect {place} y="{top}" height="{bottom - top}" fill="{SHADE}"/>'
        yield f'<rect {place} y="{top + 3}" height="6" fill="{MARK}"/>'


def _scale(panel: Panel, bottom: int, scale: float, pixels: float) -> Iterator[str]:
    """Yield the ticks of the y axis, in decisions per second."""
    for tick in ticks(panel.most_a_second, 3):
        y = bottom - tick * scale
        yield _line(panel, y, pixels, LINE)
        label = f"{tick:,}/s" if tick else "0"
        yield _text(LEFT - 8, y + 4, label, 'text-anchor="end" font-size="12"')


def _bars(panel: Panel, bottom: int, scale: float, pixels: float) -> Iterator[str]:
    """Yield the bars of each outcome, on those of the outcomes before."""
    floors = [float(bottom)] * len(panel.counts[ADMITTED])
    width = STEP_S * pixels
    for outcome, colour in COLOURS.items():
        path = ""
        for step, calls in enumerate(panel.counts[outcome]):
            if calls:
                height = max(LEAST, calls * scale)
                x, floor = _x(step * STEP_S, pixels), floors[step]
                path += f"M{x},{floor:.1f}h{width:.1f}v-{height:.1f}h-{width:.1f}z"
                floors[step] -= height
        about = f"{outcome}: {sum(panel.counts[outcome]):,} calls"
        # Without smoothed edges, so that no seam shows between bars.
        yield (
            f'<path fill="{colour}" shape-rendering="crispEdges" d="{path}">'
            f"<title>{about}</title></path>"
        )


def _time_axis(panels: Sequence[Panel], bottom: int, pixels: float) -> Iterator[str]:
    """Yield the ticks below the last panel, and what they mean."""
    for tick in ticks(max(each.seconds for each in panels), 16):
        x = _x(tick, pixels)
        yield f'<line x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}" stroke="{TEXT}"/>'
        yield _text(x, bottom + 17, str(tick), 'text-anchor="middle" font-size="12"')
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _text(middle, bottom + 36, "seconds from the start of the run", 'text-anchor="middle"')


def _line(panel: Panel, y: float, pixels: float, colour: str) -> str:
    """Return a line over the time of a panel."""
    ends = f'x1="{LEFT}" x2="{_x(panel.seconds, pixels)}"'
    return f'<line {ends} y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'


def _text(x: float | str, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y:.0f}" {style}>{escape(words)}</text>'


def _x(seconds: float, pixels: float) -> str:
    return f"{LEFT + seconds * pixels:.1f}"


# --- the command


def main(arguments: list[str] | None = None) -> int:
    """Draw the histories; argparse ends the process with 2 if one is unusable."""
    parser = argparse.ArgumentParser(
        prog="python -m proof.picture", description="Draw how limiters decide under faults."
    )
    parser.add_argument("out", metavar="OUT.svg", type=Path, help="the picture")
    parser.add_argument("histories", metavar="HISTORY", type=Path, nargs="+", help="of a run")
    options = parser.parse_args(arguments)
    try:
        _write(options.out, svg([panel_in(path) for path in options.histories]))
    except Unusable as error:
        parser.error(str(error))
    return 0


def _write(path: Path, content: str) -> None:
    if path.suffix != ".svg":  # who forgot the name of the picture would lose a history
        raise Unusable(f"{path} is not the name of a picture: it does not end in .svg")
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise Unusable(f"{path} cannot be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
