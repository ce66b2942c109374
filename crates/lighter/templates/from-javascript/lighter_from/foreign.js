// Handlers written for AWS Lambda and for OpenWhisk, as handlers of lighter:unit.
//
// A request of the HTTP gate comes as API Gateway or a web action has it; any other event (MQTT, a queue, a timer, `lighter
// call`) as the JSON that its data is. A unit answers with a body alone, so of a reply `statusCode` decides between success
// and failure, and headers are left out.
import clock from "lighter:unit/clock@0.1.0";
import config from "lighter:unit/config@0.1.0";
import log from "lighter:unit/log@0.1.0";
import { Buffer } from "buffer/";
import { Promise } from "./promise.js";
import { forget, runUntil } from "./timers.js";

// Type of an event that the HTTP gate made of a request.
const HTTP_REQUEST = "http.request";
const TIME_MS = 30_000;
const MEMORY_MB = 64;
// Statuses after which another try may help.
const RETRIED = [408, 425, 429, 503];

class Failure extends Error {
  constructor(tag, words) {
    super(words);
    this.tag = tag;
  }
}

// A handler of AWS Lambda for Node.js: `handler(event, context)` that is async, or one that answers by its callback.
export function of_lambda(load, name) {
  return served(load, name, (handler, event) => {
    const given = isRequest(event) ? gateway(event) : json(event.data);
    const takesCallback = handler.length > 2;
    return replied(waited((callback) => handler(given, new Context(event, callback), callback), takesCallback), true);
  });
}

// An action of OpenWhisk for Node.js: `main(args)`, async or not. A result with `error` is a failure.
export function of_openwhisk(load, name) {
  return served(load, name, (main, event) => {
    const result = waited((_) => main(parameters(event)) ?? {}, false);
    if (typeof result === "object" && result !== null && "error" in result) {
      fail(statusOf(result.error, 500), text(result.error));
    }
    return replied(result, false);
  });
}

function served(load, name, answer) {
  let known;
  return {
    handle(event) {
      try {
        forget();
        known ??= found(load(), name);
        return new Uint8Array(answer(known, event));
      } catch (error) {
        if (!(error instanceof Failure)) log.write("error", `${error?.stack ?? ""}`);
        const refusal = error?.payload;
        const why = refusal === undefined ? (error instanceof Error ? `${error.name}: ${error.message}` : text(error)) : `${refusal.tag}: ${refusal.val}`;
        if (error instanceof Failure) throw { tag: error.tag, val: error.message };
        throw { tag: refusal?.tag === "unavailable" ? "retry" : "fatal", val: why };
      }
    },
  };
}

function found(module, name) {
  const known = module[name] ?? module.default?.[name] ?? (name === "default" ? module : undefined);
  if (typeof known !== "function") throw new Failure("fatal", `L2033: the handler's file exports no function ${name}`);
  return known;
}

// What a handler answers, by its promise, its callback, or itself. One that does none of these has answered null.
// What a handler that takes a callback returns besides a promise means nothing, as in Lambda: it may be a timer.
function waited(call, takesCallback) {
  let outcome;
  const good = (value) => (outcome ??= { value });
  const bad = (error) => (outcome ??= { error });
  const callback = (error, value) => (error === null || error === undefined ? good(value ?? null) : bad(error));
  const returned = call(callback);
  if (returned !== null && typeof returned?.then === "function") Promise.resolve(returned).then(good, bad);
  else if (returned !== undefined && !takesCallback) good(returned);
  if (!runUntil(() => outcome !== undefined) && typeof returned?.then === "function") {
    throw new Failure("fatal", "the handler waits for what never comes: a unit has no other work");
  }
  if (outcome !== undefined && "error" in outcome) throw outcome.error;
  return outcome?.value ?? null;
}

// What a handler of Lambda is told of its call. There is no Cognito identity and no client context.
class Context {
  #ends = clock.monotonicNs() + number("time_ms", TIME_MS) * 1e6;
  callbackWaitsForEmptyEventLoop = true;
  functionVersion = "$LATEST";

  constructor(event, callback) {
    this.functionName = config.get("name") ?? "function";
    this.awsRequestId = event.id;
    this.memoryLimitInMB = String(number("memory_mb", MEMORY_MB));
    this.invokedFunctionArn = `arn:aws:lambda:local:000000000000:function:${this.functionName}`;
    this.logGroupName = `/aws/lambda/${this.functionName}`;
    this.logStreamName = event.id;
    this.done = callback;
    this.succeed = (value) => callback(null, value);
    this.fail = (error) => callback(error ?? new Error("failed"));
  }

  getRemainingTimeInMillis() {
    return Math.max(0, Math.floor((this.#ends - clock.monotonicNs()) / 1e6));
  }
}

const number = (name, otherwise) => Number.parseInt(config.get(name) ?? "", 10) || otherwise;
const attribute = (event, name) => event.attributes.find(([key]) => key === name)?.[1];
// `lighter call` sends its data alone.
const isRequest = (event) => event.type === HTTP_REQUEST && attribute(event, "gate") === "http";

// A request as API Gateway sends it: format 2.0, and the fields of 1.0 that have other names.
function gateway(event) {
  const headers = headersOf(event);
  const method = attribute(event, "httpmethod") ?? "POST";
  const path = attribute(event, "httppath") ?? "/";
  const query = attribute(event, "httpquery") ?? "";
  const several = {};
  for (const [key, value] of new URLSearchParams(query)) (several[key] ??= []).push(value);
  const single = Object.fromEntries(Object.entries(several).map(([key, values]) => [key, values.join(",")]));
  const hasQuery = Object.keys(several).length > 0;
  const [body, isBase64Encoded] = bodyOf(event.data);
  const cookies = (headers.cookie ?? "").split(";").map((cookie) => cookie.trim());
  return {
    version: "2.0",
    routeKey: "$default",
    rawPath: path,
    rawQueryString: query,
    cookies: cookies.filter((cookie) => cookie !== ""),
    headers,
    multiValueHeaders: Object.fromEntries(Object.entries(headers).map(([key, value]) => [key, [value]])),
    queryStringParameters: hasQuery ? single : null,
    multiValueQueryStringParameters: hasQuery ? several : null,
    pathParameters: { proxy: unescaped(path.replace(/^\/+/, "")) },
    stageVariables: null,
    resource: "/{proxy+}",
    httpMethod: method,
    path,
    requestContext: {
      requestId: event.id,
      stage: "$default",
      httpMethod: method,
      path,
      timeEpoch: event.timeMs,
      http: { method, path, protocol: "HTTP/1.1", userAgent: headers["user-agent"] ?? "", sourceIp: "" },
    },
    body,
    isBase64Encoded,
  };
}

// The parameters of an action.
function parameters(event) {
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isRequest(event)) {
    const given = json(event.data);
    return isObject(given) ? given : { value: given };
  }
  const args = Object.fromEntries(new URLSearchParams(attribute(event, "httpquery") ?? ""));
  const kind = (event.contentType ?? "").split(";")[0].trim();
  const [body] = bodyOf(event.data);
  if (kind === "application/json" && body !== null) {
    const given = json(event.data);
    Object.assign(args, isObject(given) ? given : { __ow_body: body });
  } else if (kind === "application/x-www-form-urlencoded") {
    Object.assign(args, Object.fromEntries(new URLSearchParams(body ?? "")));
  } else if (body !== null) {
    args.__ow_body = body;
  }
  args.__ow_method = (attribute(event, "httpmethod") ?? "POST").toLowerCase();
  args.__ow_path = attribute(event, "httppath") ?? "";
  args.__ow_headers = headersOf(event);
  return args;
}

// The body of what a handler returned. Throws what its status says where that is no success.
function replied(result, isPlainText) {
  if (typeof result === "object" && result !== null && "statusCode" in result) {
    const { body } = result;
    const data = result.isBase64Encoded && typeof body === "string" ? Buffer.from(body, "base64") : bytesOf(body);
    const status = statusOf(result, 200);
    if (status >= 400) fail(status, data.toString());
    return data;
  }
  return Buffer.from(isPlainText && typeof result === "string" ? result : (JSON.stringify(result) ?? "null"));
}

function fail(status, said) {
  const words = `status ${status}: ${said}`;
  if (RETRIED.includes(status)) throw new Failure("retry", words);
  throw new Failure(status >= 400 && status < 500 ? "invalid" : "fatal", words);
}

function statusOf(result, otherwise) {
  const given = typeof result === "object" && result !== null ? (result.statusCode ?? otherwise) : otherwise;
  const status = Number(given);
  if (!Number.isInteger(status)) throw new Failure("fatal", `statusCode is ${text(given)}, which is no number`);
  return status;
}

function headersOf(event) {
  const given = event.attributes.filter(([key]) => key.startsWith("http-"));
  const headers = Object.fromEntries(given.map(([key, value]) => [key.slice(5), value]));
  const host = attribute(event, "httphost");
  if (host) headers.host = host;
  if (event.contentType) headers["content-type"] = event.contentType;
  return headers;
}

// The value that the data is as JSON; no data is an empty object, and what is no JSON is its text.
function json(data) {
  if (data.length === 0) return {};
  try {
    return JSON.parse(Buffer.from(data).toString());
  } catch {
    return bodyOf(data)[0];
  }
}

// The data as text, or in base64 where it is none, and whether it is.
function bodyOf(data) {
  if (data.length === 0) return [null, false];
  const bytes = Buffer.from(data);
  const plain = bytes.toString();
  return Buffer.from(plain).equals(bytes) ? [plain, false] : [bytes.toString("base64"), true];
}

function bytesOf(body) {
  if (body === null || body === undefined) return Buffer.alloc(0);
  return ArrayBuffer.isView(body) ? Buffer.from(body) : Buffer.from(text(body));
}

const text = (value) => (typeof value === "string" ? value : (JSON.stringify(value) ?? String(value)));

function unescaped(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
