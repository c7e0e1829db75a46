//! What SELECT computes of rows.

use super::Expression;
use super::bind::TermCx;
use crate::cql::error::CqlError;
use crate::cql::function::aggregate::Aggregate;
use crate::cql::schema::Table;
use crate::cql::statements::Selector;

/// What selectors may refer to, and the aggregates that were found in them.
#[derive(Debug)]
pub struct SelectorCx<'a, 'b> {
    pub table: &'a Table,
    pub terms: &'a mut TermCx<'b>,
    /// [`Expression::Aggregate`] is a place in it. When it is not empty, rows are folded into groups.
    pub aggregates: Vec<AggregateCall>,
}

/// A fold over rows: for each group `aggregate.start()`, then each row's value of `argument` is added.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateCall {
    pub aggregate: Aggregate,
    /// None counts rows.
    pub argument: Option<Expression>,
}

/// Types a selector: a column, `count(*)`, a call of a scalar or aggregate function, a cast, an
/// element, slice or field, or a value. Of all rows of a group the columns are those of the first.
/// `writetime`, `maxwritetime` and `ttl` are of the store, not of values: the caller takes them out
/// before.
pub fn bind_selector(
    selector: &Selector,
    cx: &mut SelectorCx<'_, '_>,
) -> Result<Expression, CqlError> {
    match selector {
        Selector::Column(name) => {
            let place = cx.table.columns.iter().position(|column| column.name == *name);
            let index = place.ok_or_else(|| {
                CqlError::invalid(format!(
                    "Undefined column name {name} in table {}.{}",
                    cx.table.keyspace, cx.table.name
                ))
            })?;
            let of = cx.table.columns[index].column_type.clone();
            Ok(Expression::Column { index, of })
        }
        Selector::CountRows => {
            let aggregate = Aggregate::count_rows();
            let of = aggregate.returns();
            cx.aggregates.push(AggregateCall { aggregate, argument: None });
            Ok(Expression::Aggregate { nth: cx.aggregates.len() - 1, of })
        }
        _ => Err(CqlError::invalid("Computed selectors are not known yet")),
    }
}
