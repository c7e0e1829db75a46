//! The relations of WHERE, grouped by column.

use super::names;
use super::planner::{Planner, column_index};
use super::restrictions::{Choices, Edge, Filter, FilterPart, Tokens, has_cells};
use crate::error::CqlError;
use crate::expression::Expression;
use crate::relation::{Comparison, Left, Relation, Right};
use crate::schema::{Column, ColumnKind, Table};
use crate::term::Term;
use crate::types::CqlType;

/// All relations of one column.
#[derive(Debug, Default)]
pub(super) struct Found {
    choices: Option<Choices>,
    pub(super) lower: Option<Edge>,
    pub(super) upper: Option<Edge>,
    /// Relations that require a filter.
    others: Vec<(FilterPart, Comparison, Choices)>,
}

/// A relation on several clustering columns.
#[derive(Debug)]
pub(super) struct Tuple {
    /// The index of the first column in the table.
    pub(super) first: usize,
    pub(super) columns: usize,
    pub(super) found: Found,
}

/// All relations of a statement.
#[derive(Debug)]
pub(super) struct Relations {
    /// In the order of the table's columns.
    pub(super) columns: Vec<Found>,
    pub(super) tuples: Vec<Tuple>,
    pub(super) tokens: Option<Tokens>,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.choices.is_none()
            && self.lower.is_none()
            && self.upper.is_none()
            && self.others.is_empty()
    }

    /// Whether the only relations are an enumeration of values.
    pub(super) fn is_choice(&self) -> bool {
        self.choices.is_some() && self.others.is_empty()
    }

    /// Whether the only relation is a range.
    pub(super) fn is_slice(&self) -> bool {
        (self.lower.is_some() || self.upper.is_some()) && self.others.is_empty()
    }

    /// Whether it is an enumeration of more than one value.
    pub(super) fn names_several(&self) -> bool {
        self.choices.as_ref().is_some_and(|choices| !matches!(choices, Choices::One(_)))
    }

    pub(super) fn asks_for(&self, operator: Comparison) -> bool {
        self.others.iter().any(|(_, own, _)| *own == operator)
    }

    pub(super) fn take_choices(&mut self) -> Choices {
        self.choices.take().expect("`is_choice` was checked")
    }

    /// Adds one comparison.
    fn add(
        &mut self,
        name: &str,
        operator: Comparison,
        choices: Choices,
        tuple: Option<usize>,
    ) -> Result<(), CqlError> {
        let is_choice = matches!(operator, Comparison::Equal | Comparison::In);
        // Source: Cassandra 5.0, SingleColumnRestriction.SliceRestriction.doMergeWith
        if is_choice && (self.lower.is_some() || self.upper.is_some()) {
            return Err(CqlError::invalid(format!(
                "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
            )));
        }
        if self.choices.is_some() || is_choice && !self.is_empty() {
            let is_in = match &self.choices {
                Some(own) => !matches!(own, Choices::One(_)),
                None => operator == Comparison::In,
            };
            let kind = if is_in { "a IN" } else { "an Equal" };
            return Err(CqlError::invalid(format!(
                "{name} cannot be restricted by more than one relation if it includes {kind}"
            )));
        }
        let (slot, side) = match operator {
            Comparison::Equal | Comparison::In => {
                self.choices = Some(choices);
                return Ok(());
            }
            Comparison::Greater | Comparison::GreaterOrEqual => (&mut self.lower, "start"),
            _ => (&mut self.upper, "end"),
        };
        if slot.is_some() {
            return Err(CqlError::invalid(format!(
                "More than one restriction was found for the {side} bound on {name}"
            )));
        }
        let Choices::One(value) = choices else { unreachable!("only IN has several") };
        let is_inclusive = matches!(operator, Comparison::GreaterOrEqual | Comparison::LessOrEqual);
        *slot = Some(Edge { value, is_inclusive, tuple });
        Ok(())
    }

    /// Whether relations on a tuple and on one of its columns can be combined: ranges that begin
    /// with one column can, and were combined before. The error depends on their order.
    // Source: Cassandra 5.0, SingleColumnRestriction and MultiColumnRestriction, doMergeWith
    fn check_mixed(&self, name: &str, operator: Comparison) -> Result<(), CqlError> {
        if let Some(own) = &self.choices {
            let kind = if matches!(own, Choices::One(_)) { "an Equal" } else { "a IN" };
            return Err(CqlError::invalid(format!(
                "{name} cannot be restricted by more than one relation if it includes {kind}"
            )));
        }
        if self.lower.is_none() && self.upper.is_none() {
            return Ok(());
        }
        let what = match operator {
            Comparison::Equal | Comparison::In => "an equality and an inequality relation",
            _ => {
                return Err(CqlError::invalid(format!(
                    "Column \"{name}\" cannot be restricted by two inequalities not starting with \
                     the same column"
                )));
            }
        };
        Err(CqlError::invalid(format!("Column \"{name}\" cannot be restricted by both {what}")))
    }

    /// Converts all relations to comparisons of each row.
    pub(super) fn drain_into(&mut self, column: usize, filters: &mut Vec<Filter>) {
        self.drain_parts(column, None, filters);
    }

    fn drain_parts(&mut self, column: usize, tuple: Option<usize>, filters: &mut Vec<Filter>) {
        let whole = || tuple.map_or(FilterPart::Whole, FilterPart::Tuple);
        if let Some(choices) = self.choices.take() {
            let operator = match choices {
                Choices::One(_) => Comparison::Equal,
                _ => Comparison::In,
            };
            filters.push(Filter::new(column, whole(), operator, choices));
        }
        let edges = [
            (self.lower.take(), Comparison::Greater, Comparison::GreaterOrEqual),
            (self.upper.take(), Comparison::Less, Comparison::LessOrEqual),
        ];
        for (edge, open, closed) in edges {
            let Some(edge) = edge else { continue };
            let operator = if edge.is_inclusive { closed } else { open };
            let part = edge.tuple.map_or(FilterPart::Whole, FilterPart::Tuple);
            filters.push(Filter::new(column, part, operator, Choices::One(edge.value)));
        }
        for (part, operator, choices) in self.others.drain(..) {
            filters.push(Filter::new(column, part, operator, choices));
        }
    }
}

impl Tuple {
    pub(super) fn drain_into(mut self, filters: &mut Vec<Filter>) {
        self.found.drain_parts(self.first, Some(self.columns), filters);
    }
}

impl Relations {
    pub(super) fn find(
        relations: &[Relation],
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<Relations, CqlError> {
        let columns = table.columns.iter().map(|_| Found::default()).collect();
        let mut found = Relations { columns, tuples: Vec::new(), tokens: None };
        for relation in relations {
            match &relation.left {
                Left::Column(name) => found.add_single(relation, name, table, planner)?,
                Left::Element(name, key) => {
                    found.add_element(relation, name, key, table, planner)?;
                }
                Left::Columns(names) => found.add_tuple(relation, names, table, planner)?,
                Left::Token(names) => found.add_token(relation, names, table, planner)?,
            }
        }
        Ok(found)
    }

    fn add_single(
        &mut self,
        relation: &Relation,
        name: &str,
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<(), CqlError> {
        let index = column_index(table, name)?;
        let column = &table.columns[index];
        check_operator(relation, column)?;
        let of = &column.column_type;
        let choices = match relation.operator {
            Comparison::Contains => {
                let item = contained(column, of)?;
                one(&relation.right, item, &format!("value({name})"), table, planner)?
            }
            Comparison::ContainsKey => {
                let CqlType::Map(key, _) = of.unfrozen() else {
                    return Err(CqlError::invalid(format!(
                        "Cannot use CONTAINS KEY on non-map column {name}"
                    )));
                };
                one(&relation.right, key, &format!("key({name})"), table, planner)?
            }
            operator => choices(&relation.right, operator, of, name, table, planner)?,
        };
        match relation.operator {
            Comparison::Contains | Comparison::ContainsKey | Comparison::NotEqual => {
                self.columns[index].others.push((FilterPart::Whole, relation.operator, choices));
                Ok(())
            }
            operator => {
                // A range that begins at the first column of a tuple is combined with it.
                let same = |tuple: &&mut Tuple| tuple.first == index && tuple.found.is_slice();
                if is_slice(operator)
                    && let Some(tuple) = self.tuples.iter_mut().find(same)
                {
                    return tuple.found.add(name, operator, choices, None);
                }
                for tuple in &self.tuples {
                    if (tuple.first..tuple.first + tuple.columns).contains(&index) {
                        tuple.found.check_mixed(name, operator)?;
                    }
                }
                self.columns[index].add(name, operator, choices, None)
            }
        }
    }

    /// `m['k'] = v`
    fn add_element(
        &mut self,
        relation: &Relation,
        name: &str,
        key: &Term,
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<(), CqlError> {
        let index = column_index(table, name)?;
        let column = &table.columns[index];
        let CqlType::Map(key_type, value_type) = column.column_type.unfrozen() else {
            return Err(CqlError::invalid(format!("Column {name} cannot be used as a map")));
        };
        if !column.column_type.is_multi_cell() {
            return Err(CqlError::invalid(format!(
                "Map-entry equality predicates on frozen map column {name} are not supported"
            )));
        }
        if relation.operator != Comparison::Equal {
            return Err(CqlError::invalid("Only EQ relations are supported on map entries"));
        }
        let key = planner.term(table, key, key_type, &format!("key({name})"))?;
        let value = one(&relation.right, value_type, &format!("value({name})"), table, planner)?;
        self.columns[index].others.push((FilterPart::Element(key), Comparison::Equal, value));
        Ok(())
    }

    fn add_tuple(
        &mut self,
        relation: &Relation,
        columns: &[String],
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<(), CqlError> {
        let places: Vec<usize> =
            columns.iter().map(|name| column_index(table, name)).collect::<Result<_, _>>()?;
        let Some(&first) = places.first() else {
            return Err(CqlError::invalid("A multi-column relation must name at least one column"));
        };
        for (nth, place) in places.iter().enumerate() {
            let column = &table.columns[*place];
            if !matches!(column.kind, ColumnKind::Clustering { .. }) {
                return Err(CqlError::invalid(format!(
                    "Multi-column relations can only be applied to clustering columns but was \
                     applied to: {}",
                    column.name
                )));
            }
            if places[..nth].contains(place) {
                return Err(CqlError::invalid(format!(
                    "Column \"{}\" appeared twice in a relation: {}",
                    column.name,
                    names::relation(relation)
                )));
            }
            if *place != first + nth {
                return Err(CqlError::invalid(format!(
                    "Clustering columns must appear in the PRIMARY KEY order in multi-column \
                     relations: {}",
                    names::relation(relation)
                )));
            }
        }
        let count = places.len();
        let parts = &table.columns[first..first + count];
        check_tuple_operator(relation)?;
        if let ([name], Some(single)) = (columns, single_value(relation)) {
            return self.add_single(&single, name, table, planner);
        }
        let choices = tuple_choices(relation, parts, table, planner)?;
        let own = &mut self.columns[first];
        if is_slice(relation.operator) && own.is_slice() {
            let found = std::mem::take(own);
            self.tuples.push(Tuple { first, columns: 1, found });
        }
        for (place, column) in (first..).zip(parts) {
            self.columns[place].check_mixed(&column.name, relation.operator)?;
        }
        let known = self.tuples.iter().position(|tuple| tuple.first == first);
        let common = known.map_or(count, |at| self.tuples[at].columns.min(count));
        let name = columns[..common].join(", ");
        let at = known.unwrap_or_else(|| {
            self.tuples.push(Tuple { first, columns: count, found: Found::default() });
            self.tuples.len() - 1
        });
        let tuple = &mut self.tuples[at];
        tuple.columns = tuple.columns.max(count);
        tuple.found.add(&name, relation.operator, choices, Some(count))
    }

    fn add_token(
        &mut self,
        relation: &Relation,
        columns: &[String],
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<(), CqlError> {
        let places: Vec<usize> =
            columns.iter().map(|name| column_index(table, name)).collect::<Result<_, _>>()?;
        let keys = table.partition_key().len();
        if places.len() < keys || places.iter().any(|place| *place >= keys) {
            return Err(CqlError::invalid(
                "The token() function must be applied to all partition key components or none of them",
            ));
        }
        if !places.iter().copied().eq(0..keys) {
            return Err(CqlError::invalid(format!(
                "The token function arguments must be in the partition key order: {}",
                super::planner::names(table.partition_key())
            )));
        }
        let name = "partition key token";
        let choices = one(&relation.right, &CqlType::BIGINT, name, table, planner)?;
        let tokens = self.tokens.take();
        let (lower, upper) = tokens.map_or((None, None), |tokens| (tokens.lower, tokens.upper));
        let mut found = Found { lower, upper, ..Found::default() };
        let shown = format!("token({})", columns.join(", "));
        match relation.operator {
            Comparison::Equal => {
                let Choices::One(value) = choices else { unreachable!("there is one value") };
                found.add(&shown, Comparison::GreaterOrEqual, Choices::One(value.clone()), None)?;
                found.add(&shown, Comparison::LessOrEqual, Choices::One(value), None)?;
            }
            Comparison::Less
            | Comparison::LessOrEqual
            | Comparison::Greater
            | Comparison::GreaterOrEqual => found.add(&shown, relation.operator, choices, None)?,
            _ => {
                return Err(CqlError::invalid(format!(
                    "{} cannot be used with the token function",
                    names::operator(relation.operator)
                )));
            }
        }
        self.tokens = Some(Tokens { lower: found.lower, upper: found.upper });
        Ok(())
    }

    /// Whether any relation restricts clustering columns.
    pub(super) fn restricts_rows(&self, table: &Table) -> bool {
        let first = table.partition_key().len();
        let rows = first..first + table.clustering().len();
        !self.tuples.is_empty() || self.columns[rows].iter().any(|found| !found.is_empty())
    }

    /// Removes and returns the relations of columns with cells.
    pub(super) fn take_cells(&mut self, table: &Table) -> Vec<Filter> {
        let mut filters = Vec::new();
        for (index, found) in self.columns.iter_mut().enumerate() {
            if has_cells(&table.columns[index]) {
                found.drain_into(index, &mut filters);
            }
        }
        filters
    }
}

// Source: Cassandra 5.0, SingleColumnRelation and Relation
fn check_operator(relation: &Relation, column: &Column) -> Result<(), CqlError> {
    let name = &column.name;
    let operator = names::operator(relation.operator);
    let of = &column.column_type;
    match relation.operator {
        Comparison::NotEqual => {
            let shown = names::relation(relation);
            return Err(CqlError::invalid(format!("Unsupported \"!=\" relation: {shown}")));
        }
        Comparison::IsNotNull => {
            return Err(CqlError::invalid(format!("Unsupported restriction: {name} IS NOT NULL")));
        }
        Comparison::Like => {
            return Err(CqlError::invalid(format!(
                "LIKE restriction is only supported on properly indexed columns. {} is not valid.",
                names::relation(relation)
            )));
        }
        _ => {}
    }
    let is_contains = matches!(relation.operator, Comparison::Contains | Comparison::ContainsKey);
    if of.is_multi_cell() && !is_contains {
        if matches!(of, CqlType::UserDefined(_)) {
            return Err(CqlError::invalid(format!(
                "Non-frozen UDT column '{name}' ({of}) cannot be restricted by any relation"
            )));
        }
        return Err(CqlError::invalid(format!(
            "Collection column '{name}' ({of}) cannot be restricted by a '{operator}' relation"
        )));
    }
    let is_slice = !is_contains && !matches!(relation.operator, Comparison::Equal | Comparison::In);
    if is_slice && !of.is_ordered() && !of.is_counter() {
        return Err(CqlError::invalid(format!(
            "Slice restrictions are not supported on {}",
            unordered(of, "duration columns")
        )));
    }
    Ok(())
}

/// The name of a type without an order, in messages; `plain` for types that contain no other types.
// Source: Cassandra 5.0, SingleColumnRelation.newSliceRestriction
pub(super) fn unordered(of: &CqlType, plain: &'static str) -> &'static str {
    match of.unfrozen() {
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) => "collections containing durations",
        CqlType::Tuple(_) => "tuples containing durations",
        CqlType::UserDefined(_) => "UDTs containing durations",
        _ => plain,
    }
}

pub(super) fn is_slice(operator: Comparison) -> bool {
    matches!(
        operator,
        Comparison::Less
            | Comparison::LessOrEqual
            | Comparison::Greater
            | Comparison::GreaterOrEqual
    )
}

fn check_tuple_operator(relation: &Relation) -> Result<(), CqlError> {
    match relation.operator {
        Comparison::Equal
        | Comparison::In
        | Comparison::Less
        | Comparison::LessOrEqual
        | Comparison::Greater
        | Comparison::GreaterOrEqual => Ok(()),
        operator => Err(CqlError::invalid(format!(
            "{} cannot be used for multi-column relations: {}",
            names::operator(operator),
            names::relation(relation)
        ))),
    }
}

/// `(c) = (1)` and `(c) IN ((1))` as `c = 1`.
// Source: Cassandra 5.0, MultiColumnRelation.newEQRestriction and newINRestriction
fn single_value(relation: &Relation) -> Option<Relation> {
    let tuple = match (&relation.right, relation.operator) {
        (Right::Term(tuple), Comparison::Equal) => tuple,
        (Right::Terms(tuples), Comparison::In) if tuples.len() == 1 => &tuples[0],
        _ => return None,
    };
    let Term::Tuple(terms) = tuple else { return None };
    let [term] = &terms[..] else { return None };
    let right = Right::Term(term.clone());
    Some(Relation { left: relation.left.clone(), operator: Comparison::Equal, right })
}

/// The content type of a collection; an error if CONTAINS does not apply.
fn contained<'t>(column: &Column, of: &'t CqlType) -> Result<&'t CqlType, CqlError> {
    match of.unfrozen() {
        CqlType::List(item) | CqlType::Set(item) | CqlType::Map(_, item) => Ok(item),
        _ => Err(CqlError::invalid(format!(
            "Cannot use CONTAINS on non-collection column {}",
            column.name
        ))),
    }
}

fn one(
    right: &Right,
    of: &CqlType,
    name: &str,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Choices, CqlError> {
    let Right::Term(term) = right else {
        return Err(CqlError::invalid(format!("IN is not possible for {name}")));
    };
    Ok(Choices::One(planner.term(table, term, of, name)?))
}

/// The values on the right side of a comparison of a whole column.
pub(super) fn choices(
    right: &Right,
    operator: Comparison,
    of: &CqlType,
    name: &str,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Choices, CqlError> {
    match right {
        Right::Nothing => Err(CqlError::invalid(format!("{name} is compared with nothing"))),
        Right::Term(term) if operator == Comparison::In => {
            let list = CqlType::List(Box::new(of.clone()));
            Ok(Choices::List(planner.term(table, term, &list, &format!("in({name})"))?))
        }
        Right::Term(term) => Ok(Choices::One(planner.term(table, term, of, name)?)),
        // Source: Cassandra 5.0, SingleColumnRelation.newINRestriction
        Right::Terms(terms) if terms.len() == 1 => {
            Ok(Choices::One(planner.term(table, &terms[0], of, name)?))
        }
        Right::Terms(terms) => {
            let values = terms.iter().map(|term| planner.term(table, term, of, name));
            Ok(Choices::Several(values.collect::<Result<_, _>>()?))
        }
    }
}

fn tuple_choices(
    relation: &Relation,
    columns: &[Column],
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Choices, CqlError> {
    let parts = columns.iter().map(|column| column.column_type.clone().frozen()).collect();
    let of = CqlType::Tuple(parts);
    let joined: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let joined = joined.join(",");
    let mut tuple = |term: &Term| -> Result<Expression, CqlError> {
        let Term::Tuple(terms) = term else {
            return planner.term(table, term, &of, &format!("({joined})"));
        };
        if terms.len() != columns.len() {
            return Err(CqlError::invalid(format!(
                "Expected {} elements in value tuple, but got {}: {}",
                columns.len(),
                terms.len(),
                names::term(&Term::Tuple(terms.clone()))
            )));
        }
        let pairs = terms.iter().zip(columns);
        let parts = pairs.map(|(term, column)| planner.value(table, term, column));
        Ok(Expression::Parts { parts: parts.collect::<Result<_, _>>()?, of: of.clone() })
    };
    match &relation.right {
        Right::Nothing => Err(CqlError::invalid("A tuple is compared with nothing")),
        Right::Term(term) if relation.operator == Comparison::In => {
            let list = CqlType::List(Box::new(of.clone()));
            Ok(Choices::List(planner.term(table, term, &list, &format!("in({joined})"))?))
        }
        Right::Term(term) => Ok(Choices::One(tuple(term)?)),
        Right::Terms(terms) if terms.len() == 1 => Ok(Choices::One(tuple(&terms[0])?)),
        Right::Terms(terms) => {
            Ok(Choices::Several(terms.iter().map(tuple).collect::<Result<_, _>>()?))
        }
    }
}
