"""Handlers of the shapes that AWS Lambda and OpenWhisk document, run as they are."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from lighterage.unit import Event, Fatal, Invalid, Retry, foreign


@pytest.fixture(autouse=True)
def _config(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host would answer."""

    class Config:
        def get(self, name: str) -> str | None:
            return {"name": "hello", "time_ms": "5000", "memory_mb": "128"}.get(name)

    monkeypatch.setattr(foreign, "config", Config())


def request(method: str = "GET", path: str = "/hello/x", query: str = "", data: bytes = b"", kind: str | None = None) -> Event:
    attributes = [("gate", "http"), ("httpmethod", method), ("httppath", path), ("httphost", "node:8700"), ("http-x-a", "b")]
    if query:
        attributes.append(("httpquery", query))
    return Event("id-1", "/http/hello", "http.request", 1_700_000_000_000, 1, data, None, kind, tuple(attributes))


def message(data: bytes) -> Event:
    return Event("id-2", "/mqtt", "mqtt.message", 0, 1, data)


def test_a_handler_of_lambda_gets_the_json_of_a_message_and_its_result_is_json() -> None:
    def lambda_handler(event: Any, context: Any) -> Any:
        return {"area": event["length"] * event["width"], "request": context.aws_request_id}

    handle = foreign.of_lambda(lambda_handler)
    assert json.loads(handle(message(b'{"length": 6, "width": 7}'))) == {"area": 42, "request": "id-2"}
    assert json.loads(foreign.of_lambda(lambda event, _: event)(message(b""))) == {}
    assert foreign.of_lambda(lambda event, _: event)(message(b"no json")) == b"no json"
    called = Event("id-3", "/v1/functions/f/call", "http.request", 0, 1, b'{"x": 1}', attributes=(("gate", "api"),))
    assert json.loads(foreign.of_lambda(lambda event, _: event)(called)) == {"x": 1}


def test_a_handler_behind_api_gateway_finds_the_fields_of_both_formats() -> None:
    def lambda_handler(event: Any, context: Any) -> Any:
        name = (event["queryStringParameters"] or {}).get("name", "world")
        body = {
            "v1": [event["httpMethod"], event["path"]],
            "v2": [event["requestContext"]["http"]["method"], event["rawPath"]],
            "name": name,
            "header": event["headers"]["x-a"],
            "body": event["body"],
        }
        return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(body)}

    reply = json.loads(foreign.of_lambda(lambda_handler)(request("POST", query="name=you&a=1&a=2", data=b"text")))
    expected = {"v1": ["POST", "/hello/x"], "v2": ["POST", "/hello/x"], "name": "you", "header": "b", "body": "text"}
    assert reply == expected
    seen: list[Any] = []
    foreign.of_lambda(lambda event, _: seen.append(event))(request(data=b"\xff\x00", query="a=1&a=2"))
    assert seen[0]["isBase64Encoded"] and base64.b64decode(seen[0]["body"]) == b"\xff\x00"
    assert seen[0]["multiValueQueryStringParameters"] == {"a": ["1", "2"]}


def test_a_status_is_success_or_the_failure_that_it_means() -> None:
    def answer(status: Any, body: Any = "words", **more: Any) -> bytes:
        return foreign.of_lambda(lambda *_: {"statusCode": status, "body": body, **more})(request())

    assert answer(201) == b"words"
    assert answer(200, None) == b""
    assert answer("200", base64.b64encode(b"\xff").decode(), isBase64Encoded=True) == b"\xff"
    for status, failure in [(404, Invalid), (429, Retry), (503, Retry), (500, Fatal), ("x", Fatal)]:
        with pytest.raises(failure):
            answer(status)


def test_the_context_says_what_the_manifest_says() -> None:
    def lambda_handler(_event: Any, context: Any) -> Any:
        left = context.get_remaining_time_in_millis()
        return [context.function_name, context.memory_limit_in_mb, 0 < left <= 5_000, context.client_context]

    assert json.loads(foreign.of_lambda(lambda_handler)(message(b""))) == ["hello", "128", True, None]


def test_an_action_of_openwhisk_gets_parameters_and_what_came_with_them() -> None:
    def main(args: dict[str, Any]) -> dict[str, Any]:
        return {"greeting": f"Hello {args.get('name', 'stranger')}!", "method": args.get("__ow_method")}

    handle = foreign.of_openwhisk(main)
    assert json.loads(handle(message(b'{"name": "you"}'))) == {"greeting": "Hello you!", "method": None}
    assert json.loads(handle(request(query="name=web"))) == {"greeting": "Hello web!", "method": "get"}
    posted = request("POST", data=b'{"name": "json"}', kind="application/json; charset=utf-8")
    assert json.loads(handle(posted)) == {"greeting": "Hello json!", "method": "post"}
    form = request("POST", data=b"name=form", kind="application/x-www-form-urlencoded")
    assert json.loads(handle(form))["greeting"] == "Hello form!"
    raw = foreign.of_openwhisk(lambda args: {"body": args["__ow_body"], "statusCode": 200})
    assert raw(request("POST", data=b"plain", kind="text/plain")) == b"plain"


def test_an_action_that_returns_an_error_fails() -> None:
    with pytest.raises(Fatal, match="no name"):
        foreign.of_openwhisk(lambda _: {"error": "no name"})(message(b"{}"))
    with pytest.raises(Invalid):
        foreign.of_openwhisk(lambda _: {"error": {"statusCode": 404, "body": "none"}})(message(b"{}"))


def test_a_handler_may_be_a_coroutine() -> None:
    async def main(args: dict[str, Any]) -> dict[str, Any]:
        return {"got": args["x"]}

    assert json.loads(foreign.of_openwhisk(main)(message(b'{"x": 1}'))) == {"got": 1}
