//! The name somebody probably meant.

use super::client::{Client, encoded};
use super::stop::{Result, Stop};
use crate::api::types::{FunctionInfo, QueueInfo};
use manifest::Name;
use problem::{Code, Problem};

/// The candidate closest to `word`, if one is close enough to have been meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let close = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let distance = strsim::damerau_levenshtein(&word, &candidate);
        let part = word.len() >= 3 && (candidate.contains(&word) || word.contains(&candidate));
        (distance <= candidate.chars().count().div_ceil(3) || part).then_some(distance)
    };
    candidates
        .into_iter()
        .filter_map(|candidate| Some((close(candidate)?, candidate)))
        .min()
        .map(|(_, candidate)| candidate)
}

/// The path of a function in the API.
///
/// # Errors
/// It cannot be the name of a function; the nearest one is named.
pub fn function_path(client: &Client, name: &str) -> Result<String> {
    match name.parse::<Name>() {
        Ok(name) => Ok(format!("/v1/functions/{}", encoded(name.as_str()))),
        Err(_) => {
            Err(explain(client, name, Stop::new(Code::FunctionUnknown, format!("there is no function {name:?}"))))
        }
    }
}

/// Adds the nearest name to a problem about an unknown function.
pub fn explain(client: &Client, name: &str, stop: Stop) -> Stop {
    let Stop::Problem(problem) = stop else { return stop };
    if problem.code != Code::FunctionUnknown {
        return problem.into();
    }
    // Whoever may not list the functions still learns that this one is missing.
    let Ok(functions) = client.get::<Vec<FunctionInfo>>("/v1/functions") else { return problem.into() };
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    with_nearest(problem, name, &names).into()
}

/// Adds the nearest name to a problem about an unknown queue.
pub fn explain_queue(client: &Client, name: &str, stop: Stop) -> Stop {
    let Stop::Problem(problem) = stop else { return stop };
    if problem.code != Code::QueueUnknown {
        return problem.into();
    }
    let Ok(queues) = client.get::<Vec<QueueInfo>>("/v1/queues") else { return problem.into() };
    match nearest(name, queues.iter().map(|queue| queue.name.as_str())) {
        Some(near) => problem.with_hint(format!("did you mean {near:?}?")).into(),
        None => problem.into(),
    }
}

fn with_nearest(problem: Problem, name: &str, names: &[&str]) -> Problem {
    if names.contains(&name) {
        return problem;
    }
    match nearest(name, names.iter().copied()) {
        Some(near) => problem.with_hint(format!("did you mean {near:?}?")),
        None if names.is_empty() => problem.with_hint("nothing is deployed yet: `lighter deploy` does it"),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_its_name_and_nonsense_finds_none() {
        let names = ["hello", "hello-http", "fibonacci", "kv"];
        assert_eq!(nearest("helo", names), Some("hello"));
        assert_eq!(nearest("ehllo", names), Some("hello"));
        assert_eq!(nearest("Hello", names), Some("hello"));
        assert_eq!(nearest("fib", names), Some("fibonacci"));
        assert_eq!(nearest("vk", names), Some("kv"));
        assert_eq!(nearest("zzz", names), None);
        assert_eq!(nearest("zzz", []), None);
    }

    #[test]
    fn the_hint_says_what_can_be_done() {
        let hint = |names: &[&str]| with_nearest(Problem::new(Code::FunctionUnknown, "x"), "helo", names).hint;
        assert_eq!(hint(&["hello"]), "did you mean \"hello\"?");
        assert!(hint(&[]).contains("lighter deploy"));
        assert!(hint(&["zzz"]).contains("lighter ls"));
    }
}
