//! Every file of `contracts/conformance/estimate` is replayed and must say what the Python client says.

use choice::{Curve, Guess, Level};
use serde::Deserialize;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contracts/conformance/estimate");

#[derive(Deserialize)]
struct Case {
    of: Of,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Of {
    Level { prior: f64, variance: f64, drift: f64 },
    Curve { slope: f64, variance: f64, slope_variance: f64 },
}

#[derive(Deserialize)]
struct Step {
    value: f64,
    noise: f64,
    #[serde(default)]
    now: f64,
    #[serde(default)]
    later: f64,
    #[serde(default)]
    size: f64,
    #[serde(default)]
    asked: f64,
    expected: Expected,
}

#[derive(Deserialize)]
struct Expected {
    log: f64,
    variance: f64,
    noise: f64,
}

fn guesses(case: &Case) -> Vec<Guess> {
    match case.of {
        Of::Level { prior, variance, drift } => {
            let mut level = Level::new(prior, variance, drift);
            let said = case.steps.iter().map(|step| {
                level.observe(step.value, step.now, step.noise);
                level.guess(step.now + step.later)
            });
            said.collect()
        }
        Of::Curve { slope, variance, slope_variance } => {
            let mut curve = Curve::new(slope, variance, slope_variance);
            let said = case.steps.iter().map(|step| {
                curve.observe(step.size, step.value, step.noise);
                curve.guess(step.asked)
            });
            said.collect()
        }
    }
}

#[test]
fn estimates_are_those_of_the_contract() {
    let mut count = 0;
    for entry in std::fs::read_dir(FOLDER).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let case: Case = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for (number, (step, said)) in case.steps.iter().zip(guesses(&case)).enumerate() {
            let Expected { log, variance, noise } = step.expected;
            for (said, expected) in [(said.log, log), (said.variance, variance), (said.noise, noise)] {
                let off = (said - expected).abs();
                assert!(
                    off <= 1e-9 * expected.abs() + 1e-12,
                    "{}, step {number}: {said}, not {expected}",
                    path.display()
                );
            }
        }
        count += 1;
    }
    assert_eq!(count, 5);
}
