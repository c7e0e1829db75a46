//! One option: its names, kind and documentation.

use crate::{Form, Kind, ValueError};

/// Description of an option of the settings `S`.
#[derive(Debug)]
pub struct OptionSpec<S: 'static> {
    /// Name in the file and on the command line, and in the server's CONFIG.
    pub name: &'static str,
    /// Alternative names for the same option.
    pub aliases: &'static [&'static str],
    pub kind: Kind<S>,
    pub change: Change,
    /// Unit and effect in a few sentences.
    pub doc: &'static str,
}

/// When an option can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At startup, and while the program runs.
    Running,
    /// In the file and on the command line only.
    Start,
    /// Never: the option shows a constant or another option. Setting it to its current value is
    /// accepted, since tools do that.
    Never,
    /// Like `Never`, for a name that another program can set: the documentation is the reason why
    /// only one value is possible, and the error contains it.
    Fixed,
    /// Like `Running`, but the value is only kept and shown: there is nothing that it could change.
    WithoutEffect,
    /// Like `Running`, but the value belongs to the named option.
    Through(&'static str),
}

impl Change {
    /// The word for it in the reference.
    pub fn word(self) -> &'static str {
        match self {
            Change::Running | Change::Through(_) => "running",
            Change::Start => "start",
            Change::Never => "never",
            Change::Fixed => "fixed",
            Change::WithoutEffect => "no effect",
        }
    }
}

/// Consecutive options of the help and the documentation.
#[derive(Debug)]
pub struct Section<S: 'static> {
    pub title: &'static str,
    pub rows: &'static [OptionSpec<S>],
}

/// Returns a row without aliases.
pub const fn option<S>(
    name: &'static str,
    kind: Kind<S>,
    change: Change,
    doc: &'static str,
) -> OptionSpec<S> {
    OptionSpec { name, aliases: &[], kind, change, doc }
}

pub const fn with_aliases<S>(
    aliases: &'static [&'static str],
    option: OptionSpec<S>,
) -> OptionSpec<S> {
    OptionSpec { aliases, ..option }
}

impl<S> OptionSpec<S> {
    /// Returns the name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// False for a view, and for an option that sets another one.
    pub fn owns_its_value(&self) -> bool {
        matches!(self.change, Change::Running | Change::Start | Change::WithoutEffect)
    }

    /// Whether the help lists it: setting it changes what the program does.
    pub fn is_in_help(&self) -> bool {
        matches!(self.change, Change::Running | Change::Start | Change::Through(_))
    }

    /// Whether each use on the command line adds to the earlier ones.
    pub(crate) fn is_repeated(&self) -> bool {
        matches!(self.kind, Kind::Value { form: Form::Repeated, .. })
    }

    fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Value { form: Form::Secret, .. })
    }

    /// Whether it has no value on the command line.
    pub fn is_flag(&self) -> bool {
        matches!(self.kind, Kind::Flag { .. })
    }

    /// Returns the value as text. [`OptionSpec::set`] accepts the same text.
    pub fn text(&self, settings: &S) -> String {
        self.kind.text(settings)
    }

    /// Returns the value in the form in which an operator would write it; empty if it is empty.
    pub fn shown(&self, settings: &S) -> String {
        self.kind.shown(settings)
    }

    /// Parses a text into the option's field. After an error the field may be partly changed: call
    /// it on a copy.
    pub fn set(&self, settings: &mut S, text: &str) -> Result<(), ValueError> {
        // A secret is in no line of a log.
        if !self.is_secret() && text.chars().any(char::is_control) {
            return Err(ValueError::ControlCharacter);
        }
        match self.kind.set(settings, text) {
            Err(ValueError::Immutable) if self.change == Change::Fixed => {
                let (value, reason) = (self.text(settings), self.doc.replace('`', ""));
                Err(ValueError::Fixed { value, reason })
            }
            outcome => outcome,
        }
    }

    /// Describes the expected value, in the operator's terms.
    pub fn expected(&self) -> String {
        self.kind.expected()
    }
}

/// Returns all options of a table, in the order of the documentation.
pub fn rows<S>(table: &'static [Section<S>]) -> impl Iterator<Item = &'static OptionSpec<S>> {
    table.iter().flat_map(|section| section.rows)
}

/// Returns the option with this name or alias, in any case.
pub fn find<S>(table: &'static [Section<S>], name: &str) -> Option<&'static OptionSpec<S>> {
    rows(table).find(|option| option.names().any(|known| known.eq_ignore_ascii_case(name)))
}

/// Returns the option that stores the value which this one sets.
pub fn owner<S>(
    table: &'static [Section<S>],
    option: &'static OptionSpec<S>,
) -> &'static OptionSpec<S> {
    match option.change {
        Change::Through(name) => find(table, name).unwrap_or(option),
        _ => option,
    }
}
