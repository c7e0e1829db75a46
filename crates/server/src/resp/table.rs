//! Every command of the server. Adding one is a `const` in its family's file and a row here.

use super::command::Command;
use super::{strings, transactions};

pub(crate) static COMMANDS: &[&Command] = &[
    &strings::GET,
    &transactions::DISCARD,
    &transactions::EXEC,
    &transactions::MULTI,
    &transactions::UNWATCH,
    &transactions::WATCH,
];
