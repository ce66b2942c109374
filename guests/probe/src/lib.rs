//! A `lighter:unit` function that uses WASI 0.2 beside it, well and badly, as its data says: `WORD` or `WORD NUMBER`.
//!
//! ```text
//! environment  what variables there are         random     16 random bytes, and 16 of a seed
//! clocks       seconds, and whether time goes on  sleep N    waits so many milliseconds, and says how long it took
//! print        a line to each of the two streams   empty      that there is no input, no folder and no socket
//! exit N       ends itself with this status        poll-none  waits for nothing
//! random-huge  a gigabyte of randomness            handles    makes handles until there are none
//! zeroes       a gigabyte of zeroes to print       print-flood  prints without an end
//! wait-none    waits for a moment that never comes
//! ```

wit_bindgen::generate!({
    inline: "
        package guests:probe;
        world guest {
            include lighter:unit/function@0.1.0;
            import wasi:cli/environment@0.2.12;
            import wasi:cli/exit@0.2.12;
            import wasi:cli/stdin@0.2.12;
            import wasi:cli/stdout@0.2.12;
            import wasi:cli/stderr@0.2.12;
            import wasi:cli/terminal-stdout@0.2.12;
            import wasi:clocks/wall-clock@0.2.12;
            import wasi:clocks/monotonic-clock@0.2.12;
            import wasi:random/random@0.2.12;
            import wasi:random/insecure@0.2.12;
            import wasi:random/insecure-seed@0.2.12;
            import wasi:filesystem/preopens@0.2.12;
            import wasi:sockets/instance-network@0.2.12;
            import wasi:sockets/tcp-create-socket@0.2.12;
            import wasi:sockets/udp-create-socket@0.2.12;
            import wasi:sockets/ip-name-lookup@0.2.12;
        }
    ",
    path: "../../contracts/wit",
    generate_all,
});

use exports::lighter::unit::handler::{Event, Failure, Guest};
use wasi::cli::{environment, exit, stderr, stdin, stdout, terminal_stdout};
use wasi::clocks::{monotonic_clock, wall_clock};
use wasi::filesystem::preopens;
use wasi::io::poll;
use wasi::io::streams::StreamError;
use wasi::random::{insecure, insecure_seed, random};
use wasi::sockets::{instance_network, ip_name_lookup, network::IpAddressFamily, tcp_create_socket, udp_create_socket};

struct Probe;

impl Guest for Probe {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let data = String::from_utf8_lossy(&event.data);
        let (word, number) = data.split_once(' ').unwrap_or((&data, "0"));
        let number: u64 = number.parse().unwrap_or(0);
        let said = match word {
            "environment" => variables(),
            "random" => return Ok(randomness()),
            "clocks" => clocks(),
            "sleep" => sleep(number),
            "print" => print(),
            "empty" => empty()?,
            "exit" => {
                exit::exit_with_code(number as u8);
                String::new()
            }
            "poll-none" => poll::poll(&[]).len().to_string(),
            "random-huge" => random::get_random_bytes(1 << 30).len().to_string(),
            "handles" => loop {
                std::mem::forget(stdout::get_stdout());
            },
            "zeroes" => format!("{:?}", stdout::get_stdout().write_zeroes(1 << 30)),
            "print-flood" => loop {
                let _ = stdout::get_stdout().blocking_write_and_flush(&[b'x'; 4_096]);
            },
            "wait-none" => {
                monotonic_clock::subscribe_instant(u64::MAX).block();
                String::new()
            }
            _ => return Err(Failure::Invalid(format!("there is no {word:?}"))),
        };
        Ok(said.into_bytes())
    }
}

fn variables() -> String {
    let variables = environment::get_environment();
    let mut said: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    said.push(format!("{} arguments", environment::get_arguments().len()));
    said.join(" ")
}

fn randomness() -> Vec<u8> {
    let mut bytes = random::get_random_bytes(8);
    bytes.extend(random::get_random_u64().to_le_bytes());
    let (low, high) = insecure_seed::insecure_seed();
    bytes.extend(low.to_le_bytes());
    bytes.extend((high ^ insecure::get_insecure_random_u64()).to_le_bytes());
    bytes
}

fn clocks() -> String {
    let (before, now) = (monotonic_clock::now(), wall_clock::now());
    let does_go_on = (0..1_000_000).any(|_| monotonic_clock::now() > before);
    format!("{} {does_go_on}", now.seconds)
}

/// The later of two moments is waited for beside the sooner one, which alone is ready then.
fn sleep(ms: u64) -> String {
    let before = monotonic_clock::now();
    let sooner = monotonic_clock::subscribe_duration(ms * 1_000_000);
    let later = monotonic_clock::subscribe_instant(before + (ms + 3_600_000) * 1_000_000);
    let ready = poll::poll(&[&later, &sooner]);
    let ms = (monotonic_clock::now() - before) / 1_000_000;
    format!("{ms} {ready:?} {} {}", later.ready(), sooner.ready())
}

fn print() -> String {
    let (out, err) = (stdout::get_stdout(), stderr::get_stderr());
    // A line that comes in two pieces is one line.
    for piece in ["to std", "out\n"] {
        out.blocking_write_and_flush(piece.as_bytes()).expect("it takes output");
    }
    err.blocking_write_and_flush(b"to stderr\nnot ended").expect("it takes output");
    format!("{}", terminal_stdout::get_terminal_stdout().is_none())
}

fn empty() -> Result<String, Failure> {
    let input = stdin::get_stdin().blocking_read(10);
    let is_input_empty = matches!(input, Err(StreamError::Closed));
    let network = instance_network::instance_network();
    let family = IpAddressFamily::Ipv4;
    let sockets = [
        tcp_create_socket::create_tcp_socket(family).and_then(|socket| {
            let address = wasi::sockets::network::IpSocketAddress::Ipv4(wasi::sockets::network::Ipv4SocketAddress {
                port: 80,
                address: (127, 0, 0, 1),
            });
            socket.start_connect(&network, address)
        }),
        udp_create_socket::create_udp_socket(family).and_then(|socket| socket.stream(None).map(drop)),
        ip_name_lookup::resolve_addresses(&network, "localhost").and_then(|names| {
            names.subscribe().block();
            names.resolve_next_address().map(drop)
        }),
    ];
    let refused = sockets.iter().filter(|socket| socket.is_err()).count();
    Ok(format!("{is_input_empty} {} folders {refused} refused", preopens::get_directories().len()))
}

export!(Probe);
