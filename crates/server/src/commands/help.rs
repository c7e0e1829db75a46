//! HELP subcommands: one implementation for all containers, derived from the command definitions.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use super::command::{Command, Done};
use super::context::CommandContext;

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
    cx.reply.array(lines.len());
    for line in &lines {
        cx.reply.simple(line);
    }
    Ok(())
}
