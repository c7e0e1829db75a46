//! The ACL file: ACL LOAD and ACL SAVE.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use wire::resp::Args;

use super::rules::{self, RuleError, TOO_MANY_RULES, has_spaces, merge};
use super::{ADMIN_FLAGS, access, default_user};
use crate::commands::command::{Command, Done, Group};
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::config::{Settings, write_file};
use crate::engine::acl::{User, Users};

/// Maximum bytes of the file: twice the rules of all users.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Maximum bytes of the report on a faulty file.
const REPORT_BYTES_MAX: usize = 16 * 1024;

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want \
    to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have \
    a Redis configuration file set) in order to store users in the Redis configuration.";

/// ACL LOAD: replaces all users by those of the file.
pub(super) const LOAD: Command = Command {
    name: "load",
    summary: "Replaces all users by those of the ACL file, or none if the file has an error.",
    since: "6.0.0",
    complexity: "O(N) in the number of users and rules",
    group: Group::Server,
    arity: 2,
    flags: ADMIN_FLAGS,
    run: load,
    ..Command::EMPTY
};

/// The reactor waits for the disk, as in CONFIG REWRITE.
fn load(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let settings = cx.shared.settings.load();
    if settings.aclfile.as_os_str().is_empty() {
        return Err(Fail::text(NO_FILE));
    }
    access::change_users(cx, |users, settings| {
        *users =
            read_users(settings, users).map_err(|report| Fail::owned(format!("ERR {report}")))?;
        Ok(())
    })?;
    cx.reply.ok();
    Ok(())
}

/// ACL SAVE: writes all users to the file.
pub(super) const SAVE: Command =
    Command { name: "save", summary: "Writes all users to the ACL file.", run: save, ..LOAD };

fn save(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let settings = cx.shared.settings.load();
    if settings.aclfile.as_os_str().is_empty() {
        return Err(Fail::text(NO_FILE));
    }
    let mut text = Vec::new();
    for user in cx.shared.acl.users().iter() {
        text.extend_from_slice(&user.line());
        text.push(b'\n');
    }
    write_file(&settings.aclfile, &text).map_err(|error| {
        tracing::error!(path = %settings.aclfile.display(), %error, "could not save ACL file");
        Fail::text(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more \
             information",
        )
    })?;
    cx.reply.ok();
    Ok(())
}

/// Returns the users of a server that starts: those of the ACL file if there is one, and the default
/// user.
pub(crate) fn load_at_start(settings: &Settings) -> Result<Users, String> {
    let users = Users::new(default_user(&settings.passwords()));
    if settings.aclfile.as_os_str().is_empty() {
        return Ok(users);
    }
    read_users(settings, &users)
}

/// Reads all users from the file. The error lists the faults.
fn read_users(settings: &Settings, old: &Users) -> Result<Users, String> {
    let path = settings.aclfile.display().to_string();
    let text = read_bounded(&settings.aclfile).map_err(|error| {
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        format!("Error loading ACLs, opening file '{path}': {text}")
    })?;
    let default = default_user(&settings.passwords());
    let users = Users::successors_of(old, default);
    Reading { path: &path, settings, users, report: String::new() }.run(&text)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 32 MiB"));
    }
    Ok(text)
}

/// The users read so far, and the faults found so far.
// Source: Redis 7.2 `acl.c`, `ACLLoadFromFile`
#[derive(Debug)]
struct Reading<'a> {
    path: &'a str,
    settings: &'a Settings,
    users: Users,
    report: String,
}

impl Reading<'_> {
    fn run(mut self, text: &[u8]) -> Result<Users, String> {
        let mut names = HashSet::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if !line.is_empty() {
                self.read_line(index + 1, line, &mut names);
            }
            if self.report.len() > REPORT_BYTES_MAX {
                break;
            }
        }
        if self.report.is_empty() {
            return Ok(self.users);
        }
        self.fault(format_args!(
            "WARNING: ACL errors detected, no change to the previously active ACL rules was \
             performed"
        ));
        Err(self.report)
    }

    fn read_line<'t>(&mut self, number: usize, line: &'t [u8], names: &mut HashSet<&'t [u8]>) {
        let mut words = line.split(|byte| *byte == b' ');
        let (keyword, name) = (words.next(), words.next());
        match name {
            Some(name) if keyword == Some(b"user") => {
                self.read_user(number, name, words, names.insert(name));
            }
            _ => {
                let path = self.path;
                self.fault(format_args!(
                    "{path}:{number} should start with user keyword followed by the username. "
                ));
            }
        }
    }

    fn fault(&mut self, text: std::fmt::Arguments<'_>) {
        self.report.write_fmt(text).expect("writing to a string cannot fail");
    }

    fn read_user<'l>(
        &mut self,
        line: usize,
        name: &[u8],
        words: impl Iterator<Item = &'l [u8]>,
        is_new: bool,
    ) {
        let (path, shown) = (self.path, String::from_utf8_lossy(name));
        if has_spaces(name) {
            return self.fault(format_args!(
                "'{path}:{line}: username '{shown}' contains invalid characters. "
            ));
        }
        if !is_new {
            return self
                .fault(format_args!("WARNING: Duplicate user '{shown}' found on line {line}. "));
        }
        let words: Vec<&[u8]> = words.map(<[u8]>::trim_ascii).collect();
        self.add_user(line, name, &words);
    }

    fn add_user(&mut self, line: usize, name: &[u8], words: &[&[u8]]) {
        let path = self.path;
        let Ok(modifiers) = merge(words) else {
            return self.fault(format_args!(
                "{path}:{line}: Unmatched parenthesis in selector definition. "
            ));
        };
        if rules::are_too_many(words) {
            return self.fault(format_args!("{path}:{line}: {TOO_MANY_RULES}. "));
        }
        let mut user = User::new(name, self.settings.acl_pubsub_default.gives_all());
        self.apply_rules(line, &mut user, &modifiers);
        if user.has_too_many_rules() {
            return self.fault(format_args!("{path}:{line}: {TOO_MANY_RULES}. "));
        }
        if let Err(error) = self.users.insert(user) {
            self.fault(format_args!("{path}:{line}: {error}. "));
        }
    }

    fn apply_rules(&mut self, line: usize, user: &mut User, modifiers: &[Cow<'_, [u8]>]) {
        let (path, by_default) = (self.path, self.settings.acl_pubsub_default.gives_all());
        let mut has_fault = false;
        for modifier in modifiers {
            match rules::apply(user, modifier, by_default) {
                // The name of an unknown command is not a secret; after another error only the first is certain.
                Err(error @ RuleError::Unknown) => self.fault(format_args!(
                    "{path}:{line}: Error in applying operation '{}': {error}. ",
                    String::from_utf8_lossy(modifier)
                )),
                Err(error) if !has_fault => {
                    has_fault = true;
                    self.fault(format_args!("{path}:{line}: {error}. "));
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}
