"""A wasi:http function in Python."""

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports.types import Fields, IncomingRequest, Method_Post, OutgoingBody, OutgoingResponse, ResponseOutparam

READ_BYTES = 65_536


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        is_post = isinstance(request.method(), Method_Post)
        text = f"hello from Python: {request.path_with_query()} ".encode() + (read(request) if is_post else b"") + b"\n"
        response = OutgoingResponse(Fields.from_list([("content-type", b"text/plain")]))
        body = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        with body.write() as stream:
            stream.blocking_write_and_flush(text)
        OutgoingBody.finish(body, None)


def read(request: IncomingRequest) -> bytes:
    whole = b""
    with request.consume() as body, body.stream() as stream:
        while True:
            try:
                whole += stream.blocking_read(READ_BYTES)
            except Err:
                # The end of the body, or that it broke off: there is no more of it.
                return whole
