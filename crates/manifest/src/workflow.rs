//! Bounds of a workflow as a whole: how many units its functions have together, and what happens under too much work.

use crate::nearest::nearest;
use crate::{Function, Manifest, Name, PolicyWord};
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Units of a workflow, at most.
const UNITS_MAX: u32 = 1_000_000;

/// Functions that are bounded together. Without a workflow in the manifest, functions are bounded one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workflow {
    /// Its functions; each handles a queue, and belongs to no other workflow. Without it, all functions of the manifest
    /// that handle a queue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Name>,
    /// Units that handle queued events at once, for all its functions together. Without it, each function has only its
    /// own `units.maximum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub units_max: Option<u32>,
    pub on_overload: OnOverload,
}

/// What happens when a function has all its units at work and its queue still grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnOverload {
    /// Events wait until the queue is full; then new ones are refused.
    #[default]
    Shed,
    /// The workflow ends with a logged error: its functions handle no more events until they are deployed again (as
    /// UniFaaS does). For functions with the policy `triggers`.
    End,
}

impl Workflow {
    /// As it is kept: its functions are named.
    pub fn resolved(&self, manifest: &Manifest) -> Self {
        let handling = || manifest.function.iter().filter(|(name, function)| function.handles(name).is_some());
        let functions = match self.functions.is_empty() {
            true => handling().map(|(name, _)| name.clone()).collect(),
            false => self.functions.clone(),
        };
        Self { functions, ..self.clone() }
    }

    fn check(&self, name: &Name, manifest: &Manifest) -> Result<(), Problem> {
        let about = |code: Code, what: String| Problem::new(code, format!("workflow {:?}: {what}", name.as_str()));
        if self.functions.is_empty() {
            let problem = about(Code::ManifestValue, "no function of the manifest handles a queue".to_owned());
            return Err(problem.with_hint("a workflow bounds functions that handle events: give one a queue"));
        }
        if let Some(units_max) = self.units_max.filter(|units_max| !(1..=UNITS_MAX).contains(units_max)) {
            let what = format!("units_max is {units_max}, it must be between 1 and {UNITS_MAX}");
            return Err(
                about(Code::ManifestValue, what).with_hint("`units.maximum = 0` of a function pauses its queue")
            );
        }
        for step in &self.functions {
            let Some(function) = manifest.function.get(step).filter(|function| function.handles(step).is_some()) else {
                let problem =
                    about(Code::ManifestValue, format!("no function {:?} here handles a queue", step.as_str()));
                return Err(match nearest(step.as_str(), manifest.function.keys().map(Name::as_str)) {
                    Some(near) => problem.with_hint(format!("did you mean {near:?}?")),
                    None => problem.with_hint("name functions of this manifest, or leave `functions` away"),
                });
            };
            self.check_step(step, function)
                .map_err(|(what, hint)| about(Code::ManifestConflict, what).with_hint(hint))?;
        }
        Ok(())
    }

    /// What contradicts the function, and what helps.
    fn check_step(&self, step: &Name, function: &Function) -> Result<(), (String, String)> {
        let (step, maximum) = (step.as_str(), function.units.maximum);
        if let Some(units_max) = self.units_max.filter(|units_max| *units_max < maximum) {
            let what = format!("units_max is {units_max}, and function {step:?} alone may have {maximum} units");
            let hint = format!("raise units_max, or set `units.maximum` of {step:?} to {units_max} at most");
            return Err((what, hint));
        }
        if self.on_overload == OnOverload::End && function.units.policy != PolicyWord::Triggers {
            let what = format!("on_overload is \"end\", and function {step:?} has no `policy = \"triggers\"`");
            let hint = "set `units.policy = \"triggers\"`, or `when_full = \"end\"` for its queue";
            return Err((what, hint.to_owned()));
        }
        Ok(())
    }
}

impl Manifest {
    /// Each function has one workflow at most, and fits into it.
    pub(crate) fn check_workflows(&self) -> Result<(), Problem> {
        let mut taken = BTreeMap::new();
        for (name, workflow) in &self.workflow {
            let workflow = workflow.resolved(self);
            workflow.check(name, self)?;
            for step in &workflow.functions {
                if let Some(other) = taken.insert(step.clone(), name) {
                    let (step, other, name) = (step.as_str(), other.as_str(), name.as_str());
                    let detail = match other == name {
                        true => format!("workflow {name:?} names function {step:?} twice"),
                        false => format!("workflows {other:?} and {name:?} both have function {step:?}"),
                    };
                    let hint = "name the functions of each workflow once: functions = [\"…\"]";
                    return Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::refused;
    use crate::{Name, parse};
    use problem::Code;

    const TWO: &str = "[function.a]\nimage = \"x\"\nqueue = \"a\"\nunits = { maximum = 3, policy = \"triggers\" }\n\
        [function.b]\nimage = \"x\"\nqueue = \"b\"\nunits = { maximum = 2, policy = \"triggers\" }\n\
        [function.c]\nimage = \"x\"\nhttp = \"/c\"\n";

    #[test]
    fn a_workflow_has_the_functions_it_names_or_all_that_handle_a_queue() {
        for (line, wanted) in [("", &["a", "b"][..]), ("functions = [\"b\"]", &["b"])] {
            let manifest = parse(&format!("{TWO}[workflow.w]\nunits_max = 3\non_overload = \"end\"\n{line}")).unwrap();
            let resolved = manifest.workflow["w"].resolved(&manifest);
            assert_eq!(resolved.functions.iter().map(Name::as_str).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_what_helps() {
        let workflow = |lines: &str| format!("{TWO}[workflow.w]\n{lines}");
        let below = workflow("units_max = 2");
        refused(&below, Code::ManifestConflict, &["units_max is 2", "\"a\" alone may have 3", "raise units_max"]);
        refused(&workflow("units_max = 0"), Code::ManifestValue, &["units_max is 0", "units.maximum = 0"]);
        refused(&workflow("functions = [\"c\"]"), Code::ManifestValue, &["\"c\" here handles a queue"]);
        refused(&workflow("functions = [\"bb\"]"), Code::ManifestValue, &["did you mean \"b\"?"]);
        refused(&workflow("functions = [\"a\", \"a\"]"), Code::ManifestConflict, &["\"a\" twice"]);
        refused(&workflow("[workflow.v]\nfunctions = [\"a\"]"), Code::ManifestConflict, &["both have function \"a\""]);
        refused(&workflow("on_overload = \"stop\""), Code::ManifestValue, &["\"shed\"", "\"end\""]);
        let latency = workflow("on_overload = \"end\"").replace("3, policy = \"triggers\"", "3");
        refused(&latency, Code::ManifestConflict, &["function \"a\" has no `policy", "when_full"]);
        refused("[workflow.w]\nunits_max = 2\n", Code::ManifestValue, &["no function", "give one a queue"]);
    }
}
