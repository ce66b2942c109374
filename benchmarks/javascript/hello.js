// The JavaScript hello: the same few bytes for every request, as workerd's script gives them.
//
// It handles `wasi:http` itself instead of listening for "fetch" events: componentize-js 0.23 lets a unit answer one
// such event only, so that a unit which is used again would fail.
import { Fields, OutgoingBody, OutgoingResponse, ResponseOutparam } from "wasi:http/types@0.2.10";

const BODY = new TextEncoder().encode("hello, world\n");
const TYPE = new TextEncoder().encode("text/plain");

export const incomingHandler = {
  handle(request, responseOut) {
    // Nothing else gives it back before the engine's next collection: a unit that is used again would hold a thousand.
    request[Symbol.dispose]();
    const response = new OutgoingResponse(Fields.fromList([["content-type", TYPE]]));
    const body = response.body();
    ResponseOutparam.set(responseOut, { tag: "ok", val: response });
    const stream = body.write();
    stream.blockingWriteAndFlush(BODY);
    stream[Symbol.dispose]();
    OutgoingBody.finish(body, undefined);
  },
};
