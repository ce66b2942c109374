//! What a component may import, by name: each function, and what does it.
//!
//! The compiler's own tables for this would have code for each function of each interface. Here a function is a pointer,
//! so that there is one piece of code for all that take and give the same.

use super::bindings::wasi::{cli, clocks, config, http, io, keyvalue, logging, random};
use super::{Handle, Thing};
use crate::bindings::drafts::fermyon::spin;
use crate::imports::Outside;
use crate::program::Unit;
use alloc::format;
use wasmtime::component::{ComponentNamedList, Lift, Linker, LinkerInstance, Lower, ResourceType};
use wasmtime::{Result, StoreContextMut};

type Place<'l> = LinkerInstance<'l, Unit>;

/// A function that returns something.
fn gives<P, R>(place: &mut Place<'_>, name: &str, call: fn(&mut Outside, P) -> Result<R>) -> Result<()>
where
    P: ComponentNamedList + Lift + 'static,
    R: Lower + 'static,
    (R,): ComponentNamedList + Lower + 'static,
{
    place.func_wrap(name, move |mut unit: StoreContextMut<'_, Unit>, given: P| {
        Ok((call(&mut unit.data_mut().outside, given)?,))
    })
}

/// One that returns nothing.
fn does<P>(place: &mut Place<'_>, name: &str, call: fn(&mut Outside, P) -> Result<()>) -> Result<()>
where
    P: ComponentNamedList + Lift + 'static,
{
    place
        .func_wrap(name, move |mut unit: StoreContextMut<'_, Unit>, given: P| call(&mut unit.data_mut().outside, given))
}

/// A resource, and what happens when a unit lets go of a handle to one.
fn resource(place: &mut Place<'_>, name: &str, drop: fn(&mut Outside, Handle) -> Result<()>) -> Result<()> {
    place.resource(name, ResourceType::host::<Thing>(), move |mut unit: StoreContextMut<'_, Unit>, rep| {
        drop(&mut unit.data_mut().outside, Handle::new_own(rep))
    })
}

/// A line for each function: `HOW "NAME" = TRAIT, METHOD(ARGUMENT, …);`
macro_rules! functions {
    ($place:ident: $($how:ident $name:literal = $what:path, $method:ident($($given:ident),*);)+) => {
        $($how(&mut $place, $name, |outside, ($($given,)*)| <Outside as $what>::$method(outside, $($given),*))?;)+
    };
}

/// The interfaces of WASI that are not of one purpose: streams, clocks, randomness, environment.
pub fn plain(linker: &mut Linker<Unit>) -> Result<()> {
    streams(linker)?;
    let mut place = linker.instance("wasi:clocks/monotonic-clock@0.2.12")?;
    functions! { place:
        gives "now" = clocks::monotonic_clock::Host, now();
        gives "resolution" = clocks::monotonic_clock::Host, resolution();
        gives "subscribe-instant" = clocks::monotonic_clock::Host, subscribe_instant(when);
        gives "subscribe-duration" = clocks::monotonic_clock::Host, subscribe_duration(ns);
    }
    let mut place = linker.instance("wasi:clocks/wall-clock@0.2.12")?;
    functions! { place:
        gives "now" = clocks::wall_clock::Host, now();
        gives "resolution" = clocks::wall_clock::Host, resolution();
    }
    let mut place = linker.instance("wasi:random/random@0.2.12")?;
    functions! { place:
        gives "get-random-bytes" = random::random::Host, get_random_bytes(count);
        gives "get-random-u64" = random::random::Host, get_random_u64();
    }
    let mut place = linker.instance("wasi:random/insecure@0.2.12")?;
    functions! { place:
        gives "get-insecure-random-bytes" = random::random::Host, get_random_bytes(count);
        gives "get-insecure-random-u64" = random::random::Host, get_random_u64();
    }
    let mut place = linker.instance("wasi:random/insecure-seed@0.2.12")?;
    functions! { place: gives "insecure-seed" = random::insecure_seed::Host, insecure_seed(); }
    let mut place = linker.instance("wasi:cli/environment@0.2.12")?;
    functions! { place:
        gives "get-environment" = cli::environment::Host, get_environment();
        gives "get-arguments" = cli::environment::Host, get_arguments();
        gives "initial-cwd" = cli::environment::Host, initial_cwd();
    }
    let mut place = linker.instance("wasi:cli/exit@0.2.12")?;
    functions! { place:
        does "exit" = cli::exit::Host, exit(status);
        does "exit-with-code" = cli::exit::Host, exit_with_code(status);
    }
    standard_streams(linker)
}

fn standard_streams(linker: &mut Linker<Unit>) -> Result<()> {
    let mut place = linker.instance("wasi:cli/stdin@0.2.12")?;
    functions! { place: gives "get-stdin" = cli::stdin::Host, get_stdin(); }
    let mut place = linker.instance("wasi:cli/stdout@0.2.12")?;
    functions! { place: gives "get-stdout" = cli::stdout::Host, get_stdout(); }
    let mut place = linker.instance("wasi:cli/stderr@0.2.12")?;
    functions! { place: gives "get-stderr" = cli::stderr::Host, get_stderr(); }
    let mut place = linker.instance("wasi:cli/terminal-input@0.2.12")?;
    resource(&mut place, "terminal-input", <Outside as cli::terminal_input::HostTerminalInput>::drop)?;
    let mut place = linker.instance("wasi:cli/terminal-output@0.2.12")?;
    resource(&mut place, "terminal-output", <Outside as cli::terminal_output::HostTerminalOutput>::drop)?;
    let mut place = linker.instance("wasi:cli/terminal-stdin@0.2.12")?;
    functions! { place: gives "get-terminal-stdin" = cli::terminal_stdin::Host, get_terminal_stdin(); }
    let mut place = linker.instance("wasi:cli/terminal-stdout@0.2.12")?;
    functions! { place: gives "get-terminal-stdout" = cli::terminal_stdout::Host, get_terminal_stdout(); }
    let mut place = linker.instance("wasi:cli/terminal-stderr@0.2.12")?;
    functions! { place: gives "get-terminal-stderr" = cli::terminal_stderr::Host, get_terminal_stderr(); }
    Ok(())
}

fn streams(linker: &mut Linker<Unit>) -> Result<()> {
    use io::streams::{HostInputStream, HostOutputStream};
    let mut place = linker.instance("wasi:io/error@0.2.12")?;
    resource(&mut place, "error", <Outside as io::error::HostError>::drop)?;
    functions! { place: gives "[method]error.to-debug-string" = io::error::HostError, to_debug_string(failed); }
    let mut place = linker.instance("wasi:io/poll@0.2.12")?;
    resource(&mut place, "pollable", <Outside as io::poll::HostPollable>::drop)?;
    functions! { place:
        gives "[method]pollable.ready" = io::poll::HostPollable, ready(pollable);
        does "[method]pollable.block" = io::poll::HostPollable, block(pollable);
        gives "poll" = io::poll::Host, poll(pollables);
    }
    let mut place = linker.instance("wasi:io/streams@0.2.12")?;
    resource(&mut place, "input-stream", <Outside as HostInputStream>::drop)?;
    resource(&mut place, "output-stream", <Outside as HostOutputStream>::drop)?;
    functions! { place:
        gives "[method]input-stream.read" = HostInputStream, read(stream, bytes);
        gives "[method]input-stream.blocking-read" = HostInputStream, blocking_read(stream, bytes);
        gives "[method]input-stream.skip" = HostInputStream, skip(stream, bytes);
        gives "[method]input-stream.blocking-skip" = HostInputStream, blocking_skip(stream, bytes);
        gives "[method]input-stream.subscribe" = HostInputStream, subscribe(stream);
        gives "[method]output-stream.check-write" = HostOutputStream, check_write(stream);
        gives "[method]output-stream.write" = HostOutputStream, write(stream, contents);
        gives "[method]output-stream.blocking-write-and-flush" = HostOutputStream,
            blocking_write_and_flush(stream, contents);
        gives "[method]output-stream.flush" = HostOutputStream, flush(stream);
        gives "[method]output-stream.blocking-flush" = HostOutputStream, blocking_flush(stream);
        gives "[method]output-stream.subscribe" = HostOutputStream, subscribe(stream);
        gives "[method]output-stream.write-zeroes" = HostOutputStream, write_zeroes(stream, bytes);
        gives "[method]output-stream.blocking-write-zeroes-and-flush" = HostOutputStream,
            blocking_write_zeroes_and_flush(stream, bytes);
        gives "[method]output-stream.splice" = HostOutputStream, splice(to, from, bytes);
        gives "[method]output-stream.blocking-splice" = HostOutputStream, blocking_splice(to, from, bytes);
    }
    Ok(())
}

/// `wasi:http`.
pub fn http(linker: &mut Linker<Unit>) -> Result<()> {
    let mut place = linker.instance("wasi:http/types@0.2.12")?;
    functions! { place: gives "http-error-code" = http::types::Host, http_error_code(failed); }
    fields(&mut place)?;
    comes(&mut place)?;
    leaves(&mut place)?;
    let mut place = linker.instance("wasi:http/outgoing-handler@0.2.12")?;
    functions! { place: gives "handle" = http::outgoing_handler::Host, handle(request, options); }
    Ok(())
}

fn fields(mut place: &mut Place<'_>) -> Result<()> {
    use http::types::HostFields;
    resource(place, "fields", <Outside as HostFields>::drop)?;
    functions! { place:
        gives "[constructor]fields" = HostFields, new();
        gives "[static]fields.from-list" = HostFields, from_list(entries);
        gives "[method]fields.get" = HostFields, get(fields, name);
        gives "[method]fields.has" = HostFields, has(fields, name);
        gives "[method]fields.set" = HostFields, set(fields, name, values);
        gives "[method]fields.delete" = HostFields, delete(fields, name);
        gives "[method]fields.append" = HostFields, append(fields, name, value);
        gives "[method]fields.entries" = HostFields, entries(fields);
        gives "[method]fields.clone" = HostFields, clone(fields);
    }
    Ok(())
}

/// Requests that are served, and replies to requests of the unit's own.
fn comes(mut place: &mut Place<'_>) -> Result<()> {
    use http::types::{
        HostFutureIncomingResponse, HostFutureTrailers, HostIncomingBody, HostIncomingRequest, HostIncomingResponse,
    };
    resource(place, "incoming-request", <Outside as HostIncomingRequest>::drop)?;
    resource(place, "incoming-response", <Outside as HostIncomingResponse>::drop)?;
    resource(place, "incoming-body", <Outside as HostIncomingBody>::drop)?;
    resource(place, "future-trailers", <Outside as HostFutureTrailers>::drop)?;
    resource(place, "future-incoming-response", <Outside as HostFutureIncomingResponse>::drop)?;
    functions! { place:
        gives "[method]incoming-request.method" = HostIncomingRequest, method(request);
        gives "[method]incoming-request.path-with-query" = HostIncomingRequest, path_with_query(request);
        gives "[method]incoming-request.scheme" = HostIncomingRequest, scheme(request);
        gives "[method]incoming-request.authority" = HostIncomingRequest, authority(request);
        gives "[method]incoming-request.headers" = HostIncomingRequest, headers(request);
        gives "[method]incoming-request.consume" = HostIncomingRequest, consume(request);
        gives "[method]incoming-response.status" = HostIncomingResponse, status(response);
        gives "[method]incoming-response.headers" = HostIncomingResponse, headers(response);
        gives "[method]incoming-response.consume" = HostIncomingResponse, consume(response);
        gives "[method]incoming-body.stream" = HostIncomingBody, stream(body);
        gives "[static]incoming-body.finish" = HostIncomingBody, finish(body);
        gives "[method]future-trailers.subscribe" = HostFutureTrailers, subscribe(trailers);
        gives "[method]future-trailers.get" = HostFutureTrailers, get(trailers);
        gives "[method]future-incoming-response.subscribe" = HostFutureIncomingResponse, subscribe(future);
        gives "[method]future-incoming-response.get" = HostFutureIncomingResponse, get(future);
    }
    Ok(())
}

/// Replies, and requests of the unit's own.
fn leaves(mut place: &mut Place<'_>) -> Result<()> {
    use http::types::{
        HostOutgoingBody, HostOutgoingRequest, HostOutgoingResponse, HostRequestOptions, HostResponseOutparam,
    };
    resource(place, "outgoing-request", <Outside as HostOutgoingRequest>::drop)?;
    resource(place, "request-options", <Outside as HostRequestOptions>::drop)?;
    resource(place, "response-outparam", <Outside as HostResponseOutparam>::drop)?;
    resource(place, "outgoing-response", <Outside as HostOutgoingResponse>::drop)?;
    resource(place, "outgoing-body", <Outside as HostOutgoingBody>::drop)?;
    functions! { place:
        gives "[constructor]outgoing-request" = HostOutgoingRequest, new(headers);
        gives "[method]outgoing-request.body" = HostOutgoingRequest, body(request);
        gives "[method]outgoing-request.method" = HostOutgoingRequest, method(request);
        gives "[method]outgoing-request.set-method" = HostOutgoingRequest, set_method(request, method);
        gives "[method]outgoing-request.path-with-query" = HostOutgoingRequest, path_with_query(request);
        gives "[method]outgoing-request.set-path-with-query" = HostOutgoingRequest, set_path_with_query(request, path);
        gives "[method]outgoing-request.scheme" = HostOutgoingRequest, scheme(request);
        gives "[method]outgoing-request.set-scheme" = HostOutgoingRequest, set_scheme(request, scheme);
        gives "[method]outgoing-request.authority" = HostOutgoingRequest, authority(request);
        gives "[method]outgoing-request.set-authority" = HostOutgoingRequest, set_authority(request, authority);
        gives "[method]outgoing-request.headers" = HostOutgoingRequest, headers(request);
        gives "[constructor]request-options" = HostRequestOptions, new();
        gives "[method]request-options.connect-timeout" = HostRequestOptions, connect_timeout(options);
        gives "[method]request-options.set-connect-timeout" = HostRequestOptions, set_connect_timeout(options, ns);
        gives "[method]request-options.first-byte-timeout" = HostRequestOptions, first_byte_timeout(options);
        gives "[method]request-options.set-first-byte-timeout" = HostRequestOptions,
            set_first_byte_timeout(options, ns);
        gives "[method]request-options.between-bytes-timeout" = HostRequestOptions, between_bytes_timeout(options);
        gives "[method]request-options.set-between-bytes-timeout" = HostRequestOptions,
            set_between_bytes_timeout(options, ns);
        does "[static]response-outparam.set" = HostResponseOutparam, set(out, response);
        gives "[constructor]outgoing-response" = HostOutgoingResponse, new(headers);
        gives "[method]outgoing-response.status-code" = HostOutgoingResponse, status_code(response);
        gives "[method]outgoing-response.set-status-code" = HostOutgoingResponse, set_status_code(response, status);
        gives "[method]outgoing-response.headers" = HostOutgoingResponse, headers(response);
        gives "[method]outgoing-response.body" = HostOutgoingResponse, body(response);
        gives "[method]outgoing-body.write" = HostOutgoingBody, write(body);
        gives "[static]outgoing-body.finish" = HostOutgoingBody, finish(body, trailers);
    }
    Ok(())
}

/// `wasi:keyvalue` in its two drafts, which differ in a few functions, and Spin's store.
pub fn stores(linker: &mut Linker<Unit>) -> Result<()> {
    use keyvalue::store::{Host, HostBucket};
    for version in ["0.2.0-draft", "0.2.0-draft2"] {
        let mut place = linker.instance(&format!("wasi:keyvalue/store@{version}"))?;
        resource(&mut place, "bucket", <Outside as HostBucket>::drop)?;
        functions! { place:
            gives "open" = Host, open(name);
            gives "[method]bucket.get" = HostBucket, get(bucket, key);
            gives "[method]bucket.set" = HostBucket, set(bucket, key, value);
            gives "[method]bucket.delete" = HostBucket, delete(bucket, key);
            gives "[method]bucket.exists" = HostBucket, exists(bucket, key);
        }
        let mut place = linker.instance(&format!("wasi:keyvalue/batch@{version}"))?;
        functions! { place:
            gives "set-many" = keyvalue::batch::Host, set_many(bucket, entries);
            gives "delete-many" = keyvalue::batch::Host, delete_many(bucket, keys);
        }
    }
    let mut place = linker.instance("wasi:keyvalue/store@0.2.0-draft")?;
    functions! { place: gives "[method]bucket.list-keys" = HostBucket, list_keys(bucket, cursor); }
    let mut place = linker.instance("wasi:keyvalue/batch@0.2.0-draft")?;
    functions! { place: gives "get-many" = keyvalue::batch::Host, get_many(bucket, keys); }
    let mut place = linker.instance("wasi:keyvalue/atomics@0.2.0-draft")?;
    functions! { place: gives "increment" = keyvalue::atomics::Host, increment(bucket, key, delta); }
    let mut place = linker.instance("wasi:keyvalue/store@0.2.0-draft2")?;
    gives(&mut place, "[method]bucket.list-keys", |outside, (bucket, cursor)| outside.list_after(&bucket, cursor))?;
    let mut place = linker.instance("wasi:keyvalue/batch@0.2.0-draft2")?;
    gives(&mut place, "get-many", |outside, (bucket, keys)| outside.get_many_pairs(&bucket, keys))?;
    let mut place = linker.instance("wasi:keyvalue/atomics@0.2.0-draft2")?;
    resource(&mut place, "cas", Outside::drop_cas)?;
    gives(&mut place, "[static]cas.new", |outside, (bucket, key)| outside.new_cas(&bucket, key))?;
    gives(&mut place, "[method]cas.current", |outside, (cas,)| outside.current(&cas))?;
    gives(&mut place, "increment", |outside, (bucket, key, delta)| outside.increment_signed(&bucket, key, delta))?;
    gives(&mut place, "swap", |outside, (cas, value)| outside.swap(cas, value))?;
    let mut place = linker.instance("fermyon:spin/key-value@2.0.0")?;
    resource(&mut place, "store", <Outside as HostBucket>::drop)?;
    functions! { place:
        gives "[static]store.open" = spin::key_value::HostStore, open(label);
        gives "[method]store.get" = spin::key_value::HostStore, get(store, key);
        gives "[method]store.set" = spin::key_value::HostStore, set(store, key, value);
        gives "[method]store.delete" = spin::key_value::HostStore, delete(store, key);
        gives "[method]store.exists" = spin::key_value::HostStore, exists(store, key);
        gives "[method]store.get-keys" = spin::key_value::HostStore, get_keys(store);
    }
    Ok(())
}

/// `wasi:config` in its drafts, in which only the version is another, Spin's variables, and `wasi:logging`.
pub fn values(linker: &mut Linker<Unit>) -> Result<()> {
    for version in ["0.2.0-rc.1", "0.2.0-draft", "0.2.0-draft-2024-09-27"] {
        let mut place = linker.instance(&format!("wasi:config/store@{version}"))?;
        functions! { place:
            gives "get" = config::store::Host, get(name);
            gives "get-all" = config::store::Host, get_all();
        }
    }
    let mut place = linker.instance("fermyon:spin/variables@2.0.0")?;
    functions! { place: gives "get" = spin::variables::Host, get(name); }
    let mut place = linker.instance("wasi:logging/logging@0.1.0-draft")?;
    functions! { place: does "log" = logging::logging::Host, log(level, context, message); }
    Ok(())
}
