//! One description of an option for the server, the web server and the pipeline: the file, the
//! command line, the help and the reference use the same row.
//!
//! A program declares a struct with a field per option and its default, and a table of
//! [`Section`]s whose rows ([`OptionSpec`]) name the option and convert between text and field.
#![forbid(unsafe_code)]

mod choice;
mod command_line;
mod environment;
mod file;
mod help;
mod kind;
mod load;
mod settings;
mod spec;
mod text;
mod value;

pub use command_line::{ArgumentsError, CommandLine};
pub use environment::{Environment, variable};
pub use file::read_bounded;
pub use help::{help, help_rows, markdown_tables, wrap};
pub use kind::{Form, Kind, Unit, narrow, wide, yes_no};
pub use load::{ConfigError, Conflict, Loaded, Source};
pub use spec::{Change, OptionSpec, Section, find, option, owner, rows, with_aliases};
pub use text::{COMMAND_LINE, OptionText, Values, texts};
pub use value::{Value, ValueError};
