//! The nearest known name.
//!
//! One rule for keys, functions, queues and everything else with a name: a few typing errors, a part of the name, or an
//! error in one of its words (`memry` is `memory_bytes`).

/// Letters of a word of a name; shorter ones are too like each other to be told apart with a slip in them.
const WORD_CHARS_MIN: usize = 4;

/// The candidate closest to `word`, if one is close enough to have been meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let close = |candidate: &'a str| Some((slips(&word, &candidate.to_lowercase())?, candidate));
    candidates.into_iter().filter_map(close).min().map(|(_, candidate)| candidate)
}

/// How far `word` is from the name, and from the whole of it; none if it was hardly meant.
fn slips(word: &str, name: &str) -> Option<(usize, usize)> {
    let whole = strsim::damerau_levenshtein(word, name);
    let few = |slips: usize, of: &str| (slips <= of.chars().count().div_ceil(3)).then_some(slips);
    // The first words of the name together, or one of them alone.
    let ends = name.match_indices(['_', '-', '.']).map(|(place, _)| &name[..place]);
    let words = name.split(['_', '-', '.']).chain(ends).filter(|part| part.chars().count() >= WORD_CHARS_MIN);
    let in_a_word = words.filter_map(|part| few(strsim::damerau_levenshtein(word, part), part)).min();
    let is_part = word.chars().count() >= 3 && (name.contains(word) || word.contains(name));
    few(whole, name).into_iter().chain(in_a_word).chain(is_part.then_some(whole)).min().map(|slips| (slips, whole))
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
        assert_eq!(nearest("shet", ["kitchen", "shed"]), Some("shed"));
    }

    #[test]
    fn a_slip_in_one_word_of_a_name_finds_it() {
        let names = ["memory_bytes", "time_ms", "cpu_ms", "body_bytes", "table_elements"];
        assert_eq!(nearest("memry", names), Some("memory_bytes"));
        assert_eq!(nearest("elemnts", names), Some("table_elements"));
        assert_eq!(nearest("memory_byte", names), Some("memory_bytes"));
        assert_eq!(nearest("cpu", names), Some("cpu_ms"));
        assert_eq!(nearest("retries", names), None);
    }
}
