"""Handlers written for AWS Lambda and for OpenWhisk, as handlers of a process unit.

    from lighterage.unit.foreign import of_lambda
    import app

    handle = of_lambda(app.lambda_handler)

A request of the HTTP gate comes as API Gateway or a web action has it; any other event (MQTT, a queue, a timer, `lighter
call`) as the JSON that its data is. A unit of `lighter:unit` answers with a body alone, so of a reply `statusCode` decides
between success and failure, and headers are left out.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

from .api import Event, Fatal, Invalid, Retry, config

Handler = Callable[[Event], bytes]

#: Type of an event that the HTTP gate made of a request.
HTTP_REQUEST = "http.request"
#: What the manifest's `config` may say of the function, for handlers that ask for it.
NAME, MEMORY_MB, TIME_MS = "name", "memory_mb", "time_ms"
TIME_MS_DEFAULT = 30_000
MEMORY_MB_DEFAULT = 64


def of_lambda(handler: Callable[[Any, Any], Any]) -> Handler:
    """A handler of AWS Lambda for Python, `handler(event, context)`.

    A request comes as the payload of API Gateway, with the fields of format 2.0 and those of 1.0 that have other names.
    """

    def handle(event: Event) -> bytes:
        context = Context(event)
        given = _gateway(event) if _is_request(event) else _json(event.data)
        return _replied(_ran(handler(given, context)), plain_text=True)

    return handle


def of_openwhisk(main: Callable[[dict[str, Any]], Any]) -> Handler:
    """An action of OpenWhisk for Python, `main(args)`.

    A request comes as a web action has it: parameters of the query and of a JSON body, and `__ow_method`, `__ow_path` and
    `__ow_headers`; another body is `__ow_body`. A result with `error` is a failure.
    """

    def handle(event: Event) -> bytes:
        result = _ran(main(_arguments(event)))
        if isinstance(result, dict) and "error" in result:
            _fail(_status(result["error"], 500), _text(result["error"]))
        return _replied(result, plain_text=False)

    return handle


class Context:
    """What a handler of Lambda is told of its call. There is no Cognito identity and no client context."""

    identity = None
    client_context = None
    function_version = "$LATEST"

    def __init__(self, event: Event) -> None:
        self._ends = time.monotonic() + _number(TIME_MS, TIME_MS_DEFAULT) / 1_000
        self.function_name = config.get(NAME) or "function"
        self.aws_request_id = event.id
        self.memory_limit_in_mb = str(_number(MEMORY_MB, MEMORY_MB_DEFAULT))
        self.invoked_function_arn = f"arn:aws:lambda:local:000000000000:function:{self.function_name}"
        self.log_group_name = f"/aws/lambda/{self.function_name}"
        self.log_stream_name = event.id
        os.environ.setdefault("AWS_LAMBDA_FUNCTION_NAME", self.function_name)

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until `limits.time_ms`, as `config.time_ms` repeats it."""
        return max(0, int((self._ends - time.monotonic()) * 1_000))


def _is_request(event: Event) -> bool:
    """Whether it came in at the gate; `lighter call` sends its data alone."""
    return event.type == HTTP_REQUEST and event.attribute("gate") == "http"


def _gateway(event: Event) -> dict[str, Any]:
    """A request as API Gateway sends it to a function."""
    headers = _headers(event)
    method, path = event.attribute("httpmethod") or "POST", event.attribute("httppath") or "/"
    query = event.attribute("httpquery") or ""
    pairs = parse_qsl(query, keep_blank_values=True)
    several: dict[str, list[str]] = {}
    for key, value in pairs:
        several.setdefault(key, []).append(value)
    body, is_base64 = _body(event.data)
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "cookies": [cookie.strip() for cookie in headers.get("cookie", "").split(";") if cookie.strip()],
        "headers": headers,
        "multiValueHeaders": {key: [value] for key, value in headers.items()},
        "queryStringParameters": {key: ",".join(values) for key, values in several.items()} or None,
        "multiValueQueryStringParameters": several or None,
        "pathParameters": {"proxy": unquote(path.lstrip("/"))},
        "stageVariables": None,
        "resource": "/{proxy+}",
        "httpMethod": method,
        "path": path,
        "requestContext": {
            "requestId": event.id,
            "stage": "$default",
            "httpMethod": method,
            "path": path,
            "timeEpoch": event.time_ms,
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "userAgent": headers.get("user-agent", ""),
                "sourceIp": "",
            },
        },
        "body": body,
        "isBase64Encoded": is_base64,
    }


def _arguments(event: Event) -> dict[str, Any]:
    """The parameters of an action."""
    if not _is_request(event):
        given = _json(event.data)
        return given if isinstance(given, dict) else {"value": given}
    arguments: dict[str, Any] = dict(parse_qsl(event.attribute("httpquery") or "", keep_blank_values=True))
    kind = (event.content_type or "").split(";")[0].strip()
    if kind == "application/json" and event.data:
        given = _json(event.data)
        arguments |= given if isinstance(given, dict) else {"__ow_body": event.data.decode()}
    elif kind == "application/x-www-form-urlencoded":
        arguments |= dict(parse_qsl(_body(event.data)[0] or "", keep_blank_values=True))
    elif event.data:
        arguments["__ow_body"] = _body(event.data)[0]
    arguments["__ow_method"] = (event.attribute("httpmethod") or "POST").lower()
    arguments["__ow_path"] = event.attribute("httppath") or ""
    arguments["__ow_headers"] = _headers(event)
    return arguments


def _replied(result: Any, *, plain_text: bool) -> bytes:
    """The body of what a handler returned. Raises what its status says where that is no success."""
    if isinstance(result, dict) and "statusCode" in result:
        body = result.get("body")
        data = base64.b64decode(body) if result.get("isBase64Encoded") and isinstance(body, str) else _bytes(body)
        status = _status(result, 200)
        if status >= 400:
            _fail(status, data.decode(errors="replace"))
        return data
    if plain_text and isinstance(result, str):
        return result.encode()
    return json.dumps(result, default=str).encode()


def _fail(status: int, said: str) -> None:
    words = f"status {status}: {said}"
    if status in (408, 425, 429, 503):
        raise Retry(words)
    raise Invalid(words) if 400 <= status < 500 else Fatal(words)


def _status(result: Any, default: int) -> int:
    status = result.get("statusCode", default) if isinstance(result, dict) else default
    try:
        return int(status)
    except (TypeError, ValueError):
        raise Fatal(f"statusCode is {status!r}, which is no number") from None


def _ran(result: Any) -> Any:
    """The result, also of a handler that is a coroutine."""
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def _headers(event: Event) -> dict[str, str]:
    headers = {name[5:]: value for name, value in event.attributes if name.startswith("http-")}
    if host := event.attribute("httphost"):
        headers["host"] = host
    if event.content_type:
        headers["content-type"] = event.content_type
    return headers


def _json(data: bytes) -> Any:
    """The value that the data is as JSON; no data is an empty object, and what is no JSON is its text."""
    if not data:
        return {}
    try:
        return json.loads(data)
    except ValueError:
        return _body(data)[0]


def _body(data: bytes) -> tuple[str | None, bool]:
    """The data as text, or in base64 where it is none, and whether it is."""
    if not data:
        return None, False
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), True


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else _text(body).encode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _number(name: str, default: int) -> int:
    try:
        return int(config.get(name) or default)
    except ValueError:
        return default
