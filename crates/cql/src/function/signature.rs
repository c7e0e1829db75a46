//! What functions take.

use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;

/// How the types of a call are found.
#[derive(Debug)]
pub(crate) enum Shape {
    /// One of these.
    Fixed(&'static [Signature]),
    /// Of many types: parameters say which, and the result follows from them, or from what receives
    /// it.
    Inferred { parameters: &'static [Parameter], returns: Returns },
    /// The columns of the partition key of the statement's table; the result is a token.
    PartitionKey,
}

/// The type of the result for types of arguments, and for the receiver's where one is known.
pub(crate) type Returns = fn(&[CqlType], Option<&CqlType>) -> Result<CqlType, CqlError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) arguments: &'static [Native],
    pub(crate) returns: Native,
}

/// What an argument may be, where it may be of many types.
// Source: Cassandra 5.0, FunctionParameter
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// Of this type, and taken for it if nothing says which.
    Native(Native),
    /// `text` or `ascii`.
    String,
    Any,
    /// Of the type that receives the result, if its own is not known.
    AnyLikeReceiver,
    /// Of the type of the first argument.
    LikeFirst,
    Map,
    Collection,
    SetOrList,
    NumericSetOrList,
    /// A vector of `float`; of the other argument's type if its own is not known.
    FloatVector,
    /// May be left out.
    OptionalNative(Native),
}

impl Parameter {
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Parameter::OptionalNative(_))
    }

    /// For messages and the documentation.
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

/// As messages of Cassandra show a function.
pub(crate) fn signature_text(name: &str, arguments: &[String], returns: &str) -> String {
    format!("system.{name} : ({}) -> {returns}", arguments.join(", "))
}
