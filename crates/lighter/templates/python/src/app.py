"""The function {{name}}: greets the person named in the data, or in ?name= of the URL, and counts the greetings."""

from urllib.parse import parse_qs

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import store
from wit_world.imports.types import Error_Unavailable, Event, Failure_Fatal, Failure_Invalid, Failure_Retry


class Handler(exports.Handler):
    def handle(self, event: Event) -> bytes:
        # What is printed, and the traceback of what is raised and not caught, ends up in the function's log.
        try:
            name = event.data.decode() or name_in_query(event) or "world"
        except UnicodeDecodeError as error:
            raise Err(Failure_Invalid(f"the data is not UTF-8: {error}")) from None
        try:
            count = store.increment("{{name}}", "greetings", 1)
        except Err as refused:
            failure = Failure_Retry if isinstance(refused.value, Error_Unavailable) else Failure_Fatal
            raise Err(failure(refused.value.value)) from None
        return f"hello, {name}, greeting {count}\n".encode()


def name_in_query(event: Event) -> str | None:
    query = dict(event.attributes).get("httpquery", "")
    return parse_qs(query).get("name", [None])[0]
