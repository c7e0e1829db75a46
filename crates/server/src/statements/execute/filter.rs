//! Filters: comparisons of rows by columns other than their keys.

use cql::analysis::Analysis;
use cql::error::CqlError;
use cql::expression::Evaluated;
use cql::moment::Moment;
use cql::plan::{Choices, Filter, FilterPart};
use cql::relation::Comparison;
use cql::schema::Table;
use cql::type_name::Native;
use cql::types::CqlType;
use cql::value::collection::{fields, items};
use cql::value::comparable;
use smallvec::SmallVec;

use super::row::RowCx;
use super::values::EvalContext;

/// Filters with the values bound for one run.
pub(super) struct Filters<'v> {
    ready: Vec<Ready<'v>>,
}

struct Ready<'v> {
    filter: &'v Filter,
    /// Type of the compared value: the column's, or that of its items.
    of: CqlType,
    /// Ordered encodings of the values, in their order.
    wanted: SmallVec<[Vec<u8>; 1]>,
    /// The key of a map entry.
    key: Option<Vec<u8>>,
    /// The bytes that a value must have, and not only be equal to.
    exact: Option<Vec<u8>>,
    /// Length of the longest compared value.
    value_bytes: usize,
}

impl<'v> Filters<'v> {
    pub(super) fn new(
        filters: &'v [Filter],
        table: &Table,
        cx: &EvalContext<'v>,
    ) -> Result<Self, CqlError> {
        let ready = filters.iter().map(|filter| Ready::new(filter, table, cx));
        Ok(Filters { ready: ready.collect::<Result<_, _>>()? })
    }

    /// The term to look up in an index of the filter's column.
    pub(super) fn term(&self, nth: usize, analysis: Analysis) -> Option<Vec<u8>> {
        let Ready { filter, key, wanted, of, .. } = &self.ready[nth];
        let wanted = wanted.first()?;
        let mut term = key.clone().unwrap_or_default();
        if analysis == filter.analysis {
            term.extend_from_slice(wanted);
        } else {
            let value = comparable::decode(&mut &wanted[..], of, false)?;
            term.extend_from_slice(&ordered(&analysis.apply(&value), of));
        }
        Some(term)
    }

    /// Length of the longest value that a filter compares with.
    pub(super) fn value_bytes(&self, nth: usize) -> usize {
        self.ready[nth].value_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(super) fn accept(&self, row: &RowCx<'_>, moment: &Moment) -> Result<bool, CqlError> {
        for ready in &self.ready {
            if !ready.accepts(row, moment)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Encodes a value so that bytes sort in the order of its type.
pub(super) fn ordered(value: &[u8], of: &CqlType) -> Vec<u8> {
    let mut key = Vec::new();
    comparable::encode(value, of, false, &mut key);
    key
}

impl<'v> Ready<'v> {
    fn new(filter: &'v Filter, table: &Table, cx: &EvalContext<'v>) -> Result<Self, CqlError> {
        let column = &table.columns[filter.column];
        let name = &column.name;
        let own = column.column_type.unfrozen();
        let of = match (&filter.part, filter.operator) {
            (FilterPart::Tuple(count), _) => {
                let columns = &table.columns[filter.column..filter.column + count];
                CqlType::Tuple(columns.iter().map(|c| c.column_type.clone()).collect())
            }
            (FilterPart::Element(_), _) | (_, Comparison::Contains) => match own {
                CqlType::List(item) | CqlType::Set(item) | CqlType::Map(_, item) => {
                    (**item).clone()
                }
                other => other.clone(),
            },
            (_, Comparison::ContainsKey) => match own {
                CqlType::Map(key, _) => (**key).clone(),
                other => other.clone(),
            },
            (FilterPart::Whole, _) => own.clone(),
        };
        if let Choices::One(value) = &filter.choices {
            let absent = match cx.evaluate(value)? {
                Evaluated::Bytes(_) => None,
                Evaluated::Null => Some("null"),
                Evaluated::Unset => Some("unset"),
            };
            if let Some(what) = absent {
                let reason = format!("Unsupported {what} value for column {name}");
                return Err(CqlError::invalid(reason));
            }
        }
        let wanted = cx.choose(&filter.choices, name)?;
        // Values of other types have one form, or several forms only because their type has got
        // fields since, which must not hide rows.
        let is_exact = filter.is_exact && of == CqlType::Native(Native::Decimal);
        let exact = wanted.first().filter(|_| is_exact).map(|value| value.to_vec());
        let value_bytes = wanted.iter().map(|value| value.len()).max().unwrap_or(0);
        let mut wanted: SmallVec<[Vec<u8>; 1]> =
            wanted.iter().map(|value| ordered(&filter.analysis.apply(value), &of)).collect();
        wanted.sort_unstable();
        let key = match (&filter.part, own) {
            (FilterPart::Element(key), CqlType::Map(of_key, _)) => {
                Some(ordered(&cx.known(key, name)?, of_key))
            }
            _ => None,
        };
        Ok(Ready { filter, of, wanted, key, exact, value_bytes })
    }

    fn accepts(&self, row: &RowCx<'_>, moment: &Moment) -> Result<bool, CqlError> {
        if let FilterPart::Tuple(count) = self.filter.part {
            return self.accepts_tuple(row, count);
        }
        let Some(value) = row.value(self.filter.column)? else { return Ok(false) };
        moment.spend(value.len())?;
        Ok(match self.filter.operator {
            Comparison::Contains => self.contains(&value, row, false),
            Comparison::ContainsKey => self.contains(&value, row, true),
            operator => match &self.key {
                None => self.is_exact(&value) && self.compares(&self.term(&value), operator),
                Some(key) => self.entry(&value, row, key, operator),
            },
        })
    }

    fn is_exact(&self, value: &[u8]) -> bool {
        self.exact.as_ref().is_none_or(|exact| exact == value)
    }

    /// What of a value is compared.
    fn term(&self, value: &[u8]) -> Vec<u8> {
        ordered(&self.filter.analysis.apply(value), &self.of)
    }

    fn accepts_tuple(&self, row: &RowCx<'_>, count: usize) -> Result<bool, CqlError> {
        let mut tuple = Vec::new();
        for index in self.filter.column..self.filter.column + count {
            let Some(value) = row.value(index)? else { return Ok(false) };
            cql::value::collection::put_part(Some(&value), &mut tuple);
        }
        debug_assert!(fields(&tuple, count).is_ok());
        Ok(self.compares(&ordered(&tuple, &self.of), self.filter.operator))
    }

    fn compares(&self, own: &[u8], operator: Comparison) -> bool {
        let Some(first) = self.wanted.first() else { return false };
        match operator {
            Comparison::Equal => own == first,
            Comparison::NotEqual => own != first,
            Comparison::Less => own < &first[..],
            Comparison::LessOrEqual => own <= &first[..],
            Comparison::Greater => own > &first[..],
            Comparison::GreaterOrEqual => own >= &first[..],
            Comparison::In => self.wanted.binary_search_by(|wanted| wanted[..].cmp(own)).is_ok(),
            Comparison::Contains
            | Comparison::ContainsKey
            | Comparison::Like
            | Comparison::IsNotNull => false,
        }
    }

    /// Whether an item of a collection is the requested one.
    fn contains(&self, value: &[u8], row: &RowCx<'_>, looks_at_keys: bool) -> bool {
        let own = row.table.columns[self.filter.column].column_type.unfrozen();
        let is_map = matches!(own, CqlType::Map(..));
        let per_item = if is_map { 2 } else { 1 };
        let offset = usize::from(is_map && !looks_at_keys);
        let items = items(value, per_item).unwrap_or_default();
        let mut items = items.into_iter().skip(offset).step_by(per_item);
        items.any(|item| self.is_exact(item) && self.compares(&self.term(item), Comparison::Equal))
    }

    fn entry(&self, value: &[u8], row: &RowCx<'_>, key: &[u8], operator: Comparison) -> bool {
        let own = row.table.columns[self.filter.column].column_type.unfrozen();
        let CqlType::Map(of_key, _) = own else { return false };
        let items = items(value, 2).unwrap_or_default();
        let (pairs, _) = items.as_chunks::<2>();
        let found = pairs.iter().find(|[name, _]| ordered(name, of_key) == key);
        found.is_some_and(|[_, value]| {
            self.is_exact(value) && self.compares(&ordered(value, &self.of), operator)
        })
    }
}
