//! Regular expressions: a pattern becomes a program, and the program an automaton whose states are found when text first
//! leads to them, as in the libraries that people use.
//!
//! Of the syntax there is what the patterns here need: bytes, `.`, classes with ranges, `*`, `+`, `?`, `|` and groups.

use crate::random::Random;

const LINES: usize = 60;

/// An address with a date, a word twice, and what looks like a number of a version.
const PATTERNS: [&str; 3] =
    ["[a-z0-9.]+@[a-z]+(.com|.org) 20[0-9][0-9]-[01][0-9]", "(ha|ho)+ .*end", "v[0-9]+[.][0-9]+([.][0-9]+)?"];

#[inline(never)]
pub fn run(rounds: u32) -> u64 {
    let programs = PATTERNS.map(|pattern| Program::new(pattern).expect("the patterns are right"));
    let mut automata = programs.each_ref().map(Automaton::new);
    let lines = lines();
    let mut found = 0_u64;
    for _ in 0..rounds {
        for automaton in &mut automata {
            for line in &lines {
                found = found.wrapping_mul(31).wrapping_add(automaton.first_end(line.as_bytes()).unwrap_or(0) as u64);
            }
        }
    }
    found
}

fn lines() -> Vec<String> {
    let mut random = Random::new();
    let line = |_| {
        let [name, year, month, minor] = std::array::from_fn(|_| random.next() % 12);
        match random.next() % 4 {
            0 => format!("a letter from who.{name}@example.org 20{year:02}-{month:02} about the ships in the harbour"),
            1 => format!("they said ha ho haha hoho {name} and so it came to its end, or not, at number {minor}"),
            2 => format!("release v{year}.{minor} of the program, which has nothing to do with v{month} or v.3 of it"),
            _ => "a line in which no pattern is found, however long one looks, and one looks long @example".to_owned(),
        }
    };
    (0..LINES).map(line).collect()
}

enum Step {
    /// Any of these bytes.
    Bytes(Box<[bool; 256]>),
    /// Both ways.
    Split(usize, usize),
    Jump(usize),
    Found,
}

struct Program(Vec<Step>);

impl Program {
    fn new(pattern: &str) -> Option<Self> {
        let mut parser = Parser { pattern: pattern.as_bytes(), at: 0 };
        let mut steps = parser.choice()?;
        steps.push(Step::Found);
        (parser.at == pattern.len()).then_some(Self(steps))
    }
}

struct Parser<'a> {
    pattern: &'a [u8],
    at: usize,
}

/// Steps that begin at nought, and so are moved when they are put behind others.
type Steps = Vec<Step>;

fn append(to: &mut Steps, more: Steps) {
    let by = to.len();
    to.extend(more.into_iter().map(|step| match step {
        Step::Split(one, other) => Step::Split(one + by, other + by),
        Step::Jump(there) => Step::Jump(there + by),
        other => other,
    }));
}

impl Parser<'_> {
    fn is_next(&mut self, byte: u8) -> bool {
        let is_it = self.pattern.get(self.at) == Some(&byte);
        self.at += usize::from(is_it);
        is_it
    }

    fn choice(&mut self) -> Option<Steps> {
        let first = self.sequence()?;
        if !self.is_next(b'|') {
            return Some(first);
        }
        let second = self.choice()?;
        let mut steps = vec![Step::Split(1, first.len() + 2)];
        append(&mut steps, first);
        steps.push(Step::Jump(steps.len() + 1 + second.len()));
        append(&mut steps, second);
        Some(steps)
    }

    fn sequence(&mut self) -> Option<Steps> {
        let mut steps = Vec::new();
        while !matches!(self.pattern.get(self.at), None | Some(b'|' | b')')) {
            let part = self.part()?;
            append(&mut steps, part);
        }
        Some(steps)
    }

    fn part(&mut self) -> Option<Steps> {
        let one = self.one()?;
        let length = one.len();
        let mut steps = Vec::new();
        if self.is_next(b'*') {
            steps.push(Step::Split(1, length + 2));
            append(&mut steps, one);
            steps.push(Step::Jump(0));
        } else if self.is_next(b'+') {
            steps = one;
            steps.push(Step::Split(0, length + 1));
        } else if self.is_next(b'?') {
            steps.push(Step::Split(1, length + 1));
            append(&mut steps, one);
        } else {
            steps = one;
        }
        Some(steps)
    }

    fn one(&mut self) -> Option<Steps> {
        let byte = *self.pattern.get(self.at)?;
        self.at += 1;
        if byte == b'(' {
            let group = self.choice()?;
            return self.is_next(b')').then_some(group);
        }
        let mut bytes = Box::new([byte == b'.'; 256]);
        if byte == b'[' {
            while !self.is_next(b']') {
                let from = *self.pattern.get(self.at)?;
                self.at += 1;
                let mut to = from;
                if self.is_next(b'-') {
                    to = *self.pattern.get(self.at)?;
                    self.at += 1;
                }
                (from..=to).for_each(|byte| bytes[usize::from(byte)] = true);
            }
        } else {
            bytes[usize::from(byte)] = true;
        }
        Some(vec![Step::Bytes(bytes)])
    }
}

/// A state is a set of places of the program, of which each byte makes another one.
struct Automaton<'a> {
    program: &'a Program,
    states: Vec<Vec<usize>>,
    /// For each state where each of 256 bytes leads, as far as that is known. States go by where theirs begin here.
    next: Vec<u32>,
}

/// Where text begins. A match may begin at each byte, so its places are in all states.
const START: u32 = 0;
/// A match has ended.
const FOUND: u32 = u32::MAX - 1;
const UNKNOWN: u32 = u32::MAX;
const BYTES: usize = 256;

impl<'a> Automaton<'a> {
    fn new(program: &'a Program) -> Self {
        let mut automaton = Self { program, states: Vec::new(), next: Vec::new() };
        let first = automaton.state(Vec::new());
        assert!(first == START || first == FOUND);
        automaton
    }

    /// Where the first match ends, as soon as there is one.
    fn first_end(&mut self, text: &[u8]) -> Option<usize> {
        if self.states.is_empty() {
            return Some(0);
        }
        let mut state = START;
        for (at, byte) in text.iter().enumerate() {
            let mut next = self.next[state as usize + usize::from(*byte)];
            if next == UNKNOWN {
                next = self.find(state, *byte);
            }
            if next == FOUND {
                return Some(at + 1);
            }
            state = next;
        }
        None
    }

    #[cold]
    fn find(&mut self, from: u32, byte: u8) -> u32 {
        let mut places = Vec::new();
        for place in &self.states[from as usize / BYTES] {
            if matches!(&self.program.0[*place], Step::Bytes(bytes) if bytes[usize::from(byte)]) {
                put(&self.program.0, place + 1, &mut places);
            }
        }
        let next = self.state(places);
        self.next[from as usize + usize::from(byte)] = next;
        next
    }

    /// A state: these places, and those at which a match begins.
    fn state(&mut self, mut places: Vec<usize>) -> u32 {
        put(&self.program.0, 0, &mut places);
        places.sort_unstable();
        if places.iter().any(|place| matches!(self.program.0[*place], Step::Found)) {
            return FOUND;
        }
        let known = self.states.iter().position(|state| *state == places);
        let number = known.unwrap_or_else(|| {
            self.states.push(places);
            self.next.extend([UNKNOWN; BYTES]);
            self.states.len() - 1
        });
        (number * BYTES) as u32
    }
}

/// Adds a place, or those it leads to without reading a byte.
fn put(program: &[Step], place: usize, to: &mut Vec<usize>) {
    match program[place] {
        Step::Jump(there) => put(program, there, to),
        Step::Split(one, other) => {
            put(program, one, to);
            put(program, other, to);
        }
        _ if to.contains(&place) => {}
        _ => to.push(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(pattern: &str, text: &str) -> Option<usize> {
        Automaton::new(&Program::new(pattern).unwrap()).first_end(text.as_bytes())
    }

    #[test]
    fn matches_end_where_they_should() {
        assert_eq!(end("b", "abc"), Some(2));
        assert_eq!(end("x", "abc"), None);
        assert_eq!(end("a(b|cd)e?f", "xacdf"), Some(5));
        assert_eq!(end("[0-9]+-[a-c]*x", "12-abcx"), Some(7));
        assert_eq!(end("(ha|ho)+!", "hahoha!"), Some(7));
        assert_eq!(end(".*z", "abcz"), Some(4));
        assert_eq!(end("", ""), Some(0));
    }

    #[test]
    fn patterns_that_do_not_end_are_refused() {
        assert!(["(a", "[a", "a)", "[a-"].iter().all(|pattern| Program::new(pattern).is_none()));
    }
}
