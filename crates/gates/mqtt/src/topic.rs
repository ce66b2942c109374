//! Topic names and filters: their form, whether one matches, whether one covers another.

/// Beginning of a shared subscription: `$share/GROUP/FILTER`.
const SHARED: &str = "$share/";

/// What a SUBSCRIBE asks for, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Of a shared subscription: each message goes to one of the group.
    pub group: Option<&'a str>,
    /// The topic filter itself.
    pub topics: &'a str,
}

impl<'a> Filter<'a> {
    /// None if it is no filter, or has more levels than `levels_max`.
    pub fn new(text: &'a str, levels_max: usize) -> Option<Self> {
        let (group, topics) = match text.strip_prefix(SHARED) {
            Some(rest) => {
                let (group, topics) = rest.split_once('/')?;
                if group.is_empty() || group.contains(['+', '#']) {
                    return None;
                }
                (Some(group), topics)
            }
            None => (None, text),
        };
        is_filter(topics, levels_max).then_some(Self { group, topics })
    }
}

/// Whether this is a topic filter (MQTT 5.0, 4.7).
pub fn is_filter(text: &str, levels_max: usize) -> bool {
    let mut levels = 0;
    let mut ended = false;
    for level in text.split('/') {
        levels += 1;
        let fits = match level {
            "#" => !std::mem::replace(&mut ended, true),
            "+" => !ended,
            level => !ended && !level.contains(['+', '#']),
        };
        if !fits || levels > levels_max {
            return false;
        }
    }
    !text.is_empty() && !text.contains('\0')
}

/// Levels of a topic or filter.
pub fn levels(text: &str) -> usize {
    1 + text.bytes().filter(|byte| *byte == b'/').count()
}

/// Whether messages published under `topic` belong to `filter`.
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && !filter.starts_with('$') {
        return false;
    }
    let (mut wanted, mut given) = (filter.split('/'), topic.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(name)) if level == name => {}
            _ => return false,
        }
    }
}

/// Whether every topic that `inner` matches is matched by `outer` as well.
pub fn covers(outer: &str, inner: &str) -> bool {
    if inner.starts_with('$') && !outer.starts_with('$') {
        return false;
    }
    let (mut wide, mut narrow) = (outer.split('/'), inner.split('/'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some("#"), _) | (None, None) => return true,
            // `a/#` also matches `a`, but a filter that goes on after `a` never does; only `#` itself is that wide.
            (_, Some("#")) => return false,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(name)) if level == name => {}
            _ => return false,
        }
    }
}

/// Whether some topic may be matched by both; it may say so of filters with wildcards where topics with `$` alone
/// would.
pub fn overlaps(first: &str, second: &str) -> bool {
    let (mut first, mut second) = (first.split('/'), second.split('/'));
    loop {
        match (first.next(), second.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_standard_says() {
        for (filter, topic, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a/b/", false),
            ("a/+", "a/", true),
            ("a/+", "a", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("#", "a/b", true),
            ("#", "$SYS/a", false),
            ("+/a", "$SYS/a", false),
            ("$SYS/#", "$SYS/a", true),
            ("+/+", "/a", true),
            ("/+", "/a", true),
            ("+", "/a", false),
            ("sport/+/player1", "sport/x/player1", true),
            ("A", "a", false),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn a_filter_covers_what_is_narrower() {
        for (outer, inner, expected) in [
            ("#", "a/+/#", true),
            ("a/#", "a", true),
            ("a/#", "a/#", true),
            ("a/#", "a/+/b", true),
            ("a/#", "#", false),
            ("a/+", "a/#", false),
            ("a/+", "a/+", true),
            ("a/+", "a/b", true),
            ("a/b", "a/+", false),
            ("#", "$SYS/#", false),
            ("+/b", "$SYS/b", false),
        ] {
            assert_eq!(covers(outer, inner), expected, "{outer} {inner}");
        }
    }

    #[test]
    fn shared_filters_are_taken_apart() {
        assert_eq!(Filter::new("$share/g/a/#", 8), Some(Filter { group: Some("g"), topics: "a/#" }));
        assert_eq!(Filter::new("$share/g//a", 8), Some(Filter { group: Some("g"), topics: "/a" }));
        for bad in ["$share/g", "$share//a", "$share/g/", "$share/+/a", "a/#/b", "a+", "", "a\0"] {
            assert_eq!(Filter::new(bad, 8), None, "{bad:?}");
        }
        assert_eq!(Filter::new("a/b/c", 2), None);
    }
}
