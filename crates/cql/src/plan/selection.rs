//! The columns of a SELECT's result.

use wire::cql::Column as Shown;

use super::names::selector_name;
use super::planner::{Planner, column_index};
use crate::error::CqlError;
use crate::expression::{AggregateCall, Expression, SelectorContext, bind_selector};
use crate::parser::QualifiedName;
use crate::schema::{Column, ColumnKind, Table};
use crate::statements::{Select, SelectedColumn, Selector};
use crate::types::CqlType;
use crate::value::text::json_name;

/// The computation of a result's columns.
#[derive(Debug)]
pub struct Selection {
    pub shown: Shows,
    /// Values of rows in addition to their columns, numbered after those of the table.
    pub extras: Vec<Extra>,
    /// If not empty, rows are folded into groups.
    pub aggregates: Vec<AggregateCall>,
    /// For SELECT JSON: the quoted names and the types of the values in the one text.
    pub json: Option<Vec<(String, CqlType)>>,
}

#[derive(Debug)]
pub enum Shows {
    /// Unchanged columns, by their indexes in the table.
    Columns(Vec<usize>),
    Expressions(Vec<Expression>),
}

/// Metadata of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extra {
    pub column: usize,
    pub what: ExtraKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraKind {
    WriteTime,
    MaxWriteTime,
    TimeToLive,
}

impl ExtraKind {
    /// None if the function computes its result from values.
    pub(super) fn of_call(function: &QualifiedName) -> Option<ExtraKind> {
        match (function.name.as_str(), &function.keyspace) {
            ("writetime", None) => Some(ExtraKind::WriteTime),
            ("maxwritetime", None) => Some(ExtraKind::MaxWriteTime),
            ("ttl", None) => Some(ExtraKind::TimeToLive),
            _ => None,
        }
    }
}

impl Selection {
    /// The result, and its description for clients.
    pub(super) fn plan(
        select: &Select,
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<(Selection, Vec<Shown>), CqlError> {
        if select.columns.is_empty() {
            let shown = table.columns.iter().map(shown_column).collect();
            let columns = (0..table.columns.len()).collect();
            let selection = Selection {
                shown: Shows::Columns(columns),
                extras: Vec::new(),
                aggregates: Vec::new(),
                json: None,
            };
            return Ok(selection.finish(select, table, shown));
        }
        let plain: Option<Vec<&str>> = select.columns.iter().map(plain_column).collect();
        if let Some(plain) = plain {
            let columns: Vec<usize> =
                plain.iter().map(|name| column_index(table, name)).collect::<Result<_, _>>()?;
            let shown = columns.iter().zip(&select.columns).map(|(index, selected)| Shown {
                name: selected.alias.clone().unwrap_or_else(|| table.columns[*index].name.clone()),
                column_type: table.columns[*index].column_type.wire(),
            });
            let shown = shown.collect();
            let selection = Selection {
                shown: Shows::Columns(columns),
                extras: Vec::new(),
                aggregates: Vec::new(),
                json: None,
            };
            return Ok(selection.finish(select, table, shown));
        }
        let (selection, shown) = Self::computed(select, table, planner)?;
        Ok(selection.finish(select, table, shown))
    }

    fn computed(
        select: &Select,
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<(Selection, Vec<Shown>), CqlError> {
        let mut extended = table.clone();
        let mut extras = Vec::new();
        let mut selectors = Vec::with_capacity(select.columns.len());
        for selected in &select.columns {
            selectors.push(take_extras(&selected.selector, &mut extended, &mut extras)?);
        }
        let mut terms = planner.terms(table);
        let mut cx =
            SelectorContext { table: &extended, terms: &mut terms, aggregates: Vec::new() };
        let mut expressions = Vec::with_capacity(selectors.len());
        let mut shown = Vec::with_capacity(selectors.len());
        for (selector, selected) in selectors.iter().zip(&select.columns) {
            let expression = bind_selector(selector, &mut cx)?;
            let name = selected.alias.clone();
            let name = name.unwrap_or_else(|| selector_name(&selected.selector, &expression));
            shown.push(Shown { name, column_type: expression.cql_type().wire() });
            expressions.push(expression);
        }
        let aggregates = cx.aggregates;
        let shown_by = Shows::Expressions(expressions);
        Ok((Selection { shown: shown_by, extras, aggregates, json: None }, shown))
    }

    /// Replaces the columns by one text for SELECT JSON.
    fn finish(
        mut self,
        select: &Select,
        table: &Table,
        shown: Vec<Shown>,
    ) -> (Selection, Vec<Shown>) {
        if !select.is_json {
            return (self, shown);
        }
        let types: Vec<CqlType> = match &self.shown {
            Shows::Columns(columns) => {
                columns.iter().map(|index| table.columns[*index].column_type.clone()).collect()
            }
            Shows::Expressions(expressions) => {
                expressions.iter().map(|expression| expression.cql_type().clone()).collect()
            }
        };
        let quoted = |name: &str| serde_json::Value::from(json_name(name)).to_string();
        let names = shown.into_iter().map(|column| quoted(&column.name));
        self.json = Some(names.zip(types).collect());
        let json = Shown { name: "[json]".to_owned(), column_type: CqlType::TEXT.wire() };
        (self, vec![json])
    }

    pub fn is_aggregate(&self) -> bool {
        !self.aggregates.is_empty()
    }
}

fn shown_column(column: &Column) -> Shown {
    Shown { name: column.name.clone(), column_type: column.column_type.wire() }
}

fn plain_column(selected: &SelectedColumn) -> Option<&str> {
    match &selected.selector {
        Selector::Column(name) => Some(name),
        _ => None,
    }
}

/// Replaces `writetime(c)` and similar calls by a column after those of the table.
fn take_extras(
    selector: &Selector,
    table: &mut Table,
    extras: &mut Vec<Extra>,
) -> Result<Selector, CqlError> {
    let mut part = |selector: &Selector| take_extras(selector, table, extras);
    Ok(match selector {
        Selector::Call { function, arguments } => {
            if let Some(what) = ExtraKind::of_call(function) {
                return add_extra(what, &function.name, arguments, table, extras);
            }
            let arguments = arguments.iter().map(part).collect::<Result<_, _>>()?;
            Selector::Call { function: function.clone(), arguments }
        }
        Selector::Cast(inner, of) => Selector::Cast(Box::new(part(inner)?), of.clone()),
        Selector::Element(inner, key) => Selector::Element(Box::new(part(inner)?), key.clone()),
        Selector::Slice(inner, from, to) => {
            Selector::Slice(Box::new(part(inner)?), from.clone(), to.clone())
        }
        Selector::Field(inner, name) => Selector::Field(Box::new(part(inner)?), name.clone()),
        Selector::Brackets(inner) => Selector::Brackets(Box::new(part(inner)?)),
        Selector::Hint(of, inner) => Selector::Hint(of.clone(), Box::new(part(inner)?)),
        Selector::Column(_) | Selector::CountRows | Selector::Value(_) => selector.clone(),
    })
}

// Source: Cassandra 5.0, Selectable.WritetimeOrTTL
fn add_extra(
    what: ExtraKind,
    function: &str,
    arguments: &[Selector],
    table: &mut Table,
    extras: &mut Vec<Extra>,
) -> Result<Selector, CqlError> {
    let [Selector::Column(name)] = arguments else {
        return Err(CqlError::invalid(format!("{function} takes one column")));
    };
    let column = column_index(table, name)?;
    let of = &table.columns[column];
    if matches!(of.kind, ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. }) {
        return Err(CqlError::invalid(format!(
            "Cannot use selection function {function} on PRIMARY KEY part {name}"
        )));
    }
    let extra = match what {
        ExtraKind::TimeToLive => CqlType::INT,
        ExtraKind::WriteTime | ExtraKind::MaxWriteTime => CqlType::BIGINT,
    };
    let is_list = what != ExtraKind::MaxWriteTime && of.column_type.is_multi_cell();
    let column_type = if is_list { CqlType::List(Box::new(extra)) } else { extra };
    let shown = format!("{function}({name})");
    if !table.columns.iter().any(|known| known.name == shown) {
        let kind = ColumnKind::Regular;
        let (name, shown_from) = (shown.clone(), Column::ALL_SHOWN);
        let number = u32::MAX;
        table.columns.push(Column { name, column_type, kind, number, shown_from });
        extras.push(Extra { column, what });
    }
    Ok(Selector::Column(shown))
}
