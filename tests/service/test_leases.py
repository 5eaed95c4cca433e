"""Leases over HTTP: what is charged, what is given back, and what a repetition does."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from urllib.parse import quote

import pytest

from zae_limiter import Limit
from zae_limiter_service.answers import Answer as Kept
from zae_limiter_service.idempotency import KeptAnswers


def test_a_lease_names_what_was_taken_and_what_remains(client):
    answer = client.acquire({"rpd": 1, "tpd": 400})
    assert answer.status == 201
    assert answer.json.keys() == {"id", "entity", "resource", "amounts", "remaining", "expires_at"}
    assert answer.json["amounts"] == {"rpd": 1, "tpd": 400}
    assert answer.json["remaining"] == {"rpd": 99, "tpd": 9600}
    assert '"rpd";r=99' in answer.headers["ratelimit"]
    lifetime = datetime.fromisoformat(answer.json["expires_at"]).timestamp() - time.time()
    assert 500 < lifetime <= 600


def test_a_rejection_names_the_limit_and_charges_nothing(client):
    answer = client.acquire({"rpd": 1, "tpd": 10_001})
    assert answer.status == 429
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json["error"] == "rate_limit_exceeded"
    assert [each["limit_name"] for each in answer.json["limits"] if each["exceeded"]] == ["tpd"]
    assert client.remaining() == {"rpd": 100, "tpd": 10_000}


def test_a_settlement_writes_the_true_cost(client, limiter):
    lease = client.lease({"rpd": 1, "tpd": 400})
    answer = client.settle(lease, {"tpd": 150})
    assert answer.status == 200
    assert answer.json["amounts"] == {"rpd": 1, "tpd": 150}
    assert limiter.available("user-1", "gpt-4") == {"rpd": 99, "tpd": 9850}


def test_a_settlement_may_cost_more_than_the_estimate(client, limiter):
    client.settle(client.lease({"tpd": 400}), {"tpd": 10_500})
    assert limiter.available("user-1", "gpt-4")["tpd"] == -500


def test_the_same_settlement_again_gets_the_first_answer_and_is_applied_once(client, limiter):
    lease = client.lease({"rpd": 1, "tpd": 400})
    first = client.settle(lease, {"tpd": 150})
    client.acquire({"tpd": 1})  # so that another answer would show another rest
    second = client.settle(lease, {"tpd": 150})
    assert (second.status, second.body) == (200, first.body)
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9849


def test_another_settlement_is_a_conflict(client, limiter):
    lease = client.lease({"tpd": 400})
    client.settle(lease, {"tpd": 150})
    assert client.settle(lease, {"tpd": 151}).status == 409
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9850


def test_settlements_at_the_same_time_are_applied_once(serve, limiter):
    service = serve()
    lease = service.client().lease({"tpd": 400})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: service.client().settle(lease, {"tpd": 150}), range(8)))
    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9850


def test_a_rollback_gives_everything_back_and_may_be_repeated(client, limiter):
    lease = client.lease({"rpd": 1, "tpd": 400})
    assert [client.delete(f"/v1/leases/{lease}").status for _ in range(2)] == [204, 204]
    assert limiter.available("user-1", "gpt-4") == {"rpd": 100, "tpd": 10_000}


def test_an_ended_lease_takes_no_other_end(client):
    settled, deleted = client.lease({"tpd": 4}), client.lease({"tpd": 4})
    client.settle(settled, {"tpd": 4})
    client.delete(f"/v1/leases/{deleted}")
    assert client.delete(f"/v1/leases/{settled}").status == 409
    assert client.settle(deleted, {"tpd": 4}).status == 409
    assert client.post(f"/v1/leases/{settled}/renew").status == 409
    assert client.post(f"/v1/leases/{deleted}/adjust", {"amounts": {"tpd": 1}}).status == 409


def test_an_adjustment_is_part_of_the_cost(client, limiter):
    lease = client.lease({"tpd": 400})
    answer = client.post(f"/v1/leases/{lease}/adjust", {"amounts": {"tpd": 50}})
    assert (answer.status, answer.json["amounts"]["tpd"]) == (200, 450)
    answer = client.post(f"/v1/leases/{lease}/adjust", {"amounts": {"tpd": -100}})
    assert answer.json["amounts"]["tpd"] == 350
    client.settle(lease, {})
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9650


def test_a_lease_gives_back_no_more_than_it_holds(client, limiter):
    limiter.set_resource_defaults("search", [Limit.budget("usd", "5.00", per="month")])
    lease = client.lease({"tpd": 400}, also={"search": {"usd": "0.50"}})
    for amounts, also in (({"tpd": -401}, {}), ({"tpd": -1}, {"search": {"usd": "-0.75"}})):
        answer = client.post(f"/v1/leases/{lease}/adjust", {"amounts": amounts, "also": also})
        assert answer.status == 400
        assert "is more than this lease holds" in answer.body.decode()
    client.post(f"/v1/leases/{lease}/adjust", {"amounts": {"tpd": -100}})
    assert client.delete(f"/v1/leases/{lease}").status == 204
    assert limiter.available("user-1", "gpt-4")["tpd"] == 10_000
    assert limiter.available("user-1", "search")["usd"] == 5


def test_an_adjusted_lease_rolls_back_completely(client, limiter):
    lease = client.lease({"tpd": 400})
    client.post(f"/v1/leases/{lease}/adjust", {"amounts": {"tpd": 50}})
    assert client.delete(f"/v1/leases/{lease}").status == 204
    assert limiter.available("user-1", "gpt-4")["tpd"] == 10_000


def test_an_unknown_lease_is_not_found(client):
    known = client.lease({"tpd": 1})
    host, worker, _ = known.split(".")
    for unknown in ("x", f"{host}.{worker}.{'A' * 22}", "a.b.c", "\0", "é" * 50):
        path = f"/v1/leases/{quote(unknown)}"
        assert client.delete(path).status == 404
        assert client.post(f"{path}/settle", {"amounts": {}}).status == 404


def test_after_its_time_rates_keep_the_estimate_and_holds_return(client, limiter):
    limiter.set_resource_defaults(
        "gpt-4",
        [
            Limit.per_day("tpd", 10_000),
            Limit.quota("calls", 100, per="month"),
            Limit.budget("usd", 50, per="month"),
            Limit.concurrent("parallel", 3),
        ],
    )
    amounts = {"tpd": 400, "calls": 1, "usd": "2.50", "parallel": 1}
    answer = client.acquire(amounts, ttl=0.2)
    assert answer.json["amounts"]["usd"] in ("2.5", "2.50", "2.500000000")
    lease = answer.json["id"]
    wait_until(lambda: client.metric("leases_open") == 0)
    assert client.settle(lease, {"tpd": 1}).status == 410
    left = limiter.available("user-1", "gpt-4")
    assert (left["tpd"], left["calls"], left["parallel"]) == (9600, 100, 3)
    assert left["usd"] == 50
    assert client.delete(f"/v1/leases/{lease}").status == 410


def test_a_renewed_lease_lives_longer(client, limiter):
    lease = client.lease({"tpd": 400}, ttl=0.3)
    for _ in range(3):
        answer = client.post(f"/v1/leases/{lease}/renew", {"ttl": 30})
        assert answer.status == 200
    time.sleep(0.6)
    assert client.settle(lease, {"tpd": 100}).status == 200
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9900


def test_settled_quotas_and_money_stay_settled(client, limiter):
    limiter.set_resource_defaults(
        "gpt-4", [Limit.quota("calls", 100, per="day"), Limit.budget("usd", 50, per="month")]
    )
    lease = client.lease({"calls": 1, "usd": "2.50"})
    answer = client.settle(lease, {"usd": "0.123456789"})
    assert answer.json["amounts"] == {"calls": 1, "usd": "0.123456789"}
    left = limiter.available("user-1", "gpt-4")
    assert (left["calls"], str(left["usd"])) == (99, "49.876543211")
    client.delete(f"/v1/leases/{client.lease({'calls': 5, 'usd': '40'})}")
    assert limiter.available("user-1", "gpt-4") == left


def test_open_leases_are_bounded(serve):
    client = serve(max_leases=2).client()
    leases = [client.lease({"tpd": 1}) for _ in range(2)]
    answer = client.acquire({"tpd": 1})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    client.settle(leases[0], {})
    assert client.acquire({"tpd": 1}).status == 201


def test_a_waiting_acquire_gets_what_another_lease_gives_back(serve, limiter):
    limiter.set_resource_defaults("gpt-4", [Limit.concurrent("parallel", 1)])
    service = serve()
    lease = service.client().lease({"parallel": 1})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.client().acquire, {"parallel": 1}, timeout=30)
        time.sleep(0.3)
        assert not waiting.done()
        service.client().delete(f"/v1/leases/{lease}")
        assert waiting.result(30).status == 201


def test_a_client_that_hangs_up_while_it_waits_takes_nothing(serve, limiter):
    limiter.set_resource_defaults("gpt-4", [Limit.concurrent("parallel", 1)])
    service = serve()
    lease = service.client().lease({"parallel": 1})
    waiter = service.client()
    body = {"entity": "user-1", "resource": "gpt-4", "amounts": {"parallel": 1}, "timeout": 60}
    connection = waiter.connected()
    connection.request("POST", "/v1/leases", json.dumps(body), {"Content-Type": "application/json"})
    client = service.client()
    wait_until(lambda: client.metric("requests_in_progress") == 2)
    waiter.close()
    wait_until(lambda: client.metric("requests_in_progress") == 1)
    client.delete(f"/v1/leases/{lease}")
    assert limiter.available("user-1", "gpt-4")["parallel"] == 1


def test_a_repeated_key_gets_the_first_answer_and_one_charge(client, limiter):
    first = client.acquire({"tpd": 400}, Idempotency_Key="k-1")
    second = client.acquire({"tpd": 400}, Idempotency_Key="k-1")
    assert (first.status, second.status, second.body) == (201, 201, first.body)
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9600
    assert client.acquire({"tpd": 1}, Idempotency_Key="k-1").status == 422
    assert client.acquire({"tpd": 400}, Idempotency_Key="k-2").json["id"] != first.json["id"]


def test_repetitions_at_the_same_time_are_one_request(serve, limiter):
    service = serve()
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda _: service.client().acquire({"tpd": 400}, Idempotency_Key="same"), range(8)
            )
        )
    assert len({answer.json["id"] for answer in answers}) == 1
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9600


async def test_answers_are_kept_for_ten_minutes_and_their_number_is_bounded():
    now_s = 0.0
    kept = KeptAnswers(max_kept=2, seconds=lambda: now_s)
    made = []

    async def perform():
        made.append(Kept(201, str(len(made)).encode()))
        return made[-1]

    async def ask(key):
        return await kept.perform((key,), "same", perform)

    first = await ask("a")
    now_s = 599.0
    assert await ask("a") is first
    assert (await ask("b")).status == 201
    assert (await ask("c")).status == 503
    now_s = 601.0
    assert await ask("a") is not first
    assert len(made) == 3


def test_a_rejection_is_not_kept_for_its_key(client, limiter):
    lease = client.lease({"tpd": 10_000})
    assert client.acquire({"tpd": 400}, Idempotency_Key="k").status == 429
    client.delete(f"/v1/leases/{lease}")
    assert client.acquire({"tpd": 400}, Idempotency_Key="k").status == 201


def test_an_adjustment_with_a_key_is_made_once(client):
    lease = client.lease({"tpd": 400})
    for _ in range(2):
        answer = client.post(
            f"/v1/leases/{lease}/adjust", {"amounts": {"tpd": 5}}, Idempotency_Key="a"
        )
    assert answer.json["amounts"]["tpd"] == 405


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"entity": "e", "resource": "gpt-4"},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}, "surprise": 1},
        {"entity": "e", "resource": "gpt-4", "amounts": {"nope": 1}},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": -1}},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1.5}},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": True}},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 10**40}},
        {"entity": "e", "resource": "gpt-4", "amounts": ["tpd"]},
        {"entity": "", "resource": "gpt-4", "amounts": {"tpd": 1}},
        {"entity": 7, "resource": "gpt-4", "amounts": {"tpd": 1}},
        {"entity": "e", "resource": "", "amounts": {"tpd": 1}},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}, "ttl": 0},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}, "ttl": "soon"},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}, "timeout": -1},
        {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}, "timeout": 10**9},
        b"[]",
        b"null",
        b'{"entity": "e", "entity": "f", "resource": "gpt-4", "amounts": {"tpd": 1}}',
        b'{"entity": "e", "resource": "gpt-4", "amounts": {"tpd": NaN}}',
        b"[" * 10_000,
        b"\xff\xfe",
    ],
)
def test_a_wrong_body_is_refused_and_charges_nothing(client, limiter, body):
    answer = client.post("/v1/leases", body)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["detail"]
    assert limiter.available("e", "gpt-4") == {"rpd": 100, "tpd": 10_000}


def test_a_wrong_settlement_leaves_the_lease_open(client):
    lease = client.lease({"tpd": 400})
    assert client.settle(lease, {"nope": 1}).status == 400
    assert client.settle(lease, {"tpd": -1}).status == 400
    assert client.settle(lease, {"tpd": 10}).status == 200


def left_on_search(limiter):
    return limiter.available("user-1", "search")["rpd"]


def test_a_lease_takes_further_resources_or_nothing(client, limiter):
    limiter.set_resource_defaults("search", [Limit.per_day("rpd", 5)])
    lease = client.lease({"tpd": 400}, also={"search": {"rpd": 2}})
    assert left_on_search(limiter) == 3
    assert client.acquire({"tpd": 400}, also={"search": {"rpd": 4}}).status == 429
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9_600
    assert client.settle(lease, {"tpd": 100}, also={"search": {"rpd": 1}}).status == 200
    assert left_on_search(limiter) == 4
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9_900


def test_a_rolled_back_lease_gives_further_resources_back(client, limiter):
    limiter.set_resource_defaults("search", [Limit.per_day("rpd", 5)])
    lease = client.lease({"tpd": 400}, also={"search": {"rpd": 2}})
    assert (
        client.post(
            f"/v1/leases/{lease}/adjust", {"amounts": {"tpd": 1}, "also": {"search": {"nope": 1}}}
        ).status
        == 400
    )
    assert client.delete(f"/v1/leases/{lease}").status == 204
    assert client.delete(f"/v1/leases/{lease}").status == 204
    assert left_on_search(limiter) == 5
    assert limiter.available("user-1", "gpt-4")["tpd"] == 10_000


def test_a_further_resource_that_the_lease_lacks_is_refused(client, limiter):
    limiter.set_resource_defaults("search", [Limit.per_day("rpd", 5)])
    lease = client.lease({"tpd": 1})
    assert client.settle(lease, {"tpd": 1}, also={"search": {"rpd": 1}}).status == 400
    assert client.settle(lease, {"tpd": 1}, also={}).status == 200
    assert left_on_search(limiter) == 5


def test_leases_of_many_clients_never_exceed_the_limit(serve):
    service = serve()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: service.client().acquire({"rpd": 1}), range(150)))
    statuses = [answer.status for answer in answers]
    assert (statuses.count(201), statuses.count(429)) == (100, 50)


def test_a_stop_waits_for_clients_to_settle(serve, limiter):
    service = serve(drain_s=30.0)
    client = service.client()
    lease = client.lease({"tpd": 400})
    service.begin_stop()
    wait_until(lambda: client.acquire({"tpd": 1}).status == 503)
    assert client.get("/readyz").status == 503
    assert client.get("/healthz").status == 200
    assert client.settle(lease, {"tpd": 100}).status == 200
    service.join()
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9900


def test_a_stop_ends_open_leases_after_a_bounded_time(serve, limiter):
    limiter.set_resource_defaults(
        "gpt-4", [Limit.per_day("tpd", 10_000), Limit.quota("calls", 100, per="month")]
    )
    service = serve(drain_s=0.1)
    for _ in range(20):
        service.client().lease({"tpd": 10, "calls": 2})
    service.stop()
    assert limiter.available("user-1", "gpt-4") == {"tpd": 9800, "calls": 100}


def wait_until(holds):
    give_up_at = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < give_up_at, "it does not happen"
        time.sleep(0.05)
