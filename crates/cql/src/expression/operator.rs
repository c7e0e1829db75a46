//! Arithmetic: `+ - * / %` on numbers, on dates with durations, and `+` on texts.

use super::fit::{Fit, fit_constant, fit_term, fit_type, preferred_type};
use super::resolve::Argument;
use super::{Expression, Target, TermContext};
use crate::duration::{Duration, NS_PER_MS};
use crate::error::CqlError;
use crate::function::number::{NUMERIC, Number};
use crate::function::{Call, Function, Shape, decimal};
use crate::term::{NEGATION, Operator, Term};
use crate::type_name::{NATIVE_TYPES, Native};
use crate::types::CqlType;
use crate::value::constant;
use crate::value::time::{add_to_days, add_to_timestamp};

/// The operators as functions; they have no names in CQL.
static OPERATORS: [Function; 6] = [
    operator(Operator::Add.function(), |call| run(call, Operator::Add)),
    operator(Operator::Subtract.function(), |call| run(call, Operator::Subtract)),
    operator(Operator::Multiply.function(), |call| run(call, Operator::Multiply)),
    operator(Operator::Divide.function(), |call| run(call, Operator::Divide)),
    operator(Operator::Remainder.function(), |call| run(call, Operator::Remainder)),
    operator(NEGATION, negate),
];

/// All operators except negation, in the order of their functions.
const ALL: [Operator; 5] =
    [Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide, Operator::Remainder];

/// The operator implemented by a function.
pub(crate) fn find(function: &str) -> Option<Operator> {
    ALL.into_iter().find(|operator| operator.function() == function)
}

const fn operator(
    name: &'static str,
    run: fn(&Call<'_>) -> Result<Option<Vec<u8>>, CqlError>,
) -> Function {
    Function { name, older_name: None, shape: Shape::Fixed(&[]), doc: "", run }
}

fn function(operator: Operator) -> &'static Function {
    let place = ALL.iter().position(|one| *one == operator);
    &OPERATORS[place.expect("all operators are listed")]
}

/// How a term fits each native type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fits([Fit; NATIVE_TYPES.len()]);

impl Fits {
    fn new(fit: impl Fn(Native) -> Fit) -> Self {
        Fits(std::array::from_fn(|place| fit(NATIVE_TYPES[place].0)))
    }

    pub(crate) fn of(&self, native: Native) -> Fit {
        self.0[native as usize]
    }
}

/// One of the signatures of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    left: Native,
    right: Native,
    returns: Native,
}

/// Why no unique signature of an operator fits its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unresolved {
    Unsupported,
    Ambiguous,
}

/// How an arithmetic term, or an operand of one, fits each native type.
pub(crate) fn fits(term: &Term, cx: &TermContext<'_>) -> Fits {
    match term {
        Term::Constant(constant) => Fits::new(|to| fit_constant(constant, to)),
        Term::Tuple(parts) if parts.len() == 1 => fits(&parts[0], cx),
        Term::Negative(inner) => {
            let inner = fits(inner, cx);
            Fits::new(|to| result_fit(negation(&inner, Some(to)), to))
        }
        Term::Arithmetic(operator, left, right) => {
            let operands = Operands::new(&left.into(), &right.into(), cx);
            Fits::new(|to| {
                let form = form(*operator, &operands, Some(&CqlType::Native(to)));
                result_fit(form.map(|form| form.returns), to)
            })
        }
        Term::Call { .. } => match preferred_type(term, cx) {
            Some(returned) => Fits::new(|to| fit_type(&returned, &CqlType::Native(to))),
            None => Fits::new(|_| Fit::Weak),
        },
        _ => Fits::new(|to| fit_term(term, &CqlType::Native(to), cx)),
    }
}

/// An undetermined fit is weak: binding then reports why it fails.
fn result_fit(returned: Result<Native, Unresolved>, to: Native) -> Fit {
    returned.map_or(Fit::Weak, |native| fit_type(&CqlType::Native(native), &CqlType::Native(to)))
}

/// The type of an arithmetic term without a known receiver.
pub(crate) fn preferred(term: &Term, cx: &TermContext<'_>) -> Option<Native> {
    match term {
        Term::Negative(inner) => negation(&fits(inner, cx), None).ok(),
        Term::Arithmetic(operator, left, right) => {
            let operands = Operands::new(&left.into(), &right.into(), cx);
            let form = form(*operator, &operands, None);
            form.ok().map(|form| form.returns)
        }
        _ => None,
    }
}

#[derive(Debug)]
struct Operands {
    left: Fits,
    right: Fits,
    have_marker: bool,
}

impl Operands {
    fn new(left: &Argument<'_>, right: &Argument<'_>, cx: &TermContext<'_>) -> Self {
        let is_marker =
            |argument: &Argument<'_>| matches!(argument, Argument::Term(Term::Marker(_)));
        Operands {
            left: argument_fits(left, cx),
            right: argument_fits(right, cx),
            have_marker: is_marker(left) || is_marker(right),
        }
    }
}

fn argument_fits(argument: &Argument<'_>, cx: &TermContext<'_>) -> Fits {
    match argument {
        Argument::Term(term) => fits(term, cx),
        Argument::Bound(expression, _) => {
            Fits::new(|to| fit_type(expression.cql_type(), &CqlType::Native(to)))
        }
    }
}

/// The signature of the operator for these operands.
// Source: Cassandra 5.0, FunctionResolver.pickBestMatch
fn form(
    operator: Operator,
    operands: &Operands,
    receiver: Option<&CqlType>,
) -> Result<Form, Unresolved> {
    let mut compatible = Vec::new();
    for form in forms(operator) {
        let is_received = receiver
            .is_none_or(|receiver| fit_type(&CqlType::Native(form.returns), receiver).is_some());
        if !is_received {
            continue;
        }
        match operands.left.of(form.left).min(operands.right.of(form.right)) {
            Fit::Exact => return Ok(form),
            Fit::Weak => compatible.push(form),
            Fit::No => {}
        }
    }
    match (compatible.len(), receiver) {
        (0, _) => Err(Unresolved::Unsupported),
        (1, _) => Ok(compatible[0]),
        (_, Some(CqlType::Native(to))) if !operands.have_marker => {
            let same = compatible.into_iter().find(|form| form.left == *to && form.right == *to);
            same.ok_or(Unresolved::Ambiguous)
        }
        _ => Err(Unresolved::Ambiguous),
    }
}

/// The signatures in the order in which they are tried.
fn forms(operator: Operator) -> impl Iterator<Item = Form> {
    let numeric = NUMERIC.iter().flat_map(|&left| {
        NUMERIC.iter().map(move |&right| Form { left, right, returns: result_type(left, right) })
    });
    let with_duration = |native| Form { left: native, right: Native::Duration, returns: native };
    let temporal = [Native::Timestamp, Native::Date].map(with_duration);
    let has_temporal = matches!(operator, Operator::Add | Operator::Subtract);
    let text = |left, right, returns| Form { left, right, returns };
    let texts = [
        text(Native::Text, Native::Text, Native::Text),
        text(Native::Ascii, Native::Ascii, Native::Ascii),
        text(Native::Ascii, Native::Text, Native::Text),
        text(Native::Text, Native::Ascii, Native::Text),
    ];
    numeric
        .chain(temporal.into_iter().filter(move |_| has_temporal))
        .chain(texts.into_iter().filter(move |_| operator == Operator::Add))
}

/// The wider of both; if one is a float, a float as wide as the wider one.
// Source: Cassandra 5.0, OperationFcts.returnType
fn result_type(left: Native, right: Native) -> Native {
    let width = |native| match native {
        Native::Tinyint => 1,
        Native::Smallint => 2,
        Native::Int | Native::Float => 4,
        Native::Bigint | Native::Counter | Native::Double => 8,
        _ => usize::MAX,
    };
    let is_float = |native| matches!(native, Native::Float | Native::Double | Native::Decimal);
    match (is_float(left) || is_float(right), width(left).max(width(right))) {
        (true, 1..=4) => Native::Float,
        (true, 8) => Native::Double,
        (true, _) => Native::Decimal,
        (false, 1) => Native::Tinyint,
        (false, 2) => Native::Smallint,
        (false, 4) => Native::Int,
        (false, 8) => Native::Bigint,
        (false, _) => Native::Varint,
    }
}

/// Types an operation. The receiver is that of the result, if there is one.
pub(crate) fn bind_operation(
    operator: Operator,
    operands: [Argument<'_>; 2],
    receiver: Option<Target<'_>>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let [left, right] = &operands;
    let of = receiver.map(|receiver| receiver.of.unfrozen());
    let form = form(operator, &Operands::new(left, right, cx), of).map_err(|error| {
        let (sign, left, right) = (operator.symbol(), left.text(), right.text());
        CqlError::invalid(match error {
            Unresolved::Unsupported => {
                format!("the '{sign}' operation is not supported between {left} and {right}")
            }
            Unresolved::Ambiguous => format!(
                "Ambiguous '{sign}' operation with args {left} and {right}: use type hint to disambiguate, example '(int) ?'"
            ),
        })
    })?;
    let function = function(operator);
    let mut arguments = Vec::with_capacity(2);
    for (nth, (operand, native)) in operands.into_iter().zip([form.left, form.right]).enumerate() {
        let name = format!("arg{nth}(system.{})", function.name);
        arguments.push(operand.bind(&CqlType::Native(native), &name, cx)?);
    }
    Ok(Expression::call(function, arguments, CqlType::Native(form.returns)))
}

fn negation(inner: &Fits, receiver: Option<Native>) -> Result<Native, Unresolved> {
    let is_received = |native: &&Native| {
        receiver.is_none_or(|receiver| {
            fit_type(&CqlType::Native(**native), &CqlType::Native(receiver)).is_some()
        })
    };
    let fitting = || NUMERIC.iter().filter(is_received);
    if let Some(exact) = fitting().find(|native| inner.of(**native) == Fit::Exact) {
        return Ok(*exact);
    }
    let mut weak = fitting().filter(|native| inner.of(**native) == Fit::Weak);
    match (weak.next(), weak.next()) {
        (None, _) => Err(Unresolved::Unsupported),
        (Some(only), None) => Ok(*only),
        // The receiver's own type takes precedence over others that it accepts.
        (Some(_), Some(_)) => receiver
            .filter(|to| NUMERIC.contains(to) && inner.of(*to).is_some())
            .ok_or(Unresolved::Ambiguous),
    }
}

/// Types `-term`; the receiver is that of the result, if it is known.
pub(crate) fn bind_negation(
    operand: Argument<'_>,
    receiver: Option<Target<'_>>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let required = receiver.and_then(|receiver| match receiver.of.unfrozen() {
        CqlType::Native(native) => Some(*native),
        _ => None,
    });
    let native = negation(&argument_fits(&operand, cx), required).map_err(|error| match error {
        Unresolved::Ambiguous => {
            CqlError::invalid("Ambiguous negation: use type casts to disambiguate")
        }
        Unresolved::Unsupported => {
            let signatures: Vec<String> = NUMERIC
                .iter()
                .map(|native| format!("system.{NEGATION} : ({0}) -> {0}", native.name()))
                .collect();
            CqlError::invalid(format!(
                "Invalid call to function {NEGATION}, none of its type signatures match (known type signatures: {})",
                signatures.join(", ")
            ))
        }
    })?;
    let function = &OPERATORS[ALL.len()];
    let name = format!("arg0(system.{})", function.name);
    let of = CqlType::Native(native);
    let arguments = vec![operand.bind(&of, &name, cx)?];
    Ok(Expression::call(function, arguments, of))
}

fn native(of: &CqlType) -> Native {
    match of.unfrozen() {
        CqlType::Native(native) => *native,
        other => unreachable!("operators have native operands only, not {other}"),
    }
}

fn run(call: &Call<'_>, operator: Operator) -> Result<Option<Vec<u8>>, CqlError> {
    let [left_type, right_type] = [native(&call.types[0]), native(&call.types[1])];
    let (Some(left), Some(right)) = (call.argument(0), call.argument(1)) else { return Ok(None) };
    let failed = |reason: String| CqlError::Failed {
        function: call.called.to_owned(),
        arguments: vec![left_type.name().to_owned(), right_type.name().to_owned()],
        message: format!(
            "the operation '{} {} {}' failed: {reason}",
            left_type.name(),
            operator.symbol(),
            right_type.name()
        ),
    };
    if matches!(left_type, Native::Text | Native::Ascii) {
        return Ok(Some([left, right].concat()));
    }
    if right_type == Native::Duration {
        return add_duration(left, right, Temporal { of: left_type, operator }).map_err(failed);
    }
    let (Some(left), Some(right)) =
        (Number::decode(left, left_type), Number::decode(right, right_type))
    else {
        return Ok(None);
    };
    calculate(operator, &left, &right, native(call.returns)).map(Some).map_err(failed)
}

/// The value that a duration is added to.
#[derive(Clone, Copy)]
struct Temporal {
    of: Native,
    operator: Operator,
}

// Source: Cassandra 5.0, TemporalType.addDuration
fn add_duration(left: &[u8], right: &[u8], temporal: Temporal) -> Result<Option<Vec<u8>>, String> {
    let Some(duration) = Duration::decode(right) else { return Ok(None) };
    let duration = match temporal.operator {
        Operator::Subtract => duration.negated().ok_or("the duration is too long")?,
        _ => duration,
    };
    let out_of_range = || "the result is beyond what the type holds".to_owned();
    if temporal.of == Native::Timestamp {
        let Ok(ms) = left.try_into().map(i64::from_be_bytes) else { return Ok(None) };
        if duration.nanoseconds % NS_PER_MS != 0 {
            return Err(format!("The duration must have a millisecond precision. Was: {duration}"));
        }
        let ms = add_to_timestamp(ms, duration).ok_or_else(out_of_range)?;
        return Ok(Some(ms.to_be_bytes().to_vec()));
    }
    let Ok(days) = left.try_into().map(constant::decode_days) else { return Ok(None) };
    if duration.nanoseconds != 0 {
        return Err(format!("The duration must have a day precision. Was: {duration}"));
    }
    let days = add_to_days(days, duration).and_then(constant::encode_days);
    days.map(Some).ok_or_else(out_of_range)
}

/// Integers wrap around, as in Java.
fn calculate(
    operator: Operator,
    left: &Number,
    right: &Number,
    of: Native,
) -> Result<Vec<u8>, String> {
    let result = match of {
        Native::Float => Number::Float(float(operator, left.to_f32(), right.to_f32())),
        Native::Double => Number::Double(float(operator, left.to_f64(), right.to_f64())),
        Native::Decimal => {
            let left = left.to_operand().map_err(|error| error.to_string())?;
            let right = right.to_operand().map_err(|error| error.to_string())?;
            let result = decimal::calculate(operator, &left, &right);
            Number::Decimal(result.map_err(|error| error.to_string())?)
        }
        Native::Varint => {
            let (left, right) = (left.to_bigint(), right.to_bigint());
            let is_zero = right == num_bigint::BigInt::ZERO;
            Number::Varint(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::Divide | Operator::Remainder if is_zero => {
                    return Err("BigInteger divide by zero".to_owned());
                }
                Operator::Divide => left / right,
                Operator::Remainder => left % right,
            })
        }
        _ => {
            let (left, right) = (left.to_i64(), right.to_i64());
            Number::Integer(match operator {
                Operator::Add => left.wrapping_add(right),
                Operator::Subtract => left.wrapping_sub(right),
                Operator::Multiply => left.wrapping_mul(right),
                Operator::Divide | Operator::Remainder if right == 0 => {
                    return Err("/ by zero".to_owned());
                }
                Operator::Divide => left.wrapping_div(right),
                Operator::Remainder => left.wrapping_rem(right),
            })
        }
    };
    result.encode(of).map_err(|error| error.to_string())
}

fn float<F>(operator: Operator, left: F, right: F) -> F
where
    F: std::ops::Add<Output = F>
        + std::ops::Sub<Output = F>
        + std::ops::Mul<Output = F>
        + std::ops::Div<Output = F>
        + std::ops::Rem<Output = F>,
{
    match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
    }
}

fn negate(call: &Call<'_>) -> Result<Option<Vec<u8>>, CqlError> {
    let of = native(call.returns);
    let Some(number) = call.argument(0).and_then(|bytes| Number::decode(bytes, of)) else {
        return Ok(None);
    };
    let negated = match number {
        Number::Integer(value) => Number::Integer(value.wrapping_neg()),
        Number::Varint(value) => Number::Varint(-value),
        Number::Float(value) => Number::Float(-value),
        Number::Double(value) => Number::Double(-value),
        Number::Decimal(value) => Number::Decimal(value.negated()),
    };
    let bytes = negated.encode(of).map_err(|error| CqlError::invalid(error.to_string()))?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn arithmetic_has_the_wider_type() {
        for (term, of, expected) in [
            ("1 + 2", "int", "3"),
            ("1 + 2 * 3", "bigint", "7"),
            ("(1 + 2) * 3", "varint", "9"),
            ("7 / 2", "int", "3"),
            ("-7 / 2", "int", "-3"),
            ("-7 % 3", "int", "-1"),
            ("7 / 2", "double", "3.5"),
            ("7.5 % 2", "double", "1.5"),
            ("2147483647 + 1", "int", "-2147483648"),
            ("(tinyint) 127 + (tinyint) 1", "tinyint", "-128"),
            ("(int) 1 + (bigint) 2", "bigint", "3"),
            ("(float) 1.5 + (int) 1", "float", "2.5"),
            ("(float) 1.5 + (bigint) 1", "double", "2.5"),
            ("(double) 0.5 + (decimal) 1", "decimal", "1.5"),
            ("(varint) 5 * (int) 3", "varint", "15"),
            ("(decimal) 1 / (decimal) 3", "decimal", "0.33333333333333333333333333333333"),
            ("(decimal) 10 / (decimal) 4", "decimal", "2.5"),
            ("-(1 + 2)", "int", "-3"),
            ("-(decimal) 1.5", "decimal", "-1.5"),
            ("1 + null", "int", "null"),
            ("'a' + 'b'", "text", "ab"),
            ("(timestamp) '2011-02-03' + 1mo2h", "timestamp", "2011-03-03 02:00:00.000Z"),
            ("(timestamp) '2011-03-31' - 1mo", "timestamp", "2011-02-28 00:00:00.000Z"),
            ("(date) '2011-02-03' + 1d", "date", "2011-02-04"),
            ("(date) '2012-02-29' - 1y", "date", "2011-02-28"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
    }

    #[test]
    fn undefined_results_are_rejected() {
        for (term, of, expected) in [
            ("1 / 0", "int", "the operation 'int / int' failed: / by zero"),
            ("1 % 0", "int", "the operation 'int % int' failed: / by zero"),
            (
                "(varint) 1 / (varint) 0",
                "varint",
                "the operation 'varint / varint' failed: BigInteger divide by zero",
            ),
            ("1 + 'a'", "int", "the '+' operation is not supported between 1 and 'a'"),
            (
                "1 + ?",
                "double",
                "Ambiguous '+' operation with args 1 and ?: use type hint to disambiguate, example '(int) ?'",
            ),
            ("-?", "blob", "Ambiguous negation: use type casts to disambiguate"),
            (
                "(date) '2011-02-03' + 1h",
                "date",
                "the operation 'date + duration' failed: The duration must have a day precision. Was: 1h",
            ),
        ] {
            assert_eq!(refused(term, of), expected, "{term}");
        }
    }
}
