//! Resolves the function of a call.

use super::fit::{Fit, fit_term, fit_type, preferred_type};
use super::text::TermText;
use super::{Expression, TermContext, bind_term};
use crate::error::CqlError;
use crate::function::signature::signature_text;
use crate::function::{Function, Parameter, Shape, Signature, list};
use crate::parser::QualifiedName;
use crate::term::Term;
use crate::type_name::Native;
use crate::types::CqlType;

/// Maximum nesting of calls: each may be resolved several times to find its overload.
pub(crate) const CALL_DEPTH_MAX: usize = 8;
/// The keyspace of all functions.
const KEYSPACE: &str = "system";

/// An argument before its parameter is known.
#[derive(Debug)]
pub(crate) enum Argument<'a> {
    Term(&'a Term),
    /// An argument of a selector: its type is known. With its text, for messages.
    Bound(Expression, String),
}

impl<'a> From<&'a Box<Term>> for Argument<'a> {
    fn from(term: &'a Box<Term>) -> Self {
        Argument::Term(term)
    }
}

impl Argument<'_> {
    /// The text for messages.
    pub(crate) fn text(&self) -> String {
        match self {
            Argument::Term(term) => TermText(term).to_string(),
            Argument::Bound(_, text) => text.clone(),
        }
    }

    /// Types it for a parameter of this type and name.
    pub(crate) fn bind(
        self,
        of: &CqlType,
        name: &str,
        cx: &mut TermContext<'_>,
    ) -> Result<Expression, CqlError> {
        match self {
            Argument::Term(term) => bind_term(term, of, name, cx),
            Argument::Bound(expression, _) => Ok(expression),
        }
    }

    fn preferred_type(&self, cx: &TermContext<'_>) -> Option<CqlType> {
        match self {
            Argument::Term(term) => preferred_type(term, cx),
            Argument::Bound(expression, _) => Some(expression.cql_type().clone()),
        }
    }
}

/// The type information of an argument: calls within it are resolved once, not for every overload.
enum ArgumentType<'a> {
    Typed(CqlType),
    /// A call that can only be resolved with a receiver.
    Unknown,
    Term(&'a Term),
}

impl<'a> ArgumentType<'a> {
    fn new(argument: &Argument<'a>, cx: &TermContext<'_>) -> Self {
        match argument {
            Argument::Bound(expression, _) => ArgumentType::Typed(expression.cql_type().clone()),
            Argument::Term(term @ Term::Call { .. }) => {
                preferred_type(term, cx).map_or(ArgumentType::Unknown, ArgumentType::Typed)
            }
            Argument::Term(term) => ArgumentType::Term(term),
        }
    }

    fn fit(&self, to: &CqlType, cx: &TermContext<'_>) -> Fit {
        match self {
            ArgumentType::Typed(from) => fit_type(from, to),
            ArgumentType::Unknown => Fit::Weak,
            ArgumentType::Term(term) => fit_term(term, to, cx),
        }
    }
}

/// A function with the types of one call.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) function: &'static Function,
    /// The name used in the call.
    pub(crate) called: &'static str,
    pub(crate) types: Vec<CqlType>,
    pub(crate) returns: CqlType,
}

impl Resolved {
    /// Whether the result adapts to the type of the receiver.
    pub(crate) fn depends_on_receiver(&self) -> bool {
        match self.function.shape {
            Shape::Inferred { returns, .. } => returns(&self.types, None).is_err(),
            Shape::Fixed(_) | Shape::PartitionKey => false,
        }
    }
}

pub(crate) fn resolve_terms(
    name: &QualifiedName,
    arguments: &[Term],
    receiver: Option<&CqlType>,
    cx: &TermContext<'_>,
) -> Result<Option<Resolved>, CqlError> {
    let arguments: Vec<Argument<'_>> = arguments.iter().map(Argument::Term).collect();
    resolve(name, &arguments, receiver, cx)
}

/// Finds the function for these arguments; the receiver is that of its result, if it is known. None
/// if no function has the name.
// Source: Cassandra 5.0, FunctionResolver.get
pub(crate) fn resolve(
    name: &QualifiedName,
    arguments: &[Argument<'_>],
    receiver: Option<&CqlType>,
    cx: &TermContext<'_>,
) -> Result<Option<Resolved>, CqlError> {
    let is_ours = name.keyspace.as_deref().is_none_or(|keyspace| keyspace == KEYSPACE);
    let Some((function, called)) = list::find(&name.name).filter(|_| is_ours) else {
        return Ok(None);
    };
    let depth = |argument: &Argument<'_>| match argument {
        Argument::Term(term) => call_depth(term),
        Argument::Bound(..) => 0,
    };
    if arguments.iter().map(depth).max().unwrap_or(0) >= CALL_DEPTH_MAX {
        return Err(CqlError::invalid(format!(
            "More than {CALL_DEPTH_MAX} calls of functions within one another"
        )));
    }
    let (types, returns) = match &function.shape {
        Shape::Fixed(signatures) => {
            let signature = fixed(FixedCall { called, signatures, arguments, receiver }, cx)?;
            let types = signature.arguments.iter().copied().map(CqlType::Native).collect();
            (types, CqlType::Native(signature.returns))
        }
        Shape::Inferred { parameters, returns } => {
            let types = infer(called, parameters, arguments, receiver, cx)?;
            let returns = returns(&types, receiver)?;
            (types, returns)
        }
        Shape::PartitionKey => (partition_key(called, arguments, cx)?, CqlType::BIGINT),
    };
    Ok(Some(Resolved { function, called, types, returns }))
}

fn call_depth(term: &Term) -> usize {
    let deepest = |terms: &mut dyn Iterator<Item = &Term>| terms.map(call_depth).max().unwrap_or(0);
    match term {
        Term::Null | Term::Marker(_) | Term::Constant(_) | Term::Column(_) => 0,
        Term::List(items) | Term::Set(items) | Term::Tuple(items) => deepest(&mut items.iter()),
        Term::Map(pairs) => deepest(&mut pairs.iter().flat_map(|(key, value)| [key, value])),
        Term::UserDefined(fields) => deepest(&mut fields.iter().map(|(_, value)| value)),
        Term::Call { arguments, .. } => 1 + deepest(&mut arguments.iter()),
        Term::Hint(_, inner) | Term::Negative(inner) => call_depth(inner),
        Term::Arithmetic(_, left, right) => call_depth(left).max(call_depth(right)),
    }
}

/// A call of a function with a list of signatures.
#[derive(Clone, Copy)]
struct FixedCall<'a, 'b> {
    called: &'static str,
    signatures: &'static [Signature],
    arguments: &'a [Argument<'b>],
    receiver: Option<&'a CqlType>,
}

fn fixed(call: FixedCall<'_, '_>, cx: &TermContext<'_>) -> Result<&'static Signature, CqlError> {
    let FixedCall { called, signatures, arguments, receiver } = call;
    if let [only] = signatures {
        check_only(called, only, arguments, cx)?;
        return Ok(only);
    }
    let given: Vec<ArgumentType<'_>> =
        arguments.iter().map(|argument| ArgumentType::new(argument, cx)).collect();
    let mut compatible = Vec::new();
    for signature in signatures {
        let is_received = receiver.is_none_or(|receiver| {
            fit_type(&CqlType::Native(signature.returns), receiver).is_some()
        });
        if !is_received || signature.arguments.len() != given.len() {
            continue;
        }
        let fits = given.iter().zip(signature.arguments);
        let fit = fits.map(|(given, native)| given.fit(&CqlType::Native(*native), cx)).min();
        match fit.unwrap_or(Fit::Exact) {
            Fit::Exact => return Ok(signature),
            Fit::Weak => compatible.push(signature),
            Fit::No => {}
        }
    }
    match compatible[..] {
        [only] => Ok(only),
        [] => Err(CqlError::invalid(format!(
            "Invalid call to function {called}, none of its type signatures match (known type signatures: {})",
            signature_list(called, signatures.iter())
        ))),
        _ => Err(CqlError::invalid(format!(
            "Ambiguous call to function {called} (can be matched by following signatures: {}): use type casts to disambiguate",
            signature_list(called, compatible.into_iter())
        ))),
    }
}

/// The signatures of a function, in the form of messages.
pub(super) fn signature_list<'a>(
    called: &str,
    signatures: impl Iterator<Item = &'a Signature>,
) -> String {
    let texts: Vec<String> = signatures
        .map(|signature| {
            let arguments: Vec<String> =
                signature.arguments.iter().map(|native| native.name().to_owned()).collect();
            signature_text(called, &arguments, signature.returns.name())
        })
        .collect();
    texts.join(", ")
}

/// If there is no overload, the message names the wrong argument.
// Source: Cassandra 5.0, FunctionResolver.validateTypes
fn check_only(
    called: &str,
    signature: &Signature,
    arguments: &[Argument<'_>],
    cx: &TermContext<'_>,
) -> Result<(), CqlError> {
    if arguments.len() != signature.arguments.len() {
        return Err(wrong_count(called, signature.arguments.len(), arguments.len()));
    }
    for (nth, (argument, native)) in arguments.iter().zip(signature.arguments).enumerate() {
        let fit = ArgumentType::new(argument, cx).fit(&CqlType::Native(*native), cx);
        if !fit.is_some() {
            return Err(wrong_argument(called, (nth, argument), native.name()));
        }
    }
    Ok(())
}

fn wrong_count(called: &str, required: usize, provided: usize) -> CqlError {
    CqlError::invalid(format!(
        "Invalid number of arguments in call to function system.{called}: {required} required but {provided} provided"
    ))
}

fn wrong_argument(called: &str, given: (usize, &Argument<'_>), expected: &str) -> CqlError {
    let (nth, argument) = given;
    CqlError::invalid(format!(
        "Type error: {} cannot be passed as argument {nth} of function system.{called} of type {expected}",
        argument.text()
    ))
}

// Source: Cassandra 5.0, TokenFct
fn partition_key(
    called: &str,
    arguments: &[Argument<'_>],
    cx: &TermContext<'_>,
) -> Result<Vec<CqlType>, CqlError> {
    let Some(table) = cx.table else {
        return Err(CqlError::invalid("The token function needs a table"));
    };
    let key = table.partition_key();
    if key.len() != arguments.len() {
        return Err(wrong_count(called, key.len(), arguments.len()));
    }
    for (nth, (argument, column)) in arguments.iter().zip(key).enumerate() {
        if !ArgumentType::new(argument, cx).fit(&column.column_type, cx).is_some() {
            let expected = column.column_type.to_string();
            return Err(wrong_argument(called, (nth, argument), &expected));
        }
    }
    Ok(key.iter().map(|column| column.column_type.clone()).collect())
}

/// Infers the types of arguments of polymorphic parameters.
// Source: Cassandra 5.0, FunctionFactory.getOrCreateFunction
fn infer(
    called: &str,
    parameters: &[Parameter],
    arguments: &[Argument<'_>],
    receiver: Option<&CqlType>,
    cx: &TermContext<'_>,
) -> Result<Vec<CqlType>, CqlError> {
    let texts: Vec<String> = parameters.iter().map(|parameter| parameter.text()).collect();
    let text = format!("system.{called}({})", texts.join(", "));
    let needed = parameters.iter().filter(|parameter| !parameter.is_optional()).count();
    if !(needed..=parameters.len()).contains(&arguments.len()) {
        return Err(CqlError::invalid(format!("Invalid number of arguments for function {text}")));
    }
    let own: Vec<Option<CqlType>> =
        arguments.iter().map(|argument| argument.preferred_type(cx)).collect();
    let mut types: Vec<CqlType> = Vec::with_capacity(arguments.len());
    for (nth, (argument, parameter)) in arguments.iter().zip(parameters).enumerate() {
        let known = own[nth].clone();
        let inferred = match parameter {
            Parameter::Native(native) | Parameter::OptionalNative(native) => {
                let required = CqlType::Native(*native);
                let is_possible = ArgumentType::new(argument, cx).fit(&required, cx).is_some();
                Some(if is_possible { required } else { known.unwrap_or(required) })
            }
            Parameter::String => Some(known.unwrap_or(CqlType::TEXT)),
            Parameter::AnyLikeReceiver => known.or_else(|| receiver.cloned()),
            Parameter::LikeFirst => types.first().cloned().or(known),
            Parameter::FloatVector => {
                let vector = |(argument, known): (&Argument<'_>, &Option<CqlType>)| {
                    let known = known.as_ref();
                    let own = || known.filter(|of| matches!(of, CqlType::Vector(..))).cloned();
                    float_vector(argument, known).or_else(own)
                };
                let other = || arguments.iter().zip(&own).find_map(vector);
                float_vector(argument, known.as_ref()).or(known).or_else(other)
            }
            _ => known,
        };
        let Some(inferred) = inferred else {
            return Err(CqlError::invalid(format!(
                "Cannot infer type of argument {} in call to function {text}: use type casts to disambiguate",
                argument.text()
            )));
        };
        check_parameter(called, *parameter, argument, &inferred)?;
        types.push(inferred);
    }
    Ok(types)
}

/// `[1, 2]` is a list without other information, but here it is a vector.
fn float_vector(argument: &Argument<'_>, known: Option<&CqlType>) -> Option<CqlType> {
    match (argument, known) {
        (Argument::Term(Term::List(items)), _) => {
            let float = CqlType::Native(Native::Float);
            Some(CqlType::Vector(Box::new(float), items.len()))
        }
        _ => None,
    }
}

// Source: Cassandra 5.0, FunctionParameter.validateType of each kind
fn check_parameter(
    called: &str,
    parameter: Parameter,
    argument: &Argument<'_>,
    of: &CqlType,
) -> Result<(), CqlError> {
    let native_of = |of: &CqlType| match of.unfrozen() {
        CqlType::Native(native) => Some(*native),
        _ => None,
    };
    let inner = of.unfrozen();
    let (is_fit, required) = match parameter {
        Parameter::Native(native) | Parameter::OptionalNative(native) => (
            fit_type(of, &CqlType::Native(native)).is_some(),
            format!("an argument of type {}", native.name()),
        ),
        Parameter::String => (
            matches!(native_of(of), Some(Native::Text | Native::Ascii)),
            "an argument of type [text|varchar|ascii]".to_owned(),
        ),
        Parameter::Any | Parameter::AnyLikeReceiver | Parameter::LikeFirst => (true, String::new()),
        Parameter::Map => (matches!(inner, CqlType::Map(..)), "a map argument".to_owned()),
        Parameter::Collection => (
            matches!(inner, CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..)),
            "a collection argument".to_owned(),
        ),
        Parameter::SetOrList => (
            matches!(inner, CqlType::List(_) | CqlType::Set(_)),
            "a set or list argument".to_owned(),
        ),
        Parameter::NumericSetOrList => {
            let element = match inner {
                CqlType::List(element) | CqlType::Set(element) => native_of(element),
                _ => None,
            };
            let is_number =
                element.is_some_and(|native| crate::function::number::NUMERIC.contains(&native));
            (is_number, "a numeric set/list argument".to_owned())
        }
        Parameter::FloatVector => {
            let is_float = matches!(
                inner,
                CqlType::Vector(element, _) if **element == CqlType::Native(Native::Float)
            );
            (is_float, "a float vector argument".to_owned())
        }
    };
    if is_fit {
        return Ok(());
    }
    Err(CqlError::invalid(format!(
        "Function system.{called} requires {required}, but found argument {} of type {of}",
        argument.text()
    )))
}

/// Types the arguments of a resolved call.
pub(crate) fn bind_resolved(
    found: Resolved,
    arguments: Vec<Argument<'_>>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let Resolved { function, called, types, returns } = found;
    let bind = |(nth, (argument, of)): (usize, (Argument<'_>, &CqlType))| {
        argument.bind(of, &format!("arg{nth}(system.{called})"), cx)
    };
    let arguments = arguments.into_iter().zip(&types).enumerate().map(bind);
    let arguments = arguments.collect::<Result<_, _>>()?;
    Ok(Expression::Call { function, called, arguments, of: returns })
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn calls_find_their_overload() {
        for (term, of, expected) in [
            ("to_unix_timestamp((timestamp) '1970-01-01 00:00:01')", "bigint", "1000"),
            ("toUnixTimestamp((date) '1970-01-02')", "bigint", "86400000"),
            ("system.abs(-5)", "int", "5"),
            ("abs(abs(-5))", "int", "5"),
            ("to_date(to_timestamp(min_timeuuid(86400000)))", "date", "1970-01-02"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
    }

    #[test]
    fn wrong_calls_are_refused_in_cassandras_words() {
        for (term, of, expected) in [
            ("nothing(1)", "int", "Unknown function nothing called"),
            ("ks.abs(1)", "int", "Unknown function ks.abs called"),
            (
                "uuid(1)",
                "uuid",
                "Invalid number of arguments in call to function system.uuid: 0 required but 1 provided",
            ),
            (
                "min_timeuuid(true)",
                "timeuuid",
                "Type error: true cannot be passed as argument 0 of function system.min_timeuuid of type timestamp",
            ),
            (
                "textAsBlob('a')",
                "int",
                "Type error: cannot assign result of function system.textasblob (type blob) to c (type int)",
            ),
            (
                "now()",
                "int",
                "Type error: cannot assign result of function system.now (type timeuuid) to c (type int)",
            ),
            (
                "to_date(1h)",
                "date",
                "Invalid call to function to_date, none of its type signatures match (known type signatures: system.to_date : (timeuuid) -> date, system.to_date : (timestamp) -> date)",
            ),
            (
                "to_timestamp(?)",
                "timestamp",
                "Ambiguous call to function to_timestamp (can be matched by following signatures: system.to_timestamp : (timeuuid) -> timestamp, system.to_timestamp : (date) -> timestamp): use type casts to disambiguate",
            ),
            (
                "map_keys(5)",
                "set<int>",
                "Function system.map_keys requires a map argument, but found argument 5 of type int",
            ),
            (
                "collection_count(?)",
                "int",
                "Cannot infer type of argument ? in call to function system.collection_count(collection): use type casts to disambiguate",
            ),
        ] {
            assert_eq!(refused(term, of), expected, "{term}");
        }
        let deep = format!("{}1{}", "abs(".repeat(9), ")".repeat(9));
        assert_eq!(refused(&deep, "int"), "More than 8 calls of functions within one another");
    }
}
