//! DEBUG PROTOCOL and DEBUG ERROR: replies with which clients test their parsers.

use wire::resp::{Args, Protocol};

use super::{ADMIN, check_allowed};
use crate::commands::command::{Command, Done, Group};
use crate::commands::context::{CommandContext, is_option};
use crate::commands::fail::Fail;

pub(super) const ERROR: Command = Command {
    name: "error",
    syntax: "message",
    summary: "Replies with an error.",
    since: "1.0.0",
    group: Group::Server,
    arity: 3,
    flags: ADMIN,
    run: error,
    ..Command::EMPTY
};

fn error(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    Err(Fail::Quoting(args.get(2).to_vec()))
}

pub(super) const PROTOCOL: Command = Command {
    name: "protocol",
    syntax: "<STRING | INTEGER | DOUBLE | BIGNUM | NULL | ARRAY | SET | MAP | ATTRIB | PUSH | \
             VERBATIM | TRUE | FALSE>",
    summary: "Replies with a value of the given type.",
    since: "6.0.0",
    group: Group::Server,
    arity: 3,
    flags: ADMIN,
    run: protocol,
    ..Command::EMPTY
};

// Source: Redis 7.2 `debug.c`, `debugCommand`
fn protocol(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    let is_resp3 = cx.reply.protocol == Protocol::Resp3;
    let reply = &mut cx.reply;
    let kind = args.get(2);
    if is_option(kind, "STRING") {
        reply.bulk(b"Hello World");
    } else if is_option(kind, "INTEGER") {
        reply.integer(12_345);
    } else if is_option(kind, "DOUBLE") {
        reply.number_text(b"3.141");
    } else if is_option(kind, "BIGNUM") {
        reply.big_number("1234567999999999999999999999999999999");
    } else if is_option(kind, "NULL") {
        reply.null();
    } else if is_option(kind, "ARRAY") {
        reply.array(3);
        (0..3).for_each(|number| reply.integer(number));
    } else if is_option(kind, "SET") {
        reply.set(3);
        (0..3).for_each(|number| reply.integer(number));
    } else if is_option(kind, "MAP") {
        reply.map(3);
        for number in 0..3 {
            reply.integer(number);
            reply.boolean(number == 1);
        }
    } else if is_option(kind, "ATTRIB") {
        if is_resp3 {
            reply.attribute(1);
            reply.bulk(b"key-popularity");
            reply.array(2);
            reply.bulk(b"key:123");
            reply.integer(90);
        }
        reply.bulk(b"Some real reply following the attribute");
    } else if is_option(kind, "PUSH") {
        if !is_resp3 {
            return Err(Fail::text("ERR RESP2 is not supported by this command"));
        }
        reply.push(2);
        reply.bulk(b"server-cpu-usage");
        reply.integer(42);
        reply.bulk(b"Some real reply following the push reply");
    } else if is_option(kind, "VERBATIM") {
        reply.verbatim("txt", b"This is a verbatim\nstring");
    } else if is_option(kind, "TRUE") || is_option(kind, "FALSE") {
        reply.boolean(is_option(kind, "TRUE"));
    } else {
        return Err(Fail::text(
            "ERR Wrong protocol type name. Please use one of the following: string|integer|double|\
             bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ));
    }
    Ok(())
}
