//! INFO: the server's state and counters, as text by section.
//!
//! Fields that tools read have the names and meanings of Redis. Fields that do not apply here are
//! left out; additional fields are at the end of their section. Every section is one row of
//! [`SECTIONS`].
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

mod data;
mod load;
mod process;
mod traffic;

use std::cell::OnceCell;
use std::fmt::{Display, Write as _};

use store::{DATABASES, DbStats};
use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, is_option};

pub(crate) const INFO: Command = Command {
    name: "info",
    syntax: "[section [section ...]]",
    summary: "Returns the server's state and counters as text, all or some sections of it.",
    since: "1.0.0",
    complexity: "O(S) in the number of stripes, a constant",
    group: Group::Server,
    arity: -1,
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::SEES_STATS).and(Flags::LOCKS_STRIPES),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    more_categories: &["@dangerous"],
    run: info,
    ..Command::EMPTY
};

struct Section {
    /// Title of the section, matched in any case.
    title: &'static str,
    /// Shown if the request names no section.
    is_default: bool,
    write: fn(&mut Page<'_, '_>),
}

const fn section(title: &'static str, write: fn(&mut Page<'_, '_>)) -> Section {
    Section { title, is_default: true, write }
}

const fn on_request(title: &'static str, write: fn(&mut Page<'_, '_>)) -> Section {
    Section { title, is_default: false, write }
}

/// In the order of Redis.
const SECTIONS: &[Section] = &[
    section("Server", process::server),
    section("Clients", traffic::clients),
    section("Memory", process::memory),
    section("Persistence", data::persistence),
    section("Stats", traffic::stats),
    section("Replication", data::replication),
    section("Hub", data::hub),
    section("TLS", traffic::tls),
    section("CPU", process::cpu),
    section("Modules", |_| ()),
    on_request("Commandstats", load::commands),
    section("Errorstats", load::errors),
    on_request("Latencystats", load::latencies),
    section("Reactors", load::reactors),
    section("Counters", load::counters),
    section("Cluster", traffic::cluster),
    section("Keyspace", data::keyspace),
];

impl Section {
    fn is_wanted(&self, args: Args<'_>) -> bool {
        if args.len() == 1 {
            return self.is_default;
        }
        args.iter().skip(1).any(|word| {
            is_option(word, self.title)
                || is_option(word, "ALL")
                || is_option(word, "EVERYTHING")
                || (self.is_default && is_option(word, "DEFAULT"))
        })
    }
}

fn info(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mut page = Page { cx, text: String::new(), data: OnceCell::new() };
    for section in SECTIONS.iter().filter(|section| section.is_wanted(args)) {
        page.headline(section.title);
        (section.write)(&mut page);
    }
    let text = page.text;
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The text being written, and the sources of its numbers.
struct Page<'p, 'c> {
    cx: &'p CommandContext<'c>,
    text: String,
    data: OnceCell<([DbStats; DATABASES], usize)>,
}

// Writing to a `String` cannot fail, hence `let _`.
impl Page<'_, '_> {
    fn headline(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\r\n");
        }
        let _ = write!(self.text, "# {title}\r\n");
    }

    fn field(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// Writes fields that are 0, because what they count does not exist here.
    fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.field(name, 0);
        }
    }

    /// Statistics of the databases. The first call locks every stripe once.
    fn data(&self) -> &([DbStats; DATABASES], usize) {
        self.data.get_or_init(|| data_stats(self.cx))
    }
}

/// Statistics of the databases, and total bytes. For commands that lock no stripe, or all of them
/// inside EXEC ([`Flags::LOCKS_STRIPES`]).
pub(super) fn data_stats(cx: &CommandContext<'_>) -> ([DbStats; DATABASES], usize) {
    if cx.locked.is_all() { cx.locked.stats() } else { cx.shared.data_stats(cx.unix()) }
}

/// Quotient for display; 0 if both are 0.
#[expect(clippy::cast_precision_loss, reason = "two or three decimals are shown")]
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Nanoseconds as microseconds with three decimals.
#[expect(clippy::cast_precision_loss, reason = "three decimals are shown")]
fn us(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn titles(words: &[&str]) -> Vec<&'static str> {
        let args: OwnedArgs =
            ["info"].iter().chain(words).map(|word| word.as_bytes().to_vec()).collect();
        let wanted = SECTIONS.iter().filter(|section| section.is_wanted(args.as_args()));
        wanted.map(|section| section.title).collect()
    }

    #[test]
    fn sections_come_once_in_their_own_order() {
        assert_eq!(titles(&["keyspace", "SERVER", "server"]), ["Server", "Keyspace"]);
        assert_eq!(titles(&["nothing", ""]), [""; 0]);
        assert_eq!(titles(&["all"]).len(), SECTIONS.len());
        assert_eq!(titles(&["Everything", "cpu"]).len(), SECTIONS.len());
        assert_eq!(titles(&[]), titles(&["default"]));
        assert!(!titles(&[]).contains(&"Commandstats"));
        assert!(titles(&["default", "commandstats"]).contains(&"Commandstats"));
    }

    #[test]
    fn quotients_of_nothing_are_zero() {
        assert!(ratio(5, 0).abs() < f64::EPSILON);
        assert!((ratio(1, 4) - 0.25).abs() < f64::EPSILON);
        assert_eq!(us(12_345), "12.345");
    }
}
