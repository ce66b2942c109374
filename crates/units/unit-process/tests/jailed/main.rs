//! Process units in their jails: the checks of all classes, attempts to escape, and what is left afterwards: nothing.
//!
//! No usual test harness: the jail is this program, started again with the word `jail`. Where the system cannot make
//! jails, or has no Python, everything here is skipped, and a line says what is missing.

mod android;
mod java;
mod killed;
mod leavings;
mod lending;
mod stage;

use problem::Code;
use stage::Stage;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unit_process::bundle::{About, Contract, Runtime};

type Running<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;
type Test = for<'a> fn(&'a Stage) -> Running<'a>;

const ALL: &[(&str, Test)] = &[
    ("the_process_class_passes_every_check", |stage| Box::pin(the_process_class_passes_every_check(stage))),
    ("no_attempt_to_escape_succeeds", |stage| Box::pin(no_attempt_to_escape_succeeds(stage))),
    ("no_jail_outlives_its_node", |stage| Box::pin(killed::no_jail_outlives_its_node(stage))),
    ("bombs_end_with_their_unit", |stage| Box::pin(bombs_end_with_their_unit(stage))),
    ("who_works_long_gives_way_whatever_sessions_it_begins", |stage| {
        Box::pin(who_works_long_gives_way_whatever_sessions_it_begins(stage))
    }),
    ("scratch_is_bounded_private_and_emptied", |stage| Box::pin(scratch_is_bounded_private_and_emptied(stage))),
    ("what_a_call_leaves_is_found_by_none", |stage| Box::pin(leavings::what_a_call_leaves_is_found_by_none(stage))),
    ("one_call_cannot_end_the_others", |stage| Box::pin(leavings::one_call_cannot_end_the_others(stage))),
    ("a_call_that_touches_folders_of_others_costs_no_zygote", |stage| {
        Box::pin(leavings::a_call_that_touches_folders_of_others_costs_no_zygote(stage))
    }),
    ("a_zygote_that_empties_nothing_is_ended", |stage| {
        Box::pin(leavings::a_zygote_that_empties_nothing_is_ended(stage))
    }),
    ("a_refused_fork_ends_no_other_call", |stage| Box::pin(leavings::a_refused_fork_ends_no_other_call(stage))),
    ("memory_of_ended_calls_is_bounded", |stage| Box::pin(leavings::memory_of_ended_calls_is_bounded(stage))),
    ("loading_is_bounded_and_not_repeated_at_once", |stage| {
        Box::pin(leavings::loading_is_bounded_and_not_repeated_at_once(stage))
    }),
    ("what_closes_its_socket_and_goes_on_is_ended", |stage| {
        Box::pin(leavings::what_closes_its_socket_and_goes_on_is_ended(stage))
    }),
    ("what_works_before_its_first_call_is_ended", |stage| {
        Box::pin(leavings::what_works_before_its_first_call_is_ended(stage))
    }),
    ("a_gigabyte_of_output_is_swallowed", |stage| Box::pin(a_gigabyte_of_output_is_swallowed(stage))),
    ("what_a_unit_says_is_not_trusted", |stage| Box::pin(what_a_unit_says_is_not_trusted(stage))),
    ("a_large_reply_arrives_whole_lent_or_sent", |stage| Box::pin(a_large_reply_arrives_whole_lent_or_sent(stage))),
    ("a_unit_is_lent_its_own_call_and_no_other", |stage| {
        Box::pin(lending::a_unit_is_lent_its_own_call_and_no_other(stage))
    }),
    ("what_is_handed_on_is_never_lent_again", |stage| Box::pin(lending::what_is_handed_on_is_never_lent_again(stage))),
    ("a_unit_that_is_used_again_keeps_what_it_got", |stage| {
        Box::pin(lending::a_unit_that_is_used_again_keeps_what_it_got(stage))
    }),
    ("calls_at_once_and_calls_that_are_given_up_are_apart", |stage| {
        Box::pin(lending::calls_at_once_and_calls_that_are_given_up_are_apart(stage))
    }),
    ("a_function_that_does_not_load_says_why", |stage| Box::pin(a_function_that_does_not_load_says_why(stage))),
    ("what_works_beside_its_calls_is_ended", |stage| Box::pin(what_works_beside_its_calls_is_ended(stage))),
    ("what_says_what_nobody_waits_for_is_ended", |stage| Box::pin(what_says_what_nobody_waits_for_is_ended(stage))),
    ("what_prints_for_ever_waits_and_goes_on", |stage| Box::pin(what_prints_for_ever_waits_and_goes_on(stage))),
    ("a_buffer_is_named_once_and_grants_are_asked_first", |stage| {
        Box::pin(a_buffer_is_named_once_and_grants_are_asked_first(stage))
    }),
    ("loading_lets_others_go_first_and_calls_do_not", |stage| {
        Box::pin(loading_lets_others_go_first_and_calls_do_not(stage))
    }),
    ("what_ends_at_its_first_fork_is_loaded_less_and_less", |stage| {
        Box::pin(what_ends_at_its_first_fork_is_loaded_less_and_less(stage))
    }),
    ("java_units_pass_every_check", |stage| Box::pin(java::java_units_pass_every_check(stage))),
    ("no_attempt_to_escape_from_java_succeeds", |stage| Box::pin(java::no_attempt_to_escape_from_java_succeeds(stage))),
    ("what_a_java_unit_does_to_itself_ends_with_it", |stage| {
        Box::pin(java::what_a_java_unit_does_to_itself_ends_with_it(stage))
    }),
    ("arguments_come_to_java_as_json_or_in_a_frame", |stage| {
        Box::pin(java::arguments_come_to_java_as_json_or_in_a_frame(stage))
    }),
    ("a_java_function_that_does_not_load_says_why", |stage| {
        Box::pin(java::a_java_function_that_does_not_load_says_why(stage))
    }),
    ("every_published_class_works_in_the_jail", |stage| {
        Box::pin(android::every_published_class_works_in_the_jail(stage))
    }),
    ("methods_of_dex_files_and_apks_are_called", |stage| {
        Box::pin(android::methods_of_dex_files_and_apks_are_called(stage))
    }),
    ("what_another_base_has_converted_is_converted_anew", |stage| {
        Box::pin(android::what_another_base_has_converted_is_converted_anew(stage))
    }),
    ("apps_that_do_not_fit_are_refused_by_name", |stage| {
        Box::pin(android::apps_that_do_not_fit_are_refused_by_name(stage))
    }),
    ("no_attempt_to_escape_through_libdroid_succeeds", |stage| {
        Box::pin(android::no_attempt_to_escape_through_libdroid_succeeds(stage))
    }),
    ("a_spike_of_calls_is_answered_and_its_units_go", |stage| {
        Box::pin(android::a_spike_of_calls_is_answered_and_its_units_go(stage))
    }),
    ("damaged_apps_are_refused", |stage| Box::pin(android::damaged_apps_are_refused(stage))),
    ("idle_functions_hold_no_process", |stage| Box::pin(idle_functions_hold_no_process(stage))),
    ("a_bundle_is_the_one_of_the_sdk", |stage| Box::pin(a_bundle_is_the_one_of_the_sdk(stage))),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "jail") {
        return unit_process::jail::main();
    }
    if words.first().is_some_and(|word| word == "node") {
        return killed::be_a_node(&words[1..]);
    }
    let filter = words.iter().find(|word| !word.starts_with('-'));
    let wanted = ALL.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())));
    let wanted: Vec<_> = wanted.collect();
    println!("\nrunning {} tests", wanted.len());
    if words.iter().any(|word| word == "--list") || wanted.is_empty() {
        wanted.iter().for_each(|(name, _)| println!("{name}: test"));
        println!(
            "\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; {} filtered out\n",
            ALL.len() - wanted.len()
        );
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let passed = runtime.block_on(async {
        let stage = match Stage::open().await {
            Ok(stage) => stage,
            Err(why) => {
                println!("skipped: {why}");
                return 0;
            }
        };
        for (name, test) in &wanted {
            let began = Instant::now();
            test(&stage).await;
            println!("test {name} ... ok ({} ms)", began.elapsed().as_millis());
        }
        nothing_is_left(stage).await;
        wanted.len()
    });
    let ignored = wanted.len() - passed;
    println!(
        "\ntest result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured; {} filtered out\n",
        ALL.len() - wanted.len()
    );
    ExitCode::SUCCESS
}

async fn the_process_class_passes_every_check(stage: &Stage) {
    let images = stage.images();
    let folder = stage.folder("checks");
    checks::run(&stage.class, &images.borrowed(), &folder).await;
}

async fn no_attempt_to_escape_succeeds(stage: &Stage) {
    let attack = stage.attack(|function| {
        function.environment.insert("HOST_PROCESS".to_owned(), std::process::id().to_string());
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        function.environment.insert("HOST_NAME".to_owned(), name.trim().to_owned());
    });
    for name in [
        "others",
        "signals",
        "trace",
        "files",
        "neighbours",
        "network",
        "mounts",
        "kernel",
        "privileges",
        "descriptors",
        "programs",
        "zygote",
        "sockets",
        "owners",
        "names",
    ] {
        let answer = attack.call(&format!("escape {name}")).await.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(!answer.contains("ESCAPED") && answer.contains("held"), "{name}: {answer}");
    }
    assert_eq!(attack.call("remember").await.unwrap(), "1", "and the function goes on");
}

async fn bombs_end_with_their_unit(stage: &Stage) {
    let attack = stage.attack(|function| function.limits.processes = 20);
    assert_eq!(attack.call("remember").await.unwrap(), "1");
    let before = stage::processes_below();
    for name in ["fork_bomb", "thread_bomb", "left_behind"] {
        let answer = attack.call(&format!("escape {name}")).await.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(answer.starts_with("held"), "{name}: {answer}");
        // The zygote, and the spares it was told to have.
        stage::wait_until("their processes end", || stage::processes_below() <= before + 2).await;
    }
    assert_eq!(attack.call("remember").await.unwrap(), "1");
}

/// Priorities were all that slowed a unit down in version 1 of control groups. They mean nothing between sessions where
/// the kernel weighs those: with sixteen units that began their own, the node had a seventeenth of each processor.
async fn who_works_long_gives_way_whatever_sessions_it_begins(stage: &Stage) {
    let source = "import os\n\ndef handle(event):\n    os.fork() or os.setsid()\n    while True:\n        pass\n";
    let busy = stage.function(source, |function| {
        function.limits.cpu_ms = 100_000;
        function.limits.time_ms = 100_000;
    });
    if stage.weights().is_none() {
        return println!("this system has no groups that weigh processes");
    }
    let gives_way =
        stage::wait_until("it gives way", || stage.weights().is_some_and(|all| all.iter().any(|one| *one < 11)));
    tokio::select! {
        answer = busy.call("") => panic!("it ended: {answer:?}"),
        () = gives_way => {}
    }
}

async fn scratch_is_bounded_private_and_emptied(stage: &Stage) {
    let attack = stage.attack(|function| {
        function.limits.scratch_bytes = 4 << 20;
        function.limits.memory_bytes = 128 << 20;
    });
    for _ in 0..3 {
        let answer = attack.call("escape scratch").await.unwrap();
        assert!(answer.contains("held: ENOSPC after 4 MiB"), "{answer}");
    }
    for _ in 0..5 {
        assert_eq!(attack.call("escape scratch_is_empty").await.unwrap(), "held: empty");
    }
}

async fn a_gigabyte_of_output_is_swallowed(stage: &Stage) {
    let attack = stage.attack(|function| {
        function.limits.log_bytes = 10_000;
        function.limits.cpu_ms = 60_000;
    });
    assert_eq!(attack.call("print-flood 1000000000").await.unwrap(), "all written");
    let log = attack.log();
    assert!(log.len() < 20_000 && log.contains("bytes of log output dropped"), "{} bytes", log.len());
}

async fn what_a_unit_says_is_not_trusted(stage: &Stage) {
    let attack = stage.attack(|_| {});
    for (word, code) in [
        ("garble", Code::UnitGarbled),
        ("announce", Code::ReplyTooLarge),
        ("lend 0+1000000", Code::UnitGarbled),
        ("lend", Code::UnitGarbled),
        ("lend 9223372036854775807+64", Code::UnitGarbled),
        ("lend 4096+9223372036854775807", Code::ReplyTooLarge),
        ("lend 4096+9223372036854775807 4096+9223372036854775807 4096+9223372036854775807", Code::UnitGarbled),
        ("lend -1+64", Code::UnitGarbled),
        ("lend-another-frame", Code::UnitGarbled),
        ("exit", Code::UnitExited),
        ("exit-hard", Code::UnitExited),
        ("unreachable", Code::UnitTrapped),
    ] {
        let problem = attack.call(word).await.expect_err(word);
        assert_eq!(problem.code, code, "{word}: {problem}");
    }
}

/// As large as what a unit lends instead of sending it, and as what it sends when it is used again.
/// Finding R3: the node copied a buffer as often as it was named, 300 times 16 MiB, and asked for the grant afterwards.
async fn a_buffer_is_named_once_and_grants_are_asked_first(stage: &Stage) {
    const SOURCE: &str = "from lighterage import frame\nfrom lighterage.unit import queue\n\
        kept = frame.Writer._buffer\n\
        def once(writer, found): return 0 if writer.buffers else kept(writer, found)\n\
        def handle(event):\n  word = event.data.decode()\n\
        \x20 events = [{**queue.outgoing(b''), 'data': frame.Buffer(memoryview(bytes(1 << 20)))}] * 2\n\
        \x20 if word == 'twice': frame.Writer._buffer = once\n\
        \x20 if word == 'nonsense': events = [7]\n\
        \x20 try: queue.push_all('nowhere', events)\n\
        \x20 except Exception as error: return str(error)\n\
        \x20 return 'pushed'";
    let function = stage.function(SOURCE, |_| {});
    for word in ["", "nonsense"] {
        let said = function.call(word).await.unwrap();
        assert!(said.contains("no grant covers"), "{word}: {said}");
    }
    let problem = function.call("twice").await.unwrap_err();
    assert_eq!(problem.code, Code::UnitGarbled, "{problem}");
    assert!(problem.detail.contains("named a buffer twice"), "{problem}");
    // With the grant the events are looked at, and make no sense.
    let granted = stage
        .function(SOURCE, |function| function.grants.push = vec!["nowhere".to_owned().try_into().expect("a name")]);
    assert_eq!(granted.call("nonsense").await.unwrap_err().code, Code::UnitGarbled);
}

async fn a_large_reply_arrives_whole_lent_or_sent(stage: &Stage) {
    const SOURCE: &str = "def handle(event):\n  return event.data * 1_000_000";
    for reuse_calls in [1, 100] {
        let function = stage.function(SOURCE, |function| function.units.reuse_calls = reuse_calls);
        // The first child is born before the node knows what it may read.
        for word in ["ab", "cd", "ef"] {
            assert!(function.call(word).await.unwrap() == word.repeat(1_000_000), "{word} with {reuse_calls} calls");
        }
    }
    let small = stage.function(SOURCE, |function| function.limits.body_bytes = 1_000_000);
    for word in ["ab", "cd"] {
        assert_eq!(small.call(word).await.unwrap_err().code, Code::ReplyTooLarge);
    }
}

async fn a_function_that_does_not_load_says_why(stage: &Stage) {
    for (source, word) in [
        ("def handle(event):\n  broken syntax", "SyntaxError"),
        ("raise ValueError('no luck')", "no luck"),
        ("other = 1", "handle"),
        ("import os\nos._exit(3)", "ended"),
    ] {
        let problem = stage.function(source, |_| {}).call("").await.expect_err(source);
        assert_eq!(problem.code, Code::StartFailed, "{problem}");
        assert!(problem.detail.contains(word), "{source}: {problem}");
    }
    let hog = stage.function("x = []\nwhile True: x.append(b'1' * (1 << 24))", |_| {});
    assert_eq!(hog.call("").await.unwrap_err().code, Code::MemoryExceeded);
}

/// A module may leave threads at work in its zygote, where no call's limits count them.
async fn what_works_beside_its_calls_is_ended(stage: &Stage) {
    let source = |body: &str| {
        format!(
            "import threading, time\ndef beside():\n  while True: {body}\n\
             threading.Thread(target=beside, daemon=True).start()\ndef handle(event): return b'here'"
        )
    };
    let before = stage::processes_below();
    let spins = stage.function(&source("pass"), |_| {});
    let looks_up_now_and_then = stage.function(&source("time.sleep(0.1)"), |_| {});
    for function in [&spins, &looks_up_now_and_then] {
        assert_eq!(function.call("").await.unwrap(), "here");
    }
    stage::wait_until("what spins is ended", || {
        spins.prepared.sweep(Instant::now(), false);
        looks_up_now_and_then.prepared.sweep(Instant::now(), false);
        spins.log().contains("error[L6011]")
    })
    .await;
    assert_eq!(spins.call("").await.unwrap(), "here", "and is started again when it is called");
    for _ in 0..200 {
        let answer = looks_up_now_and_then.call("").await;
        assert_eq!(answer.as_deref(), Ok("here"), "{}", looks_up_now_and_then.log());
        looks_up_now_and_then.prepared.sweep(Instant::now(), false);
    }
    assert!(!looks_up_now_and_then.log().contains("L6011"), "{}", looks_up_now_and_then.log());
    drop((spins, looks_up_now_and_then));
    stage::wait_until("all of it goes", || stage::processes_below() <= before).await;
}

async fn what_says_what_nobody_waits_for_is_ended(stage: &Stage) {
    // The module shares a byte with its children: when a call sets it, the thread in the zygote begins.
    let source = |message: &str| {
        format!(
            "import mmap, os, socket, threading, time\nflag = mmap.mmap(-1, 1)\n\
             control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(0))\n\
             def flood():\n  while flag[0] == 0: time.sleep(0.01)\n  while True: control.send({message})\n\
             threading.Thread(target=flood, daemon=True).start()\n\
             def handle(event):\n  flag[0] = event.data == b'now'\n  time.sleep(20 * flag[0])\n  return b'here'"
        )
    };
    for message in ["b'exited 63 0'", "b'exited 0'", "b'?'", "bytes(4096)"] {
        let function = stage.function(&source(message), |_| {});
        assert_eq!(function.call("").await.unwrap(), "here");
        let problem = function.call("now").await.expect_err(message);
        assert_eq!(problem.code, Code::ZygoteEnded, "{message}: {problem}");
        assert!(function.log().contains("error[L6011]"), "{message}: {}", function.log());
        assert_eq!(function.call("").await.unwrap(), "here", "and is started again when it is called");
    }
    let early = stage.function(&source("b'?'").replace("flag[0] == 0", "False"), |_| {});
    assert!(matches!(early.call("").await.unwrap_err().code, Code::StartFailed | Code::ZygoteEnded));
}

async fn what_prints_for_ever_waits_and_goes_on(stage: &Stage) {
    const SOURCE: &str = "import os, threading\ndef flood():\n  while True: os.write(1, bytes(65536))\n\
        threading.Thread(target=flood, daemon=True).start()\ndef handle(event): return b'here'";
    let function = stage.function(SOURCE, |_| {});
    assert_eq!(function.call("").await.unwrap(), "here");
    let before = stage::cpu_ticks();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        assert_eq!(function.call("").await.unwrap(), "here");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Half of one core: a flood that is read as fast as it comes takes all of one and more.
    assert!(stage::cpu_ticks() - before < 150, "{} ticks of 10 ms in 3 s", stage::cpu_ticks() - before);
    function.prepared.sweep(Instant::now(), false);
    assert_eq!(function.log().matches("error").count(), 0, "{}", function.log());
}

/// Finding R12: what a module started while it was loaded ran beside the node at the node's own priority.
async fn loading_lets_others_go_first_and_calls_do_not(stage: &Stage) {
    const SOURCE: &str = "import os, threading\nbegan = os.getpriority(os.PRIO_PROCESS, 0)\nseen = []\n\
        def beside(): seen.append(os.getpriority(os.PRIO_PROCESS, 0))\n\
        thread = threading.Thread(target=beside)\nthread.start()\nthread.join()\n\
        def handle(event): return f'{began} {seen[0]} {os.getpriority(os.PRIO_PROCESS, 0)}'";
    let said = stage.function(SOURCE, |_| {}).call("").await.unwrap();
    // Without the right to give priority back none is taken.
    let expected = if stage::can_raise_priority() { "10 10 0" } else { "0 0 0" };
    assert_eq!(said, expected);
}

/// Each call loaded it again, at once.
async fn what_ends_at_its_first_fork_is_loaded_less_and_less(stage: &Stage) {
    let function =
        stage.function("import os\nprint('loaded')\nos.fork = lambda: os._exit(3)\ndef handle(event): pass", |_| {});
    let began = Instant::now();
    let mut calls = 0;
    while began.elapsed() < Duration::from_millis(2_500) || calls <= 20 {
        // Also the call that loads it hears what the function did, and not that the node is full.
        let problem = function.call("").await.unwrap_err();
        assert_eq!(problem.code, Code::StartFailed, "{problem}");
        calls += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // At once, after a second, and perhaps after two more; on a busy machine after four and eight.
    let seconds = began.elapsed().as_secs();
    let most = [0, 1, 3, 7, 15, 31, 63].into_iter().filter(|after| *after <= seconds).count();
    let loads = function.log().matches("loaded").count();
    assert!((1..=most).contains(&loads), "{loads} loads in {calls} calls and {seconds} s");
}

async fn idle_functions_hold_no_process(stage: &Stage) {
    stage::wait_until("the functions before are gone", || stage::processes_below() == 0).await;
    let hello = stage.function("def handle(event): return b'here'", |_| {});
    assert_eq!(hello.call("").await.unwrap(), "here");
    assert!(stage::processes_below() > 0);
    hello.prepared.sweep(Instant::now(), false);
    assert_eq!(hello.call("").await.unwrap(), "here");
    stage::wait_until("its zygote ends", || {
        // Now and then, as a node does: a spare that was being forked is found the next time.
        hello.prepared.sweep(Instant::now() + Duration::from_secs(3_600), false);
        stage::processes_below() == 0
    })
    .await;
    assert_eq!(hello.call("").await.unwrap(), "here", "and is started again");
}

async fn a_bundle_is_the_one_of_the_sdk(stage: &Stage) {
    let made = stage.pack_by_sdk(&[("b/c.py", "x = 1\n"), ("app.py", "def handle(event): ...\n")]);
    let files = [("app.py".to_owned(), &b"def handle(event): ...\n"[..]), ("b/c.py".to_owned(), b"x = 1\n")];
    let bundle = unit_process::bundle::Bundle {
        about: About {
            python: "3.11".into(),
            requires: vec!["numpy==2.1.0".into()],
            ..About::new(Contract::Call, "app:handle", Runtime::Python)
        },
        files: files.into_iter().collect(),
    };
    assert_eq!(bundle.pack().unwrap(), made, "the same files give the same bytes in both languages");
}

/// Once all functions are dropped.
async fn nothing_is_left(stage: Stage) {
    let bases = stage.close();
    stage::wait_until("all processes end", || stage::processes_below() == 0).await;
    stage::wait_until("all control groups go", || stage::control_groups(&bases).is_empty()).await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&bases.display().to_string()), "mounts are left: {mounts}");
    let left: Vec<_> = std::fs::read_dir(bases.join("root")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
