//! Facts, post and mail on real nats-servers, one and three of them, which are killed, stopped and lose their data.
//!
//! No usual test harness: a server is started through this program, with the word `engine`, as a node does it. Where
//! there is no nats-server all of it is skipped, and a line says what is missing.

mod anchors;
mod contract;
mod failing;
mod joined;
mod letters;
mod process;
mod purged;
mod rights;
mod tls;
mod town;

use facts::NodeName;
use std::process::ExitCode;
use std::time::Instant;
use town::Stage;

type Running<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;
type Test = for<'a> fn(&'a Stage) -> Running<'a>;

const ALL: &[(&str, Test)] = &[
    ("one_server_keeps_the_contract", |stage| Box::pin(async { contract::kept(&stage.town(1).await).await })),
    ("three_servers_keep_the_contract", |stage| Box::pin(async { contract::kept(stage.three().await).await })),
    ("what_a_node_has_no_right_to_the_server_refuses", |stage| Box::pin(rights::refused_by_the_server(stage))),
    ("who_has_no_certificate_of_the_fleet_hears_nothing", |stage| Box::pin(tls::strangers_hear_nothing(stage))),
    ("a_server_that_was_killed_is_started_again_and_knows_all", |stage| Box::pin(process::started_again(stage))),
    ("no_server_outlives_its_node", |stage| Box::pin(process::ends_with_its_node(stage))),
    ("what_it_runs_with_is_for_its_owner_only", |stage| Box::pin(process::for_its_owner_only(stage))),
    ("a_server_that_cannot_run_is_named", |stage| Box::pin(process::named_if_it_cannot_run(stage))),
    ("a_link_leaves_a_server_that_is_silent", |stage| Box::pin(failing::silent_server_is_left(stage))),
    ("counting_goes_on_when_the_leader_is_killed", |stage| Box::pin(failing::leader_is_killed(stage))),
    ("an_anchor_of_another_set_changes_no_stream", |stage| Box::pin(failing::another_set_is_left_alone(stage))),
    ("a_watch_goes_on_when_all_data_are_lost", |stage| Box::pin(failing::all_data_are_lost(stage))),
    ("a_node_that_joined_has_facts_and_post_until_it_is_taken_out", |_| Box::pin(joined::until_it_is_taken_out())),
    ("an_anchor_without_the_program_has_it_started_once_it_is_there", |stage| {
        Box::pin(joined::program_comes_late(stage))
    }),
    ("an_engine_that_starts_is_no_trouble", |_| Box::pin(joined::start_is_no_trouble())),
    ("what_was_taken_goes_from_the_engine_and_what_was_not_stays", |stage| Box::pin(purged::what_was_taken(stage))),
    ("one_anchor_becomes_three_of_which_any_may_go", |_| Box::pin(anchors::one_becomes_three())),
    ("what_anchors_agreed_on_outlives_one_that_was_wiped_and_one_that_is_away", |_| {
        Box::pin(anchors::one_is_wiped_and_another_goes())
    }),
    ("mail_arrives_once_whatever_the_engine_loses", |stage| Box::pin(letters::arrive_once(stage))),
];

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let first = words.next().map(|word| word.to_string_lossy().into_owned());
    match first.as_deref() {
        Some("engine") => {
            eprintln!("{}", fleet_nats::launch(words));
            return ExitCode::FAILURE;
        }
        Some("node") => process::be_a_node(words),
        _ => {}
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let filter = words.iter().find(|word| !word.starts_with('-'));
    let wanted = ALL.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())));
    let wanted: Vec<_> = wanted.collect();
    println!("\nrunning {} tests", wanted.len());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let passed = match Stage::open() {
        _ if words.iter().any(|word| word == "--list") => {
            wanted.iter().for_each(|(name, _)| println!("{name}: test"));
            0
        }
        Err(why) => {
            println!("skipped: nats-server: a fleet's engine: {why}");
            0
        }
        Ok(stage) => {
            for (name, test) in &wanted {
                let began = Instant::now();
                runtime.block_on(test(&stage));
                println!("test {name} ... ok ({} ms)", began.elapsed().as_millis());
            }
            wanted.len()
        }
    };
    println!(
        "\ntest result: ok. {passed} passed; 0 failed; {} ignored; 0 measured; {} filtered out\n",
        wanted.len() - passed,
        ALL.len() - wanted.len()
    );
    ExitCode::SUCCESS
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("it is a name")
}
