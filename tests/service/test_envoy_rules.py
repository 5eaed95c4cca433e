"""The file of rules, and the decision about descriptors, without Envoy."""

import asyncio
import json
import time

import grpc
import pytest
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from envoy.type.v3 import ratelimit_unit_pb2

from zae_limiter import Limit
from zae_limiter.testing import outage
from zae_limiter_service.envoy.rules import read_rules
from zae_limiter_service.files import FileError

OK, OVER = rls_pb2.RateLimitResponse.OK, rls_pb2.RateLimitResponse.OVER_LIMIT
UNKNOWN = rls_pb2.RateLimitResponse.UNKNOWN
RULES = """
domains:
  gateway:
    descriptors:
      - match: {api_key: "*", model: "*"}
        entity: "key-{api_key}"
        resource: "{model}"
        amounts: {rpd: 1, tpd: hits}
      - match: {tenant: "*"}
        entity: "{tenant}"
        resource: gpt-4
        amounts: {tpd: hits}
      - match: {generic_key: health}
        unlimited: true
  elsewhere:
    namespace: other
    descriptors:
      - {match: {tenant: "*"}, entity: "{tenant}", resource: gpt-4, amounts: {tpd: hits}}
"""

WEEK = rls_pb2.RateLimitResponse.RateLimit.WEEK  # Envoy's own descriptors have it since later


def descriptor(hits=None, limit=None, **entries):
    made = ratelimit_pb2.RateLimitDescriptor()
    for key, value in entries.items():
        made.entries.add(key=key, value=value)
    if hits is not None:
        made.hits_addend.value = hits
    if limit is not None:
        amount, unit = limit
        made.limit.requests_per_unit = amount
        made.limit.unit = ratelimit_unit_pb2.RateLimitUnit.Value(unit)
    return made


def asker(service):
    """Return a function that asks a service; it raises what gRPC raises."""

    def ask(*descriptors, domain="gateway", hits=0, metadata=None):
        request = rls_pb2.RateLimitRequest(domain=domain, descriptors=descriptors, hits_addend=hits)
        with grpc.insecure_channel(f"127.0.0.1:{service.settings.grpc_port}") as channel:
            stub = rls_pb2_grpc.RateLimitServiceStub(channel)
            return stub.ShouldRateLimit(request, timeout=30, metadata=metadata)

    return ask


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "envoy.yaml"
    path.write_text(RULES, encoding="utf-8")
    return path


@pytest.fixture
def ask(serve, rules):
    return asker(serve(grpc_port=0, rules=rules))


def named(hits=None, **entries):
    """A descriptor whose entry is called ``limit``, beside an override of the same name."""
    made = descriptor(hits)
    for key, value in entries.items():
        made.entries.add(key=key.rstrip("_"), value=value)
    return made


def test_without_rules_the_entries_name_entity_and_resource(serve, limiter):
    limiter.set_resource_defaults("gpt-4", [Limit.per_day("rpm", 3)])
    ask = asker(serve(grpc_port=0))
    of_user = named(entity="user-1", resource="gpt-4")
    codes = [ask(of_user, domain="any").overall_code for _ in range(4)]
    assert codes == [OK, OK, OK, OVER]
    with pytest.raises(grpc.RpcError) as caught:
        ask(named(user="user-1"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_entry_names_another_limit(serve, limiter):
    ask = asker(serve(grpc_port=0))
    ask(named(entity="user-1", resource="gpt-4", limit_="tpd"), hits=30)
    assert limiter.available("user-1", "gpt-4") == {"rpd": 100, "tpd": 9970}


def test_rules_map_entries_and_count_hits(ask, limiter):
    answer = ask(descriptor(api_key="7", model="gpt-4"), hits=25)
    assert answer.overall_code == OK
    assert limiter.available("key-7", "gpt-4") == {"rpd": 99, "tpd": 9975}


def test_hits_are_one_by_default_and_a_descriptor_has_its_own(ask, limiter):
    ask(descriptor(tenant="a"), descriptor(tenant="b", hits=7))
    ask(descriptor(tenant="c", hits=0), hits=5)
    left = [limiter.available(name, "gpt-4")["tpd"] for name in "abc"]
    assert left == [9999, 9993, 10_000]


def test_all_descriptors_are_charged_or_none(ask, limiter):
    limiter.set_limits("small", [Limit.per_day("tpd", 10)], "gpt-4")
    first, small, last = (descriptor(tenant=name) for name in ("first", "small", "last"))
    answer = ask(first, small, last, hits=11)
    assert answer.overall_code == OVER
    assert [status.code for status in answer.statuses] == [OK, OVER, OK]
    left = [limiter.available(name, "gpt-4")["tpd"] for name in ("first", "small", "last")]
    assert left == [10_000, 10, 10_000]
    assert ask(first, small, last, hits=10).overall_code == OK


def test_many_descriptors_are_charged_or_none_as_well(ask, limiter):
    """More buckets than one acquire can take; those after the rejection are not looked at."""
    limiter.set_limits("small", [Limit.per_day("tpd", 10)], "gpt-4")
    names = ["a", "b", "c", "d", "small", "e", "f", "g", "h"]
    descriptors = [descriptor(tenant=name) for name in names]
    answer = ask(*descriptors, hits=11)
    assert answer.overall_code == OVER
    codes = [status.code for status in answer.statuses]
    assert codes == [OK, OK, OK, OK, OVER, OK, OK, OK, UNKNOWN]
    assert {limiter.available(name, "gpt-4")["tpd"] for name in names} == {10, 10_000}
    assert ask(*descriptors, hits=10).overall_code == OK
    assert {limiter.available(name, "gpt-4")["tpd"] for name in names} == {0, 9990}


def test_overrides_of_several_descriptors_are_charged_or_none(ask, limiter):
    one, two = descriptor(tenant="o", limit=(2, "HOUR")), descriptor(tenant="p", limit=(1, "HOUR"))
    plain = descriptor(tenant="q")
    codes = [ask(plain, one, two).overall_code for _ in range(2)]
    assert codes == [OK, OVER]
    assert limiter.available("q", "gpt-4")["tpd"] == 9999
    assert ask(one).overall_code == OK


def test_in_an_outage_an_allowing_policy_admits(serve, rules, limiter):
    limiter.set_system_defaults(limiter.get_resource_defaults("gpt-4"), "allow")
    service = serve(grpc_port=0, rules=rules)
    ask = asker(service)
    of_two = descriptor(tenant="a"), descriptor(tenant="b")
    assert ask(*of_two).overall_code == OK  # the policy is known from now on
    with outage(service.worker.stores.root):
        answer = ask(*of_two)
    assert answer.overall_code == OK
    assert [status.code for status in answer.statuses] == [OK, OK]
    assert limiter.available("a", "gpt-4")["tpd"] == 9999


def test_a_parent_that_rejects_is_shown_with_its_child(ask, limiter):
    limiter.create_entity("org")
    limiter.create_entity("member", parent_id="org", cascade=True)
    limiter.set_limits("org", [Limit.per_day("tpd", 5)], "gpt-4")
    answer = ask(descriptor(tenant="member"), descriptor(tenant="other"), hits=6)
    assert answer.overall_code == OVER
    assert answer.statuses[0].code == OVER
    assert answer.statuses[0].current_limit.requests_per_unit == 5
    assert limiter.available("other", "gpt-4")["tpd"] == 10_000


def test_descriptors_about_one_bucket_are_one_charge(ask, limiter):
    limiter.set_limits("small", [Limit.per_day("tpd", 10)], "gpt-4")
    twice = descriptor(tenant="small"), descriptor(tenant="small")
    assert ask(*twice, hits=6).overall_code == OVER
    assert limiter.available("small", "gpt-4")["tpd"] == 10
    assert ask(*twice, hits=5).overall_code == OK
    assert limiter.available("small", "gpt-4")["tpd"] == 0


def test_statuses_tell_the_rest_and_the_time(ask, limiter):
    limiter.set_limits("small", [Limit.per_minute("tpd", 100)], "gpt-4")
    [status] = ask(descriptor(tenant="small"), hits=40).statuses
    limit = status.current_limit
    assert (limit.name, limit.requests_per_unit) == ("tpd", 100)
    assert limit.unit == rls_pb2.RateLimitResponse.RateLimit.MINUTE
    assert status.limit_remaining == 60
    assert 0 < status.duration_until_reset.seconds <= 24
    answer = ask(descriptor(tenant="small"), hits=90)
    [rejected] = answer.statuses
    assert rejected.code == OVER
    assert 10 <= rejected.duration_until_reset.seconds <= 18
    headers = {each.key.lower(): each.value for each in answer.response_headers_to_add}
    assert int(headers["retry-after"]) in range(10, 19)
    assert '"tpd"' in headers["ratelimit"]
    assert b"rate_limit_exceeded" in answer.raw_body


def test_quotas_are_used_and_not_only_held(ask, limiter):
    limiter.set_limits("q", [Limit.quota("tpd", 10, per="month")], "gpt-4")
    answers = [ask(descriptor(tenant="q"), hits=4).overall_code for _ in range(3)]
    assert answers == [OK, OK, OVER]
    [status] = limiter.check_availability("q", "gpt-4").statuses
    assert (status.used, status.held) == (8, 0)


def test_a_budget_is_not_shown_as_a_number_of_requests(ask, limiter):
    budget = Limit.budget("usd", "1.00", per="month")
    limiter.set_limits("b", [budget, Limit.per_minute("tpd", 100)], "gpt-4")
    with limiter.acquire("b", "gpt-4", {"usd": "1.01"}, mode="shadow"):
        pass
    with limiter.acquire("b", "gpt-4", {"tpd": 1}) as lease:
        lease.adjust(usd="1.50")
    [status] = ask(descriptor(tenant="b")).statuses
    assert status.code == OVER
    assert not status.HasField("current_limit")
    assert status.duration_until_reset.seconds > 0


def test_an_override_replaces_the_stored_limit(ask, limiter):
    codes = [ask(descriptor(tenant="o", limit=(2, "HOUR"))).overall_code for _ in range(3)]
    assert codes == [OK, OK, OVER]
    [status] = ask(descriptor(tenant="m", limit=(5, "MONTH"))).statuses
    assert (status.current_limit.requests_per_unit, status.limit_remaining) == (5, 4)


def test_a_newer_envoy_may_set_a_limit_per_week(ask):
    weekly = descriptor(tenant="a", limit=(5, "SECOND"))
    weekly.limit.unit = WEEK
    [status] = ask(weekly, hits=2).statuses
    assert (status.current_limit.unit, status.limit_remaining) == (WEEK, 3)


def test_a_unit_that_is_not_known_yet_is_an_error_and_no_admission(ask):
    odd = descriptor(tenant="a", limit=(5, "SECOND"))
    odd.limit.unit = 99
    with pytest.raises(grpc.RpcError) as caught:
        ask(odd)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "limit.unit" in caught.value.details()


def test_an_unlimited_descriptor_is_admitted(ask, limiter):
    answer = ask(descriptor(generic_key="health"))
    assert answer.overall_code == OK
    assert [status.code for status in answer.statuses] == [OK]


def test_a_domain_leads_to_its_namespace(ask, limiter):
    with pytest.raises(grpc.RpcError) as caught:
        ask(descriptor(tenant="t"), domain="elsewhere")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    limiter.repository.register_namespace("other")
    other = limiter.repository.namespace("other")
    other.set_resource_defaults("gpt-4", [Limit.per_day("tpd", 5)])
    assert ask(descriptor(tenant="t"), domain="elsewhere", hits=5).overall_code == OK
    assert limiter.available("t", "gpt-4")["tpd"] == 10_000


@pytest.mark.parametrize(
    ("options", "descriptors"),
    [
        ({"domain": "unknown"}, [descriptor(tenant="t")]),
        ({}, [descriptor(colour="red")]),
        ({}, []),
        ({}, [descriptor(tenant="t")] * 65),
        ({}, [descriptor(tenant="#")]),
        ({}, [descriptor(tenant="t", hits=2**63)]),
    ],
)
def test_a_request_without_meaning_is_an_error_and_no_admission(ask, limiter, options, descriptors):
    with pytest.raises(grpc.RpcError) as caught:
        ask(*descriptors, **options)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert limiter.available("t", "gpt-4")["tpd"] == 10_000


def test_a_token_is_needed(serve, rules, tokens, limiter):
    ask = asker(serve(grpc_port=0, rules=rules, no_auth=False, tokens=tokens))
    for metadata in (None, [("authorization", "Bearer nonsense")]):
        with pytest.raises(grpc.RpcError) as caught:
            ask(descriptor(tenant="t"), metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.RpcError) as caught:
        ask(descriptor(tenant="t"), metadata=[("authorization", "Bearer secret-reader")])
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    metadata = [("authorization", "Bearer secret-gateway")]
    assert ask(descriptor(tenant="t"), metadata=metadata).overall_code == OK
    assert limiter.available("t", "gpt-4")["tpd"] == 9999


def test_each_request_is_a_line_of_the_log_also_if_it_fails(serve, rules, tokens, tmp_path):
    log = tmp_path / "access.log"
    options = {"no_auth": False, "tokens": tokens, "access_log": str(log)}
    ask = asker(serve(grpc_port=0, rules=rules, **options))
    metadata = [("authorization", "Bearer secret-gateway")]
    ask(descriptor(tenant="secret-entity"), metadata=metadata)
    for asked in ({"metadata": None}, {"metadata": metadata, "domain": "unknown"}):
        with pytest.raises(grpc.RpcError):
            ask(descriptor(tenant="secret-entity"), **asked)
    text = log.read_text(encoding="utf-8")
    lines = list(map(json.loads, text.splitlines()))
    assert [(line["status"], line["caller"], line["namespace"]) for line in lines] == [
        ("OK", "gateway", "default"),
        ("UNAUTHENTICATED", None, None),
        ("INVALID_ARGUMENT", "gateway", None),
    ]
    assert [line.get("result") for line in lines] == ["granted", None, None]
    assert "secret-" not in text


def test_changed_rules_are_in_force_without_a_restart(serve, rules, limiter):
    service = serve(grpc_port=0, rules=rules)
    ask = asker(service)
    ask(descriptor(tenant="t"))
    rules.write_text(RULES.replace('"{tenant}"', '"new-{tenant}"'), encoding="utf-8")
    give_up_at = time.monotonic() + 30
    while limiter.available("new-t", "gpt-4")["tpd"] == 10_000:
        assert time.monotonic() < give_up_at
        ask(descriptor(tenant="t"))
        time.sleep(0.1)
    before = limiter.available("new-t", "gpt-4")["tpd"]
    rules.write_text("domains: 7\n", encoding="utf-8")
    time.sleep(1.2)
    ask(descriptor(tenant="t"))
    assert limiter.available("new-t", "gpt-4")["tpd"] == before - 1
    assert service.client().metric("file_reload_errors_total") == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("domains:", "domain:", 2, "'domain' is unknown"),
        ('"key-{api_key}"', '"key-{colour}"', 6, "{colour} is not an entry of match"),
        ('"key-{api_key}"', '"key-{api_key"', 6, "brace"),
        ("tpd: hits}\n      - match: {tenant", "tpd: many}\n      - match: {tenant", 8, "hits"),
        ("rpd: 1", "rpd: -1", 8, "whole number"),
        ("{rpd: 1, tpd: hits}", "{}", 8, "at least one limit"),
        ("{rpd: 1,", "{wcu: 1,", 8, "reserved"),
        ("unlimited: true", "unlimited: false", 14, "must be true"),
        ("namespace: other", "namespace: '-'", 16, "'-'"),
        ("resource: gpt-4\n", "resources: gpt-4\n", 11, "'resources' is unknown"),
        ("match: {generic_key: health}", "match: {}", 13, "at least one entry"),
    ],
)
def test_a_mistake_in_the_rules_is_told_with_its_line(tmp_path, old, new, line, reason):
    path = tmp_path / "envoy.yaml"
    assert old in RULES
    path.write_text(RULES.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FileError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path}:{line}: "), str(caught.value)
    assert reason in str(caught.value)


def answers_of_many(requests, *services):
    """Send requests at the same time, to services in turn; return their overall codes."""

    async def main():
        ports = [service.settings.grpc_port for service in services]
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}") for port in ports]
        stubs = [rls_pb2_grpc.RateLimitServiceStub(channel) for channel in channels]
        calls = [
            stubs[number % len(stubs)].ShouldRateLimit(request, timeout=60)
            for number, request in enumerate(requests)
        ]
        codes = [(await call).overall_code for call in calls]
        for channel in channels:
            await channel.close()
        return codes

    return asyncio.run(main())


def request_of(*tenants):
    descriptors = [descriptor(tenant=name) for name in tenants]
    return rls_pb2.RateLimitRequest(domain="gateway", descriptors=descriptors)


def test_concurrent_requests_never_exceed_a_limit(serve, rules, limiter):
    limiter.set_limits("small", [Limit.per_day("tpd", 40)], "gpt-4")
    service = serve(grpc_port=0, rules=rules)
    codes = answers_of_many([request_of("big", "small")] * 100, service)
    assert (codes.count(OK), codes.count(OVER)) == (40, 60)
    assert limiter.available("big", "gpt-4")["tpd"] == 9960
    assert limiter.available("small", "gpt-4")["tpd"] == 0


def test_requests_that_share_limits_never_reject_each_other_in_vain(serve, rules, limiter):
    """If each took one limit and then found the other one taken, both would be rejected."""
    names = [f"t{number}" for number in range(200)]
    limiter.set_resource_defaults("gpt-4", [Limit.per_day("tpd", 1)])
    services = serve(grpc_port=0, rules=rules), serve(grpc_port=0, rules=rules)
    requests = [
        request_of(*pair)
        for first, second in zip(names[::2], names[1::2], strict=True)
        for pair in ((first, second), (second, first))
    ]
    assert answers_of_many(requests, *services).count(OK) == 100
    assert [limiter.available(name, "gpt-4")["tpd"] for name in names] == [0] * 200
