"""Changes: previewed, confirmed, logged, and never over somebody else's."""

import html
import re
import shlex
from decimal import Decimal

import pytest

from zae_limiter import Limit
from zae_limiter.naming import process_author
from zae_limiter_ops.cli.app import app


def fields_of(text):
    """Return the hidden fields of a preview."""
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', text)
    return {name: html.unescape(value) for name, value in found}


def command_of(text):
    return shlex.split(
        html.unescape(re.search(r"<pre><code>(.*?)</code></pre>", text, re.DOTALL)[1])
    )


def preview(client, name, **fields):
    status, text = client.post(f"actions/{name}", step="preview", **fields)
    assert status == 200, text
    return text


def confirm(client, name, text):
    status, text = client.post(f"actions/{name}", step="confirm", **fields_of(text))
    assert status == 200, text
    return text


@pytest.mark.parametrize(
    ("name", "fields", "command"),
    [
        ("pause", {"seconds": "30"}, "bucket pause acme-web gpt-4 30"),
        ("pause", {"seconds": "0"}, "bucket pause acme-web gpt-4 0"),
        ("top-up", {"amounts": "rpd=2"}, "bucket top-up acme-web gpt-4 -a rpd=2"),
        ("reset", {}, "bucket reset acme-web gpt-4 --yes"),
        (
            "set-limits",
            {"limits": "rpd:99/day", "before": ""},
            "entity set-limits acme-web --resource gpt-4 -l rpd:99/day",
        ),
        ("delete-limits", {}, "entity delete-limits acme-web --resource gpt-4 --yes"),
        (
            "set-parent",
            {"parent": "globex", "cascade": "on"},
            "entity set-parent acme-web globex --cascade --force",
        ),
        ("set-parent", {"parent": ""}, "entity set-parent acme-web --none"),
    ],
)
def test_a_preview_changes_nothing_and_names_the_command(page, name, fields, command):
    before = page.repository.get_audit_events()
    text = preview(page.client(), name, entity="acme-web", resource="gpt-4", **fields)
    words = command_of(text)
    assert words == ["zae-limiter", *command.split()]
    assert page.repository.get_audit_events() == before
    # The command line takes it as it stands.
    context = app.make_context("zae-limiter", words[1:], resilient_parsing=False)
    group = app.get_command(context, words[1])
    command_class = group.get_command(context, words[2])
    command_class.make_context(words[2], words[3:], parent=context)


def test_a_confirmed_pause_is_logged_with_the_user_of_the_system(page):
    client = page.client()
    text = preview(client, "pause", entity="acme-web", resource="gpt-4", seconds="120")
    assert "is paused" in confirm(client, "pause", text)
    event = page.repository.get_audit_events("acme-web")[0]
    assert (event.action, event.principal) == ("bucket_paused", process_author())
    assert "paused" in client.page("entity/live", id="acme-web")
    text = preview(client, "pause", entity="acme-web", resource="gpt-4", seconds="0")
    confirm(client, "pause", text)
    assert page.repository.get_buckets("acme-web")[0].paused_until_ms is None


def test_a_preview_warns_of_names_that_were_never_seen(page):
    client = page.client()
    for name, fields in (
        ("pause", {"entity": "acmee", "resource": "gpt-4", "seconds": "30"}),
        ("set-limits", {"entity": "acmee", "resource": "gpt-4", "limits": "rpd:9/day"}),
        ("set-parent", {"entity": "acme-web", "parent": "acmee"}),
    ):
        text = html.unescape(preview(client, name, **fields))
        assert "'acmee' is not known (did you mean 'acme'" in text
    text = html.unescape(
        preview(client, "pause", entity="acme-web", resource="gtp-4", seconds="30")
    )
    assert "resource 'gtp-4' is not known (did you mean 'gpt-4'?)" in text
    text = preview(client, "pause", entity="acme-web", resource="gpt-4", seconds="30")
    assert "is not known" not in text


def test_tokens_are_added_and_a_bucket_is_filled(page):
    client = page.client()
    text = preview(client, "top-up", entity="debtor", resource="gpt-4", amounts="tpd=350")
    assert "-300" in text
    confirm(client, "top-up", text)
    assert page.repository.get_bucket("debtor", "gpt-4", "tpd").tokens >= 49
    confirm(client, "reset", preview(client, "reset", entity="debtor", resource="gpt-4"))
    assert page.repository.get_bucket("debtor", "gpt-4", "tpd").tokens == 1000


@pytest.mark.parametrize(
    ("level", "stored"),
    [
        ({"entity": "", "resource": ""}, lambda repo: repo.get_system_defaults()[0]),
        ({"entity": "", "resource": "gpt-4"}, lambda repo: repo.get_resource_defaults("gpt-4")),
        ({"entity": "acme", "resource": "gpt-4"}, lambda repo: repo.get_limits("acme", "gpt-4")),
        ({"entity": "acme", "resource": ""}, lambda repo: repo.get_limits("acme")),
    ],
)
def test_limits_of_every_level_are_edited(page, level, stored):
    client = page.client()
    form = client.page("actions/set-limits", **level)
    fields = fields_of(form) | {"limits": "rpd:7/day\nparallel:3/concurrent"}
    fields.pop("step")
    text = preview(client, "set-limits", **fields)
    confirm(client, "set-limits", text)
    assert stored(page.repository) == [Limit.per_day("rpd", 7), Limit.concurrent("parallel", 3)]


def test_the_form_begins_with_the_limits_in_force(page):
    client = page.client()
    text = html.unescape(client.page("actions/set-limits", entity="new", resource="gpt-4"))
    [shown] = re.findall(r"<textarea[^>]*>(.*?)</textarea>", text, re.DOTALL)
    assert shown.split() == ["rpd:10/day", "tpd:1000/day"]
    assert "Stored now: none" in text
    assert "(resource defaults); a limit that you remove below no longer applies here" in text
    fields = fields_of(text) | {"limits": "tpd:500/day"}
    fields.pop("step")
    text = html.unescape(preview(client, "set-limits", **fields))
    assert re.search(r"rpd</td>.*?rpd 10/day \(resource defaults\)</td>.*?none", text, re.DOTALL)
    confirm(client, "set-limits", text)
    assert page.repository.get_limits("new", "gpt-4") == [Limit.per_day("tpd", 500)]


def test_a_preview_for_all_resources_names_what_no_longer_applies_on_each(page):
    client = page.client()
    fields = {"entity": "new", "resource": "", "before": ""}
    text = html.unescape(preview(client, "set-limits", limits="tpd:5/day", **fields))
    assert "rpd on gpt-4" in text
    assert "rpm on other resources" in text
    assert "rpm 60/min (system defaults)" in text


LEVELS = [
    ({}, "system delete-defaults --yes", lambda repo: repo.get_system_defaults()[0]),
    (
        {"resource": "gpt-4"},
        "resource delete-defaults gpt-4 --yes",
        lambda repo: repo.get_resource_defaults("gpt-4"),
    ),
    (
        {"entity": "acme", "resource": "gpt-4"},
        "entity delete-limits acme --resource gpt-4 --yes",
        lambda repo: repo.get_limits("acme", "gpt-4"),
    ),
    ({"entity": "acme"}, "entity delete-limits acme --yes", lambda repo: repo.get_limits("acme")),
]


@pytest.mark.parametrize(("level", "command", "stored"), LEVELS)
def test_limits_of_every_level_are_deleted(page, level, command, stored):
    page.repository.set_limits("acme", [Limit.per_day("rpd", 5)])
    client, before = page.client(), stored(page.repository)
    text = client.page("actions/delete-limits", **level)
    assert command_of(text) == ["zae-limiter", *command.split()]
    assert stored(page.repository) == before != []
    assert "are deleted" in confirm(client, "delete-limits", text)
    assert stored(page.repository) == []
    event = page.repository.get_audit_events(limit=1)[0]
    assert (event.action, event.principal) == ("limits_deleted", process_author())
    again = client.page("actions/delete-limits", **level)
    assert "Nothing would change" in again


def test_the_preview_of_a_deletion_names_what_applies_afterwards(page):
    client = page.client()
    text = client.page("actions/delete-limits", entity="acme", resource="gpt-4")
    assert "Afterwards the defaults of gpt-4 apply: rpd 10/day" in text
    text = client.page("actions/delete-limits", resource="gpt-4")
    assert "Afterwards the system defaults apply: rpm 60/min" in text
    assert "Touches 4 entities" in text
    assert "will fail" in client.page("actions/delete-limits")


@pytest.mark.parametrize(("level", "command", "stored"), LEVELS)
def test_limits_that_were_changed_meanwhile_are_not_deleted(page, level, command, stored):
    page.repository.set_limits("acme", [Limit.per_day("rpd", 5)])
    client, theirs = page.client(), [Limit.per_day("rpd", 500)]
    seen = client.page("actions/delete-limits", **level)
    if "entity" in level:
        page.repository.set_limits("acme", theirs, level.get("resource", "_default_"), "mia")
    elif level:
        page.repository.set_resource_defaults("gpt-4", theirs, "mia")
    else:
        page.repository.set_system_defaults(theirs, principal="mia")
    status, text = client.post("actions/delete-limits", step="confirm", **fields_of(seen))
    assert status == 409
    assert "mia" in text
    assert "Nothing was deleted" in text
    assert stored(page.repository) == theirs
    # The answer shows the limits that are stored now; confirming it deletes these.
    confirm(client, "delete-limits", text)
    assert stored(page.repository) == []


def test_links_delete_only_limits_that_are_stored(page):
    client = page.client()
    assert "actions/delete-limits" in client.page("limits")
    assert "actions/delete-limits?entity=acme&amp;resource=gpt-4" in client.page(
        "entity", id="acme"
    )
    assert "actions/delete-limits" not in client.page("entity", id="close-1")
    assert "actions/delete-limits" in client.page("resource", name="gpt-4")


def test_money_is_topped_up_and_explained(page):
    limits = [Limit.quota("tokens", 1000, per="day"), Limit.budget("usd", "10.00", per="month")]
    page.limiter.set_limits("payer", limits, "gpt-4")
    with page.limiter.acquire("payer", "gpt-4", {"tokens": 100, "usd": "2.50"}):
        pass
    client = page.client()
    words = "usd=0.75 tokens=500"
    text = preview(client, "top-up", entity="payer", resource="gpt-4", amounts=words)
    assert "7.50 USD" in text
    assert "8.25 USD" in text
    assert "<strong>1,400</strong>" in text  # a quota may rise above its amount
    assert command_of(text)[-4:] == ["-a", "usd=0.75", "-a", "tokens=500"]
    confirm(client, "top-up", text)
    states = {each.limit_name: each.available for each in page.repository.get_buckets("payer")}
    assert states == {"tokens": 1400, "usd": Decimal("8.25")}
    text = preview(client, "reset", entity="payer", resource="gpt-4")
    assert "10.00 USD" in text
    confirm(client, "reset", text)
    states = {each.limit_name: each.available for each in page.repository.get_buckets("payer")}
    assert states == {"tokens": 1000, "usd": Decimal("10.00")}
    text = client.page("entity/explain", id="payer", resource="gpt-4", amounts="usd=0.25")
    assert "zae-limiter explain payer gpt-4 -c usd=0.25" in text


def test_a_preview_of_defaults_counts_the_entities_that_it_touches(page):
    client = page.client()
    text = preview(client, "set-limits", entity="", resource="gpt-4", limits="rpd:7/day", before="")
    assert "Touches 4 entities" in text  # acme has limits of its own
    assert ">acme</a>" not in text


def test_limits_that_somebody_else_has_changed_are_not_overwritten(page):
    client = page.client()
    form = client.page("actions/set-limits", entity="", resource="gpt-4")
    fields = fields_of(form) | {"limits": "rpd:7/day"}
    fields.pop("step")
    text = preview(client, "set-limits", **fields)
    theirs = [Limit.per_day("rpd", 500)]
    page.repository.set_resource_defaults("gpt-4", theirs, principal="mia")
    status, text = client.post("actions/set-limits", step="confirm", **fields_of(text))
    assert status == 409
    assert "mia" in text
    assert "rpd 500/day" in text
    assert page.repository.get_resource_defaults("gpt-4") == theirs
    # The typed text is kept, and may be confirmed against the limits that are stored now.
    again = fields_of(text) | {"limits": "rpd:7/day"}
    again.pop("step")
    confirm(client, "set-limits", preview(client, "set-limits", **again))
    assert page.repository.get_resource_defaults("gpt-4") == [Limit.per_day("rpd", 7)]


def test_a_parent_that_was_changed_meanwhile_is_not_overwritten(page):
    client = page.client()
    text = preview(client, "set-parent", entity="acme-web", parent="globex", cascade="on")
    page.repository.set_parent("acme-web", "initech")
    status, text = client.post("actions/set-parent", step="confirm", **fields_of(text))
    assert status == 400
    assert "changed meanwhile" in text
    assert page.repository.get_entity("acme-web").parent_id == "initech"
    confirm(client, "set-parent", preview(client, "set-parent", entity="acme-web", parent=""))
    assert page.repository.get_entity("acme-web").parent_id is None


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("pause", {"seconds": "601"}),
        ("pause", {"seconds": "long"}),
        ("top-up", {"amounts": ""}),
        ("top-up", {"amounts": "rpd=-5"}),
        ("set-limits", {"limits": "rpd"}),
        ("set-limits", {"limits": ""}),
        ("top-up", {"amounts": "rpd=0.5"}),
        ("delete-limits", {"resource": "#"}),
        ("reset", {"entity": ""}),
        ("reset", {"resource": "#"}),
        ("nonsense", {}),
    ],
)
def test_a_wrong_value_is_told(page, name, fields):
    fields = {"entity": "acme-web", "resource": "gpt-4", **fields}
    status, _ = page.client().post(f"actions/{name}", step="preview", **fields)
    assert status == 400


def test_an_entity_that_does_not_exist_has_no_parent_to_set(page):
    status, text = page.client().post(
        "actions/set-parent", step="preview", entity="nobody", parent="acme"
    )
    assert status == 404
    assert "does not exist" in text


def test_changes_name_money_in_currency_units(page):
    page.repository.set_resource_defaults("gpt-5", [Limit.budget("usd", "5.00", per="month")])
    with page.limiter.acquire("acme-web", "gpt-5", {"usd": "4.50"}):
        pass
    page.repository.top_up("acme-web", "gpt-5", {"usd": "2.25"})
    page.repository.reset_bucket("acme-web", "gpt-5")
    shown = page.client().page("entity", id="acme-web")
    assert "added usd 2.25" in shown
    assert "forgiven usd 2.25" in shown
