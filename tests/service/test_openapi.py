"""The OpenAPI document, compared with what the server does."""

import json
import re

import pytest

from tests.service.json_schema import mistakes

LIMITS = ["rpm:5", {"name": "usd", "budget": "2.5", "per": "month"}]


class Recorder:
    """Compares each answer with the document, and notes which operations were called."""

    def __init__(self, client):
        self.client = client
        self.document = client.get("/v1/openapi.json").json
        self.seen = set()
        self.patterns = {
            path: re.compile(re.sub(r"{\w+}", "[^/]+", path) + "$")
            for path in self.document["paths"]
        }

    def ask(self, method, path, body=None, *, expected, **headers):
        answer = self.client.ask(method, path, body, **headers)
        assert answer.status == expected, answer
        plain = path.partition("?")[0]
        name = next(name for name, pattern in self.patterns.items() if pattern.match(plain))
        operation = self.document["paths"][name][method.lower()]
        assert str(answer.status) in operation["responses"], (method, name, answer)
        response = operation["responses"][str(answer.status)]
        if "content" not in response:
            assert answer.body == b""
        else:
            [(kind, media)] = response["content"].items()
            assert answer.headers["content-type"].startswith(kind)
            value = answer.json if "json" in kind else answer.body.decode()
            assert not mistakes(value, media["schema"], self.document), answer
        self.seen.add((method.lower(), name, answer.status))
        return answer

    def lease(self):
        body = {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}}
        return self.ask("POST", "/v1/leases", body, expected=201).json["id"]


@pytest.fixture
def recorder(client):
    return Recorder(client)


def test_every_operation_answers_as_described(recorder, limiter):
    ask = recorder.ask
    acquire = {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}}
    ask("POST", "/v1/leases", {**acquire, "amounts": {"tpd": 10**6}}, expected=429)
    ask("POST", "/v1/leases", {}, expected=400)
    ask("POST", "/v1/leases", acquire, expected=201, Idempotency_Key="k")
    ask("POST", "/v1/leases", {**acquire, "ttl": 5}, expected=422, Idempotency_Key="k")
    lease, other = recorder.lease(), recorder.lease()
    ask("POST", f"/v1/leases/{lease}/adjust", {"amounts": {"tpd": 2}}, expected=200)
    ask("POST", f"/v1/leases/{lease}/renew", {"ttl": 60}, expected=200)
    ask("POST", f"/v1/leases/{lease}/settle", {"amounts": {"tpd": 2}}, expected=200)
    ask("POST", f"/v1/leases/{lease}/settle", {"amounts": {"tpd": 3}}, expected=409)
    ask("POST", "/v1/leases/nobody/settle", {"amounts": {"tpd": 3}}, expected=404)
    ask("DELETE", f"/v1/leases/{other}", expected=204)
    ask("POST", "/v1/check", acquire, expected=200)
    ask("GET", "/v1/explain?entity=e&resource=gpt-4&consume=tpd=5", expected=200)
    ask("GET", "/v1/explain?entity=e", expected=400)
    ask("GET", "/v1/openapi.json", expected=200)
    for path in ("/healthz", "/readyz", "/metrics"):
        ask("GET", path, expected=200)
    ask("POST", "/v1/entities", {"entity_id": "acme", "metadata": {"a": "b"}}, expected=201)
    ask("POST", "/v1/entities", {"entity_id": "acme"}, expected=409)
    ask("POST", "/v1/entities", {"entity_id": "acme", "if_missing": True}, expected=201)
    ask("POST", "/v1/entities", {"entity_id": "a/b c"}, expected=201)
    parent = {"parent_id": "acme", "cascade": True}
    assert ask("PUT", "/v1/entities/a%2Fb%20c/parent", parent, expected=200).json["cascade"]
    assert ask("GET", "/v1/entities/a%2Fb%20c", expected=200).json["entity_id"] == "a/b c"
    ask("GET", "/v1/entities/nobody", expected=404)
    assert len(ask("GET", "/v1/entities?limit=1", expected=200).json["entities"]) == 1
    ask("GET", "/v1/entities?limit=0", expected=400)
    own = "/v1/entities/acme/limits?resource=gpt-4"
    stored = ask("PUT", own, {"limits": LIMITS}, expected=200).json
    assert [each["name"] for each in stored["limits"]] == ["rpm", "usd"]
    assert ask("GET", own, expected=200).json["limits"] == stored["limits"]
    more = ask("PUT", own, {"limits": ["tpm:5"], "merge": True}, expected=200).json
    assert [each["name"] for each in more["limits"]] == ["rpm", "usd", "tpm"]
    assert more["superseded"] == []
    fewer = ask("PUT", own, {"limits": ["rpm:5", "tpm:5"]}, expected=200).json
    assert fewer["superseded"] == [{"limit_name": "usd", "resource": "gpt-4", "source": "entity"}]
    assert ask("DELETE", own, expected=200).json["deleted"] is True
    ask("PUT", own, {"limits": ["rpm:nonsense"]}, expected=400)
    for path in ("/v1/resources/m%2Fllama3:8b/limits", "/v1/system/limits"):
        ask("PUT", path, {"limits": LIMITS}, expected=200)
        ask("GET", path, expected=200)
    policy = ask("PUT", "/v1/system/limits", {"on_unavailable": "allow"}, expected=200).json
    assert policy["on_unavailable"] == "allow"
    assert "m/llama3:8b" in ask("GET", "/v1/resources", expected=200).json["resources"]
    for path in ("/v1/resources/m%2Fllama3:8b/limits", "/v1/system/limits"):
        assert ask("DELETE", path, expected=200).json["deleted"] is True
    ask("GET", "/v1/usage?window=hourly&entity=e", expected=200)
    ask("GET", "/v1/usage/summary", expected=200)
    ask("DELETE", "/v1/entities/acme", expected=200)
    operations = {
        (method, path) for path, methods in recorder.document["paths"].items() for method in methods
    }
    assert {(method, path) for method, path, status in recorder.seen if status < 300} == operations


def test_described_fields_are_taken_and_others_refused(recorder):
    """Each field of a body alone: a known one gets another answer than an unknown one."""
    for path, methods in recorder.document["paths"].items():
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            plain = re.sub(r"{\w+}", "x", path)
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            answer = recorder.client.ask(method.upper(), plain, {"surprise": 1})
            assert (answer.status, answer.json["field"]) == (400, "surprise"), (method, path)
            for name in schema["required"]:
                others = {each: None for each in schema["required"] if each != name}
                answer = recorder.client.ask(method.upper(), plain, others)
                assert answer.status == 400
            assert schema["additionalProperties"] is False


def test_each_unknown_parameter_is_refused(recorder):
    for path, methods in recorder.document["paths"].items():
        for method in methods:
            plain = re.sub(r"{\w+}", "x", path)
            answer = recorder.client.ask(method.upper(), f"{plain}?surprise=1")
            assert (answer.status, answer.json["field"]) == (400, "surprise"), (method, path)


def test_unknown_paths_and_methods_are_told(client):
    assert client.get("/v1/leases/").status == 404
    assert client.get("/v2").status == 404
    assert client.get("/").status == 404
    answer = client.get("/v1/leases")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert client.ask("HEAD", "/healthz").body == b""


def test_the_document_is_strict_json(client):
    answer = client.get("/v1/openapi.json")
    assert json.loads(answer.body)["openapi"].startswith("3.")
