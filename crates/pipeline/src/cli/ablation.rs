//! `myriad pipeline ablation`: tuning steps, each measured in both variants.

use anyhow::{Result, anyhow, bail};
use lexopt::{Arg, Parser, ValueExt};

use super::{Job, print, printing};
use crate::ablation::{ALL, Ablation, Budget};

const HELP: &str = "\
Usage: myriad pipeline ablation (NAME|all)... [OPTIONS]

Measures the steps by which such a program is tuned, in a naive and an improved variant, and the
pipeline's own targets. Fails if a target is missed; with --json the output line reports it.

  NAME               d01 to d16, limits; speed, paced, overload, throttled
  -l, --list         List the ablations
      --quick        Three repeats of 0.25 s instead of five of 1 s
      --json         Print one line of JSON for each
  -h, --help         Print this
";

pub(super) fn read(parser: &mut Parser) -> Result<Job> {
    let mut names = Vec::new();
    let (mut budget, mut is_json) = (Budget::FULL, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(printing(HELP)),
            Arg::Short('l') | Arg::Long("list") => return Ok(printing(list())),
            Arg::Long("quick") => budget = Budget::QUICK,
            Arg::Long("json") => is_json = true,
            Arg::Value(name) => names.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let ablations = chosen(&names)?;
    Ok(Box::new(move || run(ablations, budget, is_json)))
}

fn run(ablations: Vec<&'static Ablation>, budget: Budget, is_json: bool) -> Result<()> {
    let mut missed = Vec::new();
    for ablation in ablations {
        let outcome = ablation.run(budget)?;
        missed.extend(outcome.missed());
        if is_json {
            print(&(serde_json::to_string(&outcome)? + "\n"))?;
        } else {
            print(&(outcome.text() + "\n"))?;
        }
    }
    if !is_json && !missed.is_empty() {
        bail!("missed: {}", missed.join("; "));
    }
    Ok(())
}

fn list() -> String {
    let line = |ablation: &&Ablation| format!("{:<9} {}\n", ablation.name, ablation.title);
    ALL.iter().map(line).collect()
}

fn chosen(names: &[String]) -> Result<Vec<&'static Ablation>> {
    if names.is_empty() {
        bail!("missing name or all; see myriad pipeline ablation --list");
    }
    if names.iter().any(|name| name == "all") {
        return Ok(ALL.to_vec());
    }
    let find = |name: &String| {
        Ablation::find(name).ok_or_else(|| {
            anyhow!("unknown ablation {name:?}; see myriad pipeline ablation --list")
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            chosen(&names).map(|found| found.len())
        };
        assert_eq!(named(&["d03", "limits"]).unwrap(), 2);
        assert_eq!(named(&["all"]).unwrap(), ALL.len());
        assert!(named(&[]).is_err());
        assert!(named(&["d17"]).unwrap_err().to_string().contains("unknown ablation \"d17\""));
        assert_eq!(list().lines().count(), ALL.len());
    }
}
