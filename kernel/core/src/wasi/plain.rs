//! The interfaces of WASI that are a function or two each: clocks, randomness, environment, standard streams.

use super::bindings::wasi::{cli, clocks, random};
use super::io::{InputStream, OutputStream, Pollable};
use super::{Handle, Nothing};
use crate::convert as c;
use crate::failure::Exited;
use crate::imports::{Outside, RANDOM_BYTES_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use cli::{terminal_input, terminal_output};
use clocks::wall_clock::Datetime;
use kernel_abi::Verb;
use wasmtime::{Error, Result, bail};

/// Bytes of one `get-random-bytes`. More end the unit.
const RANDOM_BYTES_AT_ONCE_MAX: u64 = 1 << 20;

impl clocks::monotonic_clock::Host for Outside {
    fn now(&mut self) -> Result<u64> {
        Ok(self.host()?.monotonic_ns())
    }

    fn resolution(&mut self) -> Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: u64) -> Result<Handle> {
        self.held.push(Pollable::At(when))
    }

    fn subscribe_duration(&mut self, ns: u64) -> Result<Handle> {
        let when = self.host()?.monotonic_ns().saturating_add(ns);
        self.held.push(Pollable::At(when))
    }
}

impl clocks::wall_clock::Host for Outside {
    fn now(&mut self) -> Result<Datetime> {
        const SECOND_NS: u64 = 1_000_000_000;
        let ns = self.host()?.unix_ns();
        let nanoseconds = u32::try_from(ns % SECOND_NS).unwrap_or(0);
        Ok(Datetime { seconds: ns / SECOND_NS, nanoseconds })
    }

    fn resolution(&mut self) -> Result<Datetime> {
        Ok(Datetime { seconds: 0, nanoseconds: 1 })
    }
}

impl Outside {
    fn word(&mut self) -> Result<u64> {
        let bytes = self.random_bytes(8)?;
        Ok(bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }
}

impl random::random::Host for Outside {
    fn get_random_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        if count > RANDOM_BYTES_AT_ONCE_MAX {
            bail!("wasi:random: {count} bytes asked for, a call gives at most {RANDOM_BYTES_AT_ONCE_MAX}");
        }
        let (mut bytes, count) = (Vec::new(), usize::try_from(count).unwrap_or(0));
        while bytes.len() < count {
            let some = u32::try_from(count - bytes.len()).unwrap_or(u32::MAX).min(RANDOM_BYTES_MAX);
            bytes.append(&mut self.random_bytes(some)?);
        }
        Ok(bytes)
    }

    fn get_random_u64(&mut self) -> Result<u64> {
        self.word()
    }
}

impl random::insecure::Host for Outside {
    fn get_insecure_random_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        random::random::Host::get_random_bytes(self, count)
    }

    fn get_insecure_random_u64(&mut self) -> Result<u64> {
        self.word()
    }
}

impl random::insecure_seed::Host for Outside {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        Ok((self.word()?, self.word()?))
    }
}

impl cli::environment::Host for Outside {
    fn get_environment(&mut self) -> Result<Vec<(String, String)>> {
        match self.ask(Verb::EnvironmentAll, Vec::new(), c::read_pairs)? {
            Ok(variables) => Ok(variables),
            Err(_) => bail!("wasi:cli/environment: the host gives none"),
        }
    }

    fn get_arguments(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
}

impl cli::exit::Host for Outside {
    fn exit(&mut self, status: core::result::Result<(), ()>) -> Result<()> {
        Err(Error::new(Exited(u8::from(status.is_err()))))
    }

    fn exit_with_code(&mut self, status: u8) -> Result<()> {
        Err(Error::new(Exited(status)))
    }
}

impl cli::stdin::Host for Outside {
    fn get_stdin(&mut self) -> Result<Handle> {
        self.held.push(InputStream::Empty)
    }
}

impl cli::stdout::Host for Outside {
    fn get_stdout(&mut self) -> Result<Handle> {
        self.held.push(OutputStream::Stdout)
    }
}

impl cli::stderr::Host for Outside {
    fn get_stderr(&mut self) -> Result<Handle> {
        self.held.push(OutputStream::Stderr)
    }
}

impl terminal_input::Host for Outside {}

impl terminal_input::HostTerminalInput for Outside {
    fn drop(&mut self, terminal: Handle) -> Result<()> {
        self.held.delete::<Nothing>(terminal).map(drop)
    }
}

impl terminal_output::Host for Outside {}

impl terminal_output::HostTerminalOutput for Outside {
    fn drop(&mut self, terminal: Handle) -> Result<()> {
        self.held.delete::<Nothing>(terminal).map(drop)
    }
}

impl cli::terminal_stdin::Host for Outside {
    fn get_terminal_stdin(&mut self) -> Result<Option<Handle>> {
        Ok(None)
    }
}

impl cli::terminal_stdout::Host for Outside {
    fn get_terminal_stdout(&mut self) -> Result<Option<Handle>> {
        Ok(None)
    }
}

impl cli::terminal_stderr::Host for Outside {
    fn get_terminal_stderr(&mut self) -> Result<Option<Handle>> {
        Ok(None)
    }
}
