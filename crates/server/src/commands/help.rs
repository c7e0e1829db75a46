//! HELP subcommands: one implementation for all containers, derived from the command definitions.

use super::command::{Command, Done, Flags, Group, Run};
use super::context::CommandContext;

pub(crate) const fn subcommand(
    summary: &'static str,
    since: &'static str,
    group: Group,
    run: Run,
) -> Command {
    let flags = Flags::LOADING.and(Flags::STALE);
    Command { name: "help", summary, since, group, arity: 2, flags, run, ..Command::EMPTY }
}

/// Lists the subcommands of a container with their summaries, in the form of Redis's HELP.
/// Source: Redis 7.2 `networking.c`, `addReplyHelp`.
pub(crate) fn reply(cx: &mut CommandContext<'_>, container: &Command) -> Done {
    let name = container.name.to_ascii_uppercase();
    let mut lines =
        vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for sub in container.subcommands {
        let line = format!("{} {}", sub.name.to_ascii_uppercase(), sub.syntax);
        lines.push(line.trim_end().to_owned());
        lines.push(format!("    {}", sub.summary));
    }
    reply_lines(cx, &lines)
}

pub(crate) fn reply_lines(cx: &mut CommandContext<'_>, lines: &[impl AsRef<str>]) -> Done {
    cx.reply.array(lines.len());
    for line in lines {
        cx.reply.simple(line.as_ref());
    }
    cx.check_reply()
}
