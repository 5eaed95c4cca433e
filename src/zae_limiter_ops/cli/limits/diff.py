"""Plans and drift as text: a line for each target with its limits below, and a summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zae_limiter_ops.cli.shared.tables import print_line
from zae_limiter_ops.views.formatting import count_of, describe_limits, format_number, format_time

if TYPE_CHECKING:
    from zae_limiter_ops.manifest.targets import Target

Document = dict[str, Any]

MARKS = {"create": "+", "update": "~", "delete": "-"}
COLOURS = {"+": "green", "~": "yellow", "-": "red"}


def print_plan(plan: Document) -> None:
    """Print every change, and the number of changes."""
    for change in plan["changes"]:
        _print_marked(MARKS[change["action"]], str(_target(change)))
        for mark, line in _setting_lines(change["before"], change["after"]):
            _print_marked(mark, line, indent=4)
    if plan["changes"]:
        print_line("")
    print_line(f"plan: {_counts(plan['create'], plan['update'], plan['delete'])}{_rest(plan)}")


def print_applied(result: Document) -> None:
    counts = _counts(result["created"], result["updated"], result["deleted"], done=True)
    print_line(f"applied: {counts}{_rest(result)}")


def print_drift(drifts: list[Document]) -> None:
    """Print the difference of each target from the manifest, and its last change."""
    for drift in drifts:
        declared, live = drift["declared"], drift["live"]
        mark = "-" if live is None else "+" if declared is None else "~"
        _print_marked(mark, f"{_target(drift)}: {_reason(drift)}")
        for inner, line in _setting_lines(declared, live):
            _print_marked(inner, line, indent=4)
    if not drifts:
        print_line("no drift: the stored settings match the manifest")
        return
    by_hand = sum(drift["cause"] == "by_hand" for drift in drifts)
    print_line("")
    print_line(
        f"drift: {count_of(len(drifts), 'difference')}, {format_number(by_hand)} by hand; "
        "+ marks a stored setting that is not declared, - a declared setting that is not stored"
    )


def _reason(drift: Document) -> str:
    if drift["cause"] == "by_hand":
        reason = "deleted by hand" if drift["live"] is None else "changed by hand"
    else:
        reason = "not applied yet"
    if drift["changed_at"] is None:
        return reason
    author = drift["principal"] or "an unnamed principal"
    return f"{reason}, last change by {author} at {format_time(drift['changed_at'])}"


def _counts(create: int, update: int, delete: int, *, done: bool = False) -> str:
    if not (create or update or delete):
        return "no changes"
    words = ("created", "updated", "deleted") if done else ("to create", "to update", "to delete")
    numbers = (create, update, delete)
    return ", ".join(
        f"{format_number(number)} {word}" for number, word in zip(numbers, words, strict=True)
    )


def _rest(counts: Document) -> str:
    adopted = counts["adopt"] if "adopt" in counts else counts["adopted"]
    unchanged = counts["unchanged"]
    text = f", {format_number(adopted)} as declared and now managed" if adopted else ""
    return f"{text}, {format_number(unchanged)} unchanged" if unchanged else text


def _target(document: Document) -> Target:
    from zae_limiter_ops.manifest.targets import Target, TargetKind

    kind = TargetKind(document["kind"])
    return Target(kind, document["entity_id"] or "", document["resource"] or "")


def _setting_lines(before: Document | None, after: Document | None) -> Iterator[tuple[str, str]]:
    """Yield the fields of a setting that differ, each with its mark."""
    old, new = _fields(before), _fields(after)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield "-", old[name]
        elif name not in old:
            yield "+", new[name]
        elif old[name] != new[name]:
            yield "~", f"{old[name]} -> {new[name]}"


def _fields(setting: Document | None) -> dict[str, str]:
    """Return a description of each field of a setting."""
    if setting is None:
        return {}
    from zae_limiter_ops.manifest.declarations import declared_limit

    fields = {
        name: describe_limits([declared_limit(name, declared)])
        for name, declared in setting.get("limits", {}).items()
    }
    if setting.get("parent") is not None:
        charged = "charged by every acquire" if setting["cascade"] else "not charged"
        fields["parent"] = f"parent {setting['parent']!r}, {charged}"
    if setting.get("on_unavailable") is not None:
        fields["on_unavailable"] = f"in an outage: {setting['on_unavailable']}"
    if setting.get("mode") is not None:
        fields["mode"] = setting["mode"]
    return fields


def _print_marked(mark: str, text: str, *, indent: int = 0) -> None:
    line = f"{mark} {text}"
    print_line(f"{' ' * indent}{line}", styles={line: COLOURS[mark]})
