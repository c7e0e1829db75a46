//! The scripts, run by their shells where these are installed; bash is everywhere.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use super::*;
use crate::commands::SHELLS;

/// Runs a shell on a script. `None` if the shell is not installed.
fn run(words: &[&str], dir: &Path, script: &str) -> Option<String> {
    let process = Process::new(words[0])
        .args(&words[1..])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = match process {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        started => started.unwrap(),
    };
    process.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{words:?}: {complaint}");
    assert_eq!(complaint, "", "{words:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// What bash proposes for the last word of each command line, in the directory `dir`.
fn bash(dir: &Path, lines: &[Vec<String>]) -> Vec<BTreeSet<String>> {
    let mut text = script("bash").unwrap();
    text.push_str("complete -p myriad\n");
    for line in lines {
        let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
        let _ = writeln!(
            text,
            "COMP_WORDS=({}); COMP_CWORD={}; _myriad; echo \"${{COMPREPLY[*]}}\"",
            words.join(" "),
            words.len() - 1
        );
    }
    let found = run(&["bash", "--norc", "--noprofile"], dir, &text).expect("bash is installed");
    let mut found = found.lines();
    assert_eq!(found.next(), Some("complete -F _myriad myriad"));
    let set = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let found: Vec<BTreeSet<String>> = found.map(set).collect();
    assert_eq!(found.len(), lines.len());
    found
}

fn line(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// An empty directory.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let dir = std::env::temp_dir().join(format!("myriad-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        Directory(dir)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn bash_completes_words_values_and_files() {
    let dir = Directory::new("completion");
    std::fs::write(dir.0.join("m.toml"), "").unwrap();
    std::fs::create_dir(dir.0.join("more")).unwrap();
    for (typed, expected) in [
        ("myriad se", &["serve"][..]),
        ("myriad co", &["config", "commands", "completion"]),
        ("myriad --v", &["--version"]),
        ("myriad log ", &["dump", "tail", "verify", "repair"]),
        ("myriad log t", &["tail"]),
        ("myriad log tail --f", &["--from", "--follow"]),
        ("myriad log tail m", &["m.toml", "more"]),
        ("myriad log tail --from ", &[]),
        ("myriad serve --durability", &["--durability", "--durability-interval-ms"]),
        ("myriad serve --durability al", &["always"]),
        ("myriad serve --durability = al", &["always"]),
        ("myriad serve --hub = ", &["yes", "no"]),
        ("myriad serve --durability =", &["replicated", "always", "interval", "never"]),
        ("myriad serve -c m", &["m.toml", "more"]),
        ("myriad serve --hz 20 --tls-key-file m.", &["m.toml"]),
        ("myriad hub --log-level wa", &["warn"]),
        ("myriad web --mode ", &["process", "thread"]),
        ("myriad pipeline ru", &["run"]),
        ("myriad pipeline run --overl", &["--overload"]),
        ("myriad config ch", &["check"]),
        ("myriad config check m", &["m.toml", "more"]),
        ("myriad config --m", &["--markdown"]),
        ("myriad completion ", &["bash", "zsh", "fish", "--help"]),
        ("myriad upgrade --check m", &["m.toml", "more"]),
        ("myriad nonsense ", &[]),
    ] {
        let expected: BTreeSet<String> = expected.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(bash(&dir.0, &[line(typed)])[0], expected, "{typed}");
    }
}

#[test]
fn bash_knows_every_command_option_and_value() {
    let dir = Directory::new("completion-all");
    let (mut lines, mut expected) = (Vec::new(), Vec::new());
    for command in all() {
        let typed = [&["myriad"], command.words.as_slice()].concat();
        let typed: Vec<String> = typed.iter().map(|&word| word.to_owned()).collect();
        lines.push(typed.clone());
        expected.push(BTreeSet::from([typed[typed.len() - 1].clone()]));
        let options = command.all_options();
        lines.push([&typed[..], &["--".to_owned()]].concat());
        expected.push(options.iter().flat_map(long_names).collect());
        for option in &options {
            let Values::Words(words) = option.values else { continue };
            for name in long_names(option) {
                lines.push([&typed[..], &[name, String::new()]].concat());
                // One value has a blank: its parts are proposed.
                let words = words.iter().flat_map(|word| word.split(' '));
                expected.push(words.map(str::to_owned).collect());
            }
        }
    }
    assert!(lines.len() > 100);
    let found = bash(&dir.0, &lines);
    for ((line, found), expected) in lines.iter().zip(found).zip(expected) {
        // A name may be the beginning of another one.
        let is_name = line.last().is_some_and(|word| !word.is_empty() && word != "--");
        let is_right = if is_name { found.is_superset(&expected) } else { found == expected };
        assert!(is_right, "{line:?}: {found:?} instead of {expected:?}");
    }
}

/// The parts of a script that are for a command.
fn part(shell: &str, text: &str, command: &Command) -> String {
    let name = command.name();
    if shell == "fish" {
        let quoted = format!("\"{name}\"");
        let lines = text.lines().filter(|line| line.contains(&quoted));
        return lines.collect::<Vec<_>>().join("\n");
    }
    let quoted = format!("'{name}'");
    let head = |line: &str| line.trim_end().ends_with(')') && line.contains(&quoted);
    let lines = text.lines().skip_while(|line| !head(line)).skip(1);
    lines.take_while(|line| line.trim() != ";;").collect::<Vec<_>>().join("\n")
}

#[test]
fn every_command_and_option_is_in_the_other_scripts() {
    for shell in ["zsh", "fish"] {
        let text = script(shell).unwrap();
        for command in all() {
            for word in &command.words {
                let listed = [format!("'{word}:"), format!(" -a {word} ")];
                assert!(listed.iter().any(|part| text.contains(part)), "{shell} {word}");
            }
            let part = part(shell, &text, &command);
            for option in command.all_options() {
                let names = std::iter::once(option.name).chain(option.aliases.iter().copied());
                for name in names {
                    let forms =
                        [format!("'--{name}["), format!("'--{name}=["), format!(" -l {name} ")];
                    let is_there = forms.iter().any(|form| part.contains(form));
                    assert!(is_there, "{shell} {command:?} {name}");
                }
                let Values::Words(words) = option.values else { continue };
                let values = words.join(" ");
                assert!(part.contains(&values), "{shell} {} {values}", option.name);
            }
        }
    }
}

#[test]
fn the_scripts_are_valid() {
    let here = Path::new(".");
    for (shell, words) in [
        ("bash", &["bash", "-n"][..]),
        ("zsh", &["zsh", "-f", "-n"]),
        ("fish", &["fish", "--no-config", "--no-execute"]),
    ] {
        let text = script(shell).unwrap();
        let found = run(words, here, &text);
        assert!(found.is_some() || shell != "bash", "bash is installed");
        for line in text.lines() {
            assert!(!line.contains('\t'), "{line}");
        }
    }
    assert!(SHELLS.iter().all(|shell| script(shell).is_some()));
    assert_eq!(script("tcsh"), None);
}

#[test]
fn descriptions_cannot_end_their_quotes() {
    let option =
        OptionText::value("a", "b", Values::Any, "It's [one]: a\\b `code`. Second sentence.");
    let mut zsh = String::new();
    zsh_option(&mut zsh, &option);
    assert_eq!(zsh, "                '--a=[It'\\''s \\[one\\]\\: a\\\\b code]:b: ' \\\n");
    let mut fish = String::new();
    fish_option(&mut fish, "", &option);
    assert_eq!(fish, "complete -c myriad  -l a -x -d 'It\\'s [one]: a\\\\b code'\n");
    let long = "A sentence with more letters than a shell shows in a line of its list of options";
    assert!(about(&OptionText::flag("a", long)).ends_with("..."));
}
