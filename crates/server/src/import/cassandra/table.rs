//! The tables to copy, and the statements that read and write them.
//!
//! A table with static columns has two parts: its rows, and the static cells of its partitions. So
//! each static cell is read once, whatever the number of rows.

use std::fmt::Write as _;

/// How a column is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// One cell, such as numbers, tuples and everything frozen.
    Cell,
    List,
    Set,
    Map,
    /// A user-defined type with these fields, each of which is a cell.
    Fields(Vec<String>),
    Counter,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) shape: Shape,
}

/// Rows of a table, or static cells of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Rows,
    Statics,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) keyspace: String,
    pub(super) table: String,
    /// The identity of the table in the target: another one if the table was dropped meanwhile.
    pub(super) target_id: String,
    pub(super) content: Content,
    /// Columns of the partition key, then those of the clustering key if this is about rows.
    pub(super) keys: Vec<Column>,
    pub(super) partition_columns: usize,
    pub(super) values: Vec<Column>,
}

/// What an UPDATE assigns to: a column, or a field of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) column: usize,
    pub(super) field: Option<usize>,
}

/// The statements that write a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Keys, then all values that are neither lists nor counters.
    Insert,
    /// All slots; collections are extended.
    Update,
    /// Appends to the list of this number among the values.
    Append(usize),
    /// Deletes the list of this number among the values.
    Clear(usize),
    /// Adds to all counters.
    Count,
}

impl Part {
    /// The name in reports and messages.
    pub(super) fn name(&self) -> String {
        let suffix = if self.content == Content::Statics { " (static)" } else { "" };
        format!("{}.{}{suffix}", self.keyspace, self.table)
    }

    /// The name in the stored progress: that of a table which was dropped does not count.
    pub(super) fn progress_name(&self) -> String {
        format!("{} {}", self.name(), self.target_id)
    }

    /// Whether the times of single items must be known.
    pub(super) fn has_collections(&self) -> bool {
        let is_whole = |shape: &Shape| matches!(shape, Shape::Cell | Shape::Counter);
        self.values.iter().any(|column| !is_whole(&column.shape))
    }

    pub(super) fn has_counters(&self) -> bool {
        self.values.iter().any(|column| column.shape == Shape::Counter)
    }

    /// Numbers of the columns whose content in the target must be known before they are written.
    pub(super) fn read_columns(&self) -> Vec<usize> {
        let is_read = |shape: &Shape| matches!(shape, Shape::List | Shape::Counter);
        self.numbers(is_read)
    }

    pub(super) fn inserted_columns(&self) -> Vec<usize> {
        self.numbers(|shape| !matches!(shape, Shape::List | Shape::Counter))
    }

    fn numbers(&self, is_chosen: impl Fn(&Shape) -> bool) -> Vec<usize> {
        let columns = self.values.iter().enumerate();
        columns.filter(|(_, column)| is_chosen(&column.shape)).map(|(number, _)| number).collect()
    }

    pub(super) fn slots(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        for column in self.inserted_columns() {
            match &self.values[column].shape {
                Shape::Fields(fields) => {
                    slots.extend((0..fields.len()).map(|at| Slot { column, field: Some(at) }));
                }
                _ => slots.push(Slot { column, field: None }),
            }
        }
        slots
    }

    /// The kinds of statements that a row of this part can require.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        if self.has_counters() {
            return vec![Kind::Count];
        }
        let has_slots = !self.slots().is_empty();
        let mut kinds = Vec::new();
        // Static cells need no row. Without a value, an INSERT would lack the clustering key.
        if has_slots || self.content == Content::Rows {
            kinds.push(Kind::Insert);
        }
        if has_slots {
            kinds.push(Kind::Update);
        }
        for list in self.read_columns() {
            kinds.extend([Kind::Append(list), Kind::Clear(list)]);
        }
        kinds
    }

    /// Reads the rows of a range of tokens. Columns of the result: the token, the keys, and each
    /// value, followed by its times of writing and its TTLs if it is not a counter.
    pub(super) fn select_range(&self) -> String {
        let token = self.token();
        let mut text = match self.content {
            Content::Rows => format!("SELECT {token}"),
            Content::Statics => format!("SELECT DISTINCT {token}"),
        };
        self.keys.iter().for_each(|key| put(&mut text, format_args!(", {}", quoted(&key.name))));
        for column in 0..self.values.len() {
            put(&mut text, format_args!(", {}", self.selectors(column)));
        }
        let from = self.from();
        put(&mut text, format_args!(" FROM {from} WHERE {token} > ? AND {token} <= ?"));
        text
    }

    /// Reads one row. Columns of the result: as those of a range.
    pub(super) fn select_row(&self) -> String {
        let mut text = format!("SELECT {}", self.token());
        self.keys.iter().for_each(|key| put(&mut text, format_args!(", {}", quoted(&key.name))));
        for column in 0..self.values.len() {
            put(&mut text, format_args!(", {}", self.selectors(column)));
        }
        put(&mut text, format_args!(" FROM {} WHERE {} LIMIT 1", self.from(), self.condition()));
        text
    }

    /// Reads those values of a row that must be known before they are written.
    pub(super) fn select_current(&self) -> String {
        let selectors: Vec<String> =
            self.read_columns().into_iter().map(|column| self.selectors(column)).collect();
        let (from, condition) = (self.from(), self.condition());
        format!("SELECT {} FROM {from} WHERE {condition} LIMIT 1", selectors.join(", "))
    }

    /// Columns of the result for one value.
    pub(super) fn selected(&self, column: usize) -> usize {
        if self.values[column].shape == Shape::Counter { 1 } else { 3 }
    }

    fn selectors(&self, column: usize) -> String {
        let name = quoted(&self.values[column].name);
        if self.values[column].shape == Shape::Counter {
            return name;
        }
        format!("{name}, WRITETIME({name}), TTL({name})")
    }

    /// The text of a statement that writes. Its markers: [`Kind`] lists the values; the timestamp
    /// and the TTL are the last ones of INSERT, the first ones of the others, whose last ones are the
    /// keys.
    pub(super) fn write(&self, kind: Kind) -> String {
        let (table, condition) = (self.from(), self.condition());
        match kind {
            Kind::Insert => {
                let values = self.inserted_columns().into_iter().map(|at| &self.values[at]);
                let names: Vec<String> =
                    self.keys.iter().chain(values).map(|column| quoted(&column.name)).collect();
                let markers = vec!["?"; names.len()].join(", ");
                let names = names.join(", ");
                format!(
                    "INSERT INTO {table} ({names}) VALUES ({markers}) USING TIMESTAMP ? AND TTL ?"
                )
            }
            Kind::Update => {
                let assignments: Vec<String> =
                    self.slots().into_iter().map(|slot| self.assignment(slot)).collect();
                let assignments = assignments.join(", ");
                format!(
                    "UPDATE {table} USING TIMESTAMP ? AND TTL ? SET {assignments} WHERE {condition}"
                )
            }
            Kind::Append(list) => {
                let name = quoted(&self.values[list].name);
                format!(
                    "UPDATE {table} USING TIMESTAMP ? AND TTL ? SET {name} = {name} + ? \
                     WHERE {condition}"
                )
            }
            Kind::Clear(list) => {
                let name = quoted(&self.values[list].name);
                format!("DELETE {name} FROM {table} USING TIMESTAMP ? WHERE {condition}")
            }
            Kind::Count => {
                let added = |column: &Column| {
                    let name = quoted(&column.name);
                    format!("{name} = {name} + ?")
                };
                let assignments: Vec<String> = self.values.iter().map(added).collect();
                format!("UPDATE {table} SET {} WHERE {condition}", assignments.join(", "))
            }
        }
    }

    fn assignment(&self, slot: Slot) -> String {
        let column = &self.values[slot.column];
        let name = quoted(&column.name);
        match (&column.shape, slot.field) {
            (Shape::Fields(fields), Some(field)) => {
                format!("{name}.{} = ?", quoted(&fields[field]))
            }
            (Shape::Set | Shape::Map, _) => format!("{name} = {name} + ?"),
            _ => format!("{name} = ?"),
        }
    }

    fn from(&self) -> String {
        format!("{}.{}", quoted(&self.keyspace), quoted(&self.table))
    }

    fn token(&self) -> String {
        let keys = self.keys[..self.partition_columns].iter();
        let names: Vec<String> = keys.map(|key| quoted(&key.name)).collect();
        format!("TOKEN({})", names.join(", "))
    }

    fn condition(&self) -> String {
        let equal = |key: &Column| format!("{} = ?", quoted(&key.name));
        self.keys.iter().map(equal).collect::<Vec<_>>().join(" AND ")
    }
}

fn put(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("writing to a string does not fail");
}

/// A name as it is, whatever its letters.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn part(keys: &[&str], values: &[(&str, Shape)]) -> Part {
        let column = |name: &str, shape: Shape| Column { name: name.to_owned(), shape };
        Part {
            keyspace: "k".to_owned(),
            table: "t".to_owned(),
            target_id: "7f".to_owned(),
            content: Content::Rows,
            keys: keys.iter().map(|name| column(name, Shape::Cell)).collect(),
            partition_columns: 1,
            values: values.iter().map(|(name, shape)| column(name, shape.clone())).collect(),
        }
    }

    #[test]
    fn statements_name_all_columns() {
        let fields = Shape::Fields(vec!["street".to_owned()]);
        let part = part(
            &["id", "at"],
            &[("v", Shape::Cell), ("Tags", Shape::Set), ("log", Shape::List), ("home", fields)],
        );
        assert_eq!(
            part.select_current(),
            "SELECT \"log\", WRITETIME(\"log\"), TTL(\"log\") FROM \"k\".\"t\" \
             WHERE \"id\" = ? AND \"at\" = ? LIMIT 1"
        );
        assert_eq!(
            part.write(Kind::Insert),
            "INSERT INTO \"k\".\"t\" (\"id\", \"at\", \"v\", \"Tags\", \"home\") \
             VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
        );
        assert_eq!(
            part.write(Kind::Update),
            "UPDATE \"k\".\"t\" USING TIMESTAMP ? AND TTL ? SET \"v\" = ?, \
             \"Tags\" = \"Tags\" + ?, \"home\".\"street\" = ? WHERE \"id\" = ? AND \"at\" = ?"
        );
        assert_eq!(part.kinds(), [Kind::Insert, Kind::Update, Kind::Append(2), Kind::Clear(2)]);
    }

    #[test]
    fn every_statement_is_valid() {
        let fields = Shape::Fields(vec!["a\"b".to_owned()]);
        let shapes = [Shape::Cell, Shape::List, Shape::Set, Shape::Map, fields];
        let columns: Vec<(&str, Shape)> =
            ["a", "B", "c d", "from", "e"].into_iter().zip(shapes).collect();
        let counters = [("n", Shape::Counter), ("m", Shape::Counter)];
        for mut part in [part(&["k", "c"], &columns), part(&["k"], &[]), part(&["k"], &counters)] {
            let mut texts = vec![part.select_range(), part.select_row()];
            texts.extend(part.kinds().into_iter().map(|kind| part.write(kind)));
            if !part.read_columns().is_empty() {
                texts.push(part.select_current());
            }
            part.content = Content::Statics;
            texts.push(part.select_range());
            for text in texts {
                cql::statements::parse(&text).expect(&text);
            }
        }
    }

    #[test]
    fn static_lists_alone_are_not_inserted() {
        let mut part = part(&["k"], &[("l", Shape::List)]);
        assert_eq!(part.kinds(), [Kind::Insert, Kind::Append(0), Kind::Clear(0)]);
        part.content = Content::Statics;
        assert_eq!(part.kinds(), [Kind::Append(0), Kind::Clear(0)]);
    }
}
