//! Commands as they are typed, for the `--help` of each.

/// By command; a test reads each line as the program would.
pub const OWN: &[(&str, &[&str])] = &[
    ("down", &["lighter down"]),
    ("new", &["lighter new hello", "lighter new hello --lang python"]),
    ("build", &["lighter build hello", "lighter build hello --target aarch64-unknown-none"]),
    (
        "deploy",
        &[
            "lighter deploy hello --build",
            "lighter deploy --json hello | jq -r '.[0].urls[0]'",
            "lighter deploy hello --fleet",
        ],
    ),
    ("rollback", &["lighter rollback hello", "lighter rollback hello --to 3"]),
    ("rm", &["lighter rm hello", "lighter rm --sink alarm"]),
    ("ls", &["lighter ls", "lighter ls --versions"]),
    ("dashboard", &["lighter dashboard --open", "lighter dashboard --scope look --expires 30d"]),
    ("flow", &["lighter flow", "lighter flow --live", "lighter flow orders --svg orders.svg"]),
    ("ps", &["lighter ps"]),
    ("call", &["lighter call hello --data world --timing", "lighter call web --http GET /index.html"]),
    (
        "push",
        &[
            "lighter push readings --data 21.5",
            "lighter push readings --file day.json --delay 10s",
            "lighter push readings --events rescued/queues/readings.jsonl",
        ],
    ),
    ("queue", &["lighter queue ls", "lighter queue dead readings", "lighter queue replay readings"]),
    ("event", &["lighter event 01j9x7-000000000000002a", "lighter event --failed --queue readings"]),
    ("store", &["lighter store ls counters", "lighter store export counters > counters.jsonl"]),
    ("logs", &["lighter logs hello --follow", "lighter logs --tail 20"]),
    ("stats", &["lighter stats", "lighter stats hello"]),
    ("top", &["lighter top", "lighter top --count 3 --json"]),
    ("dump", &["lighter dump hello", "lighter dump hello --output - | wasm-tools print -"]),
    ("dev", &["lighter dev hello"]),
    ("token", &["lighter token create ci --scope deploy --expires 30d", "lighter token ls", "lighter token rm ci"]),
    ("secret", &["lighter secret set SMTP_PASSWORD", "lighter secret ls", "lighter secret rm SMTP_PASSWORD"]),
    ("mqtt", &["lighter mqtt sessions ls", "lighter mqtt sessions rm meter-7 --user meter"]),
    (
        "fleet",
        &[
            "lighter fleet new campus",
            "lighter fleet invite --times 50 --for 8h",
            "lighter fleet why plate",
            "lighter fleet rollback hello",
        ],
    ),
    ("audit", &["lighter audit", "lighter audit -n 1000 --json"]),
    ("backup", &["lighter backup node.backup", "lighter backup node.backup --passphrase-file passphrase"]),
    (
        "upgrade",
        &[
            "lighter upgrade --check lighter-0.2.0-x86_64-linux.tar.gz",
            "lighter upgrade https://example.org/lighter-0.2.0-x86_64-linux.tar.gz --key release.pub",
            "lighter upgrade --rollback",
        ],
    ),
    ("schema", &["lighter schema > lighter.schema.json"]),
    ("errors", &["lighter errors L2001", "lighter errors"]),
    (
        "completions",
        &[
            "lighter completions bash > ~/.local/share/bash-completion/completions/lighter",
            "lighter completions zsh > ~/.zfunc/_lighter",
            "lighter completions fish > ~/.config/fish/completions/lighter.fish",
        ],
    ),
    ("version", &["lighter version", "lighter version --json"]),
];

/// What stands below the options of a command; nothing for those that people do not type.
pub fn of(examples: &[(&str, &[&str])], command: &str) -> Option<String> {
    let (_, lines) = examples.iter().find(|(name, lines)| *name == command && !lines.is_empty())?;
    Some(format!("Examples:\n  {}", lines.join("\n  ")))
}
