//! The pages, checked by the formatters that are installed.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command as Process;

use super::*;

/// Returns what a checker prints about a page; `None` if the checker is not installed.
fn complaint(words: &[&str], path: &Path) -> Option<String> {
    match Process::new(words[0]).args(&words[1..]).arg(path).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        output => {
            let output = output.unwrap();
            let text = if words[0] == "mandoc" { output.stdout } else { output.stderr };
            Some(String::from_utf8(text).unwrap())
        }
    }
}

#[test]
fn every_command_and_option_has_its_place() {
    let pages = pages();
    let text_of = |path: &str| {
        let page = pages.iter().find(|page| page.path == path);
        page.unwrap_or_else(|| panic!("{path}")).text.as_str()
    };
    let main = text_of("man1/myriad.1");
    for command in all() {
        assert!(main.contains(&format!(".TP\n{}\n", bold(&command.name()))), "{command:?}");
        if command.words == ["version"] {
            continue;
        }
        let page = text_of(&format!("man1/myriad-{}.1", command.words[0]));
        assert!(page.contains(&escaped(command.usage)), "{command:?}");
        let texts = match &command.options {
            Options::Flags(flags) => flags.to_vec(),
            Options::Settings => options::COMMAND_LINE.to_vec(),
            Options::Table(texts) => texts.clone(),
        };
        for option in texts {
            assert!(page.contains(&bold(&format!("--{}", option.name))), "{}", option.name);
        }
    }
    let settings = text_of("man5/myriad.toml.5");
    for option in config::option_texts() {
        for name in std::iter::once(option.name).chain(option.aliases.iter().copied()) {
            assert!(settings.contains(&bold(name)), "{name}");
        }
        assert!(settings.contains(&bold(&config::variable(option.name))), "{}", option.name);
    }
}

#[test]
fn formatters_accept_every_page() {
    let dir = std::env::temp_dir().join(format!("myriad-manual-{}", std::process::id()));
    write(&dir).unwrap();
    // Again: it replaces older pages.
    write(&dir).unwrap();
    for page in pages() {
        let path = dir.join(&page.path);
        for words in
            [&["groff", "-man", "-Tutf8", "-ww", "-z"][..], &["mandoc", "-Tlint", "-Wwarning"]]
        {
            let found = complaint(words, &path).unwrap_or_default();
            // Without a date, which would differ in each build.
            let found: Vec<&str> =
                found.lines().filter(|line| !line.contains("missing date")).collect();
            assert!(found.is_empty(), "{}: {found:?}", page.path);
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn texts_cannot_become_requests() {
    let mut body = String::from(".SH A\n");
    paragraph(&mut body, ".so a `b-c d` \\n 'x'");
    paragraph(&mut body, "b");
    let expected = ".SH A\n\\&.so a \\fBb\\-c d\\fR \\en \\(aqx\\(aq\n.PP\nb\n";
    assert_eq!(body, expected);
}
