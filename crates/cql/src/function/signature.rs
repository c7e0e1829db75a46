//! Parameters of functions.

use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;

/// How the types of a call are determined.
#[derive(Debug)]
pub(crate) enum Shape {
    /// One of these signatures.
    Fixed(&'static [Signature]),
    /// Polymorphic: the parameters determine the types, and the result follows from them, or from
    /// its receiver.
    Inferred { parameters: &'static [Parameter], returns: Returns },
    /// The columns of the partition key of the statement's table; the result is a token.
    PartitionKey,
}

/// The type of the result, given the types of the arguments and of the receiver, if it is known.
pub(crate) type Returns = fn(&[CqlType], Option<&CqlType>) -> Result<CqlType, CqlError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) arguments: &'static [Native],
    pub(crate) returns: Native,
}

/// The types that a polymorphic parameter accepts.
// Source: Cassandra 5.0, FunctionParameter
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// Exactly this type, which is also the default.
    Native(Native),
    /// `text` or `ascii`.
    String,
    Any,
    /// The type of the result's receiver, if its own type is unknown.
    AnyLikeReceiver,
    /// The type of the first argument.
    LikeFirst,
    Map,
    Collection,
    SetOrList,
    NumericSetOrList,
    /// A vector of `float`; the other argument's type if its own is unknown.
    FloatVector,
    /// Optional.
    OptionalNative(Native),
}

impl Parameter {
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Parameter::OptionalNative(_))
    }

    /// The text for messages and the documentation.
    pub(crate) fn text(self) -> String {
        match self {
            Parameter::Native(native) => native.name().to_owned(),
            Parameter::OptionalNative(native) => format!("[{}]", native.name()),
            Parameter::String => "[text|varchar|ascii]".to_owned(),
            Parameter::Any | Parameter::AnyLikeReceiver | Parameter::LikeFirst => "any".to_owned(),
            Parameter::Map => "map".to_owned(),
            Parameter::Collection => "collection".to_owned(),
            Parameter::SetOrList | Parameter::NumericSetOrList => "numeric_set_or_list".to_owned(),
            Parameter::FloatVector => "vector<float, n>".to_owned(),
        }
    }
}

/// A signature in the form of Cassandra's messages.
pub(crate) fn signature_text(name: &str, arguments: &[String], returns: &str) -> String {
    format!("system.{name} : ({}) -> {returns}", arguments.join(", "))
}
