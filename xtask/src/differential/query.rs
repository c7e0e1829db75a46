//! Random restrictions and random SELECTs.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::schema::{Column, Role, TABLE, Table, Times};
use super::term::Term;
use super::types::Type;

fn equals(random: &mut StdRng, column: &Column) -> String {
    format!("{} = {}", column.name, column.marked(random))
}

fn partition(random: &mut StdRng, table: &Table) -> Vec<String> {
    table.partition().map(|column| equals(random, column)).collect()
}

/// The key of one row, or of its partition.
pub(super) fn row(random: &mut StdRng, table: &Table, is_partition: bool) -> String {
    let mut relations = partition(random, table);
    if !is_partition {
        relations.extend(table.clustering().map(|column| equals(random, column)));
    }
    relations.join(" AND ")
}

/// Keys of some rows, by IN.
pub(super) fn rows(random: &mut StdRng, table: &Table) -> String {
    let columns: Vec<&Column> = table.columns.iter().filter(|column| column.is_key()).collect();
    let chosen = random.random_range(0..columns.len());
    let mut relations = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        if at == chosen {
            let values = values(random, column);
            relations.push(format!("{} IN {values}", column.name));
        } else {
            relations.push(equals(random, column));
        }
    }
    relations.join(" AND ")
}

/// The values of IN, including brackets: they may be sent as one value or separately.
fn values(random: &mut StdRng, column: &Column) -> String {
    let count = random.random_range(1..4);
    let terms: Vec<Term> = (0..count).map(|_| column.term(random)).collect();
    if random.random_bool(0.3) {
        return Term::items(['(', ')'], &terms).marked();
    }
    let marked: Vec<String> = terms.iter().map(Term::marked).collect();
    format!("({})", marked.join(", "))
}

/// A part of one partition.
pub(super) fn range(random: &mut StdRng, table: &Table) -> String {
    let mut relations = partition(random, table);
    relations.extend(slice(random, table));
    relations.join(" AND ")
}

/// Relations on the first clustering columns.
fn slice(random: &mut StdRng, table: &Table) -> Vec<String> {
    let columns: Vec<&Column> = table.clustering().collect();
    if columns.is_empty() {
        return Vec::new();
    }
    let given = random.random_range(0..columns.len());
    let mut relations: Vec<String> =
        columns[..given].iter().map(|column| equals(random, column)).collect();
    let rest = &columns[given..];
    if rest.len() > 1 && random.random_bool(0.3) {
        let count = random.random_range(2..=rest.len());
        relations.extend(tuple_slice(random, &rest[..count]));
        return relations;
    }
    let name = &rest[0].name;
    let value = rest[0].marked(random);
    match random.random_range(0..6) {
        0 => relations.push(format!("{name} = {value}")),
        1 => relations.push(format!("{name} IN {}", values(random, rest[0]))),
        2 => relations.push(format!("{name} >= {value}")),
        3 => relations.push(format!("{name} < {value}")),
        _ => {
            let [lower, upper] =
                [[">", ">="], ["<", "<="]].map(|operators| *operators.choose(random).expect("two"));
            relations.push(format!("{name} {lower} {value}"));
            relations.push(format!("{name} {upper} {}", rest[0].marked(random)));
        }
    }
    relations
}

fn tuple_slice(random: &mut StdRng, columns: &[&Column]) -> Vec<String> {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let names = names.join(", ");
    let (first, second) = (tuple(random, columns), tuple(random, columns));
    let few = &columns[..1];
    match random.random_range(0..6) {
        0 => vec![format!("({names}) = {first}")],
        1 => vec![format!("({names}) IN ({first}, {second})")],
        2 => vec![format!("({names}) > {first}")],
        3 => vec![format!("({names}) <= {first}")],
        4 => vec![format!("({names}) >= {first}"), format!("({names}) < {second}")],
        _ => vec![
            format!("({names}) > {first}"),
            format!("({}) <= ({})", few[0].name, few[0].marked(random)),
        ],
    }
}

/// Values of several columns, which may be sent as one value or separately.
fn tuple(random: &mut StdRng, columns: &[&Column]) -> String {
    let terms: Vec<Term> = columns.iter().map(|column| column.term(random)).collect();
    if random.random_bool(0.4) {
        let parts: Vec<Option<Term>> = terms.into_iter().map(Some).collect();
        return Term::tuple(&parts, parts.len()).marked();
    }
    let marked: Vec<String> = terms.iter().map(Term::marked).collect();
    format!("({})", marked.join(", "))
}

/// Selects the whole table.
pub(super) fn everything(table: &Table) -> String {
    let mut columns: Vec<String> = table.columns.iter().map(|it| it.name.clone()).collect();
    if table.times == Times::Client && !table.is_counter {
        for column in table.values() {
            columns.push(format!("writetime({})", column.name));
            columns.push(format!("ttl({})", column.name));
        }
    }
    format!("SELECT {} FROM {TABLE}", columns.join(", "))
}

/// Any SELECT.
pub(super) fn select(random: &mut StdRng, table: &Table) -> String {
    let (mut relations, is_one_partition) = relations(random, table);
    let filters = filters(random, table);
    // With an index it may be unnecessary.
    let is_filtering = !filters.is_empty() && (table.indexes.is_empty() || random.random_bool(0.5));
    relations.extend(filters);
    relations.shuffle(random);
    let is_distinct = !table.rows_expire && random.random_bool(0.06);
    let (mut group, mut order) = (String::new(), String::new());
    if is_distinct {
        let names = table.partition().map(|it| &it.name);
        let names: Vec<&String> = names
            .chain(table.statics().filter(|_| random.random_bool(0.5)).map(|it| &it.name))
            .collect();
        let names: Vec<&str> = names.iter().map(|it| it.as_str()).collect();
        let place = if relations.is_empty() { String::new() } else { where_of(&relations) };
        let filtering = if is_filtering { " ALLOW FILTERING" } else { "" };
        return format!(
            "SELECT DISTINCT {} FROM {TABLE}{place}{}{filtering}",
            names.join(", "),
            limit(random)
        );
    }
    let is_grouped = !table.rows_expire && random.random_bool(0.12);
    if is_grouped {
        let keys: Vec<&str> =
            table.columns.iter().filter(|it| it.is_key()).map(|it| it.name.as_str()).collect();
        let least = if random.random_bool(0.1) { 1 } else { table.partition().count() };
        group = format!(" GROUP BY {}", keys[..random.random_range(least..=keys.len())].join(", "));
    }
    if is_one_partition && random.random_bool(0.3) {
        order = order_of(random, table);
    }
    let selection = selection(random, table, is_grouped);
    let place = where_of(&relations);
    let per_partition = if random.random_bool(0.1) {
        format!(" PER PARTITION LIMIT {}", Term::int(random.random_range(1..3)).marked())
    } else {
        String::new()
    };
    let filtering = if is_filtering || random.random_bool(0.05) { " ALLOW FILTERING" } else { "" };
    let limit = limit(random);
    format!("SELECT {selection} FROM {TABLE}{place}{group}{order}{per_partition}{limit}{filtering}")
}

fn where_of(relations: &[String]) -> String {
    if relations.is_empty() { String::new() } else { format!(" WHERE {}", relations.join(" AND ")) }
}

fn limit(random: &mut StdRng) -> String {
    if random.random_bool(0.2) {
        format!(" LIMIT {}", Term::int(random.random_range(1..6)).marked())
    } else {
        String::new()
    }
}

fn order_of(random: &mut StdRng, table: &Table) -> String {
    let columns: Vec<&Column> = table.clustering().collect();
    if columns.is_empty() {
        return String::new();
    }
    let is_reversed = random.random_bool(0.6);
    let count = random.random_range(1..=columns.len());
    let parts: Vec<String> = columns[..count]
        .iter()
        .map(|column| {
            let is_descending = column.role == Role::Clustering { is_descending: true };
            let is_wrong = random.random_bool(0.03);
            let direction = if is_descending ^ is_reversed ^ is_wrong { "DESC" } else { "ASC" };
            format!("{} {direction}", column.name)
        })
        .collect();
    format!(" ORDER BY {}", parts.join(", "))
}

/// Comparison operators of a range of the ring.
const BOUNDS: [&[&str]; 5] = [&[">", "<="], &[">=", "<"], &[">"], &["<="], &["="]];
/// Positions on the ring, including its ends.
const TOKENS: [&str; 5] = [
    "-9223372036854775808",
    "-4611686018427387904",
    "0",
    "4611686018427387904",
    "9223372036854775807",
];

/// Relations on the key, and whether they select a single partition.
fn relations(random: &mut StdRng, table: &Table) -> (Vec<String>, bool) {
    let keys: Vec<&Column> = table.partition().collect();
    match random.random_range(0..10) {
        0 | 1 => (Vec::new(), false),
        2 => {
            let names: Vec<&str> = keys.iter().map(|column| column.name.as_str()).collect();
            let names = names.join(", ");
            let operators = *BOUNDS.choose(random).expect("five");
            let bounds = operators.iter().map(|operator| {
                let token = if random.random_bool(0.3) {
                    Term::native("bigint", TOKENS.choose(random).expect("some")).marked()
                } else {
                    let values: Vec<String> =
                        keys.iter().map(|column| column.marked(random)).collect();
                    format!("token({})", values.join(", "))
                };
                format!("token({names}) {operator} {token}")
            });
            (bounds.collect(), false)
        }
        3 => {
            let mut relations: Vec<String> = Vec::new();
            let chosen = random.random_range(0..keys.len());
            for (at, column) in keys.iter().enumerate() {
                relations.push(if at == chosen {
                    format!("{} IN {}", column.name, values(random, column))
                } else {
                    equals(random, column)
                });
            }
            if random.random_bool(0.5) {
                relations.extend(slice(random, table));
            }
            (relations, false)
        }
        4 => (row(random, table, false).split(" AND ").map(str::to_owned).collect(), true),
        5 | 6 => (partition(random, table), true),
        _ => {
            let mut relations = partition(random, table);
            relations.extend(slice(random, table));
            (relations, true)
        }
    }
}

/// Relations that require reading every row.
fn filters(random: &mut StdRng, table: &Table) -> Vec<String> {
    if let Some(target) = table.indexes.choose(random).filter(|_| random.random_bool(0.4)) {
        let column = table.columns.iter().find(|column| target.contains(&column.name));
        return column.map(|column| look_up(random, column)).into_iter().collect();
    }
    if random.random_bool(0.75) {
        return Vec::new();
    }
    let columns: Vec<&Column> = table.columns.iter().collect();
    let count = random.random_range(1..3);
    let mut filters = Vec::new();
    for column in columns.choose_multiple(random, count) {
        let operator = *["=", "=", ">", ">=", "<", "<="].choose(random).expect("six");
        let name = &column.name;
        filters.push(match &column.of {
            // In sets and in keys of maps, Cassandra also finds deleted entries.
            Type::Set(_) => continue,
            Type::List(of) => format!("{name} CONTAINS {}", of.marked(random)),
            Type::Map(key, of) => match random.random_range(0..2) {
                0 => format!("{name}[{}] = {}", key.marked(random), of.marked(random)),
                _ => format!("{name} CONTAINS {}", of.marked(random)),
            },
            _ if random.random_bool(0.1) => format!("{name} IN {}", values(random, column)),
            _ => format!("{name} {operator} {}", column.marked(random)),
        });
    }
    filters
}

/// A relation that an index may answer.
fn look_up(random: &mut StdRng, column: &Column) -> String {
    let name = &column.name;
    match &column.of {
        Type::List(of) | Type::Set(of) => format!("{name} CONTAINS {}", of.marked(random)),
        Type::Map(key, of) => match random.random_range(0..3) {
            0 => format!("{name} CONTAINS KEY {}", key.marked(random)),
            1 => format!("{name}[{}] = {}", key.marked(random), of.marked(random)),
            _ => format!("{name} CONTAINS {}", of.marked(random)),
        },
        _ => equals(random, column),
    }
}

fn selection(random: &mut StdRng, table: &Table, is_grouped: bool) -> String {
    if table.rows_expire {
        return (*["*", "JSON *"].choose(random).expect("two")).to_owned();
    }
    match random.random_range(0..10) {
        0..3 if !is_grouped => "*".to_owned(),
        3 if !is_grouped => "JSON *".to_owned(),
        4 => "count(*)".to_owned(),
        _ => {
            let count = random.random_range(1..5);
            let parts: Vec<String> = (0..count).map(|_| selector(random, table)).collect();
            parts.join(", ")
        }
    }
}

fn selector(random: &mut StdRng, table: &Table) -> String {
    let column = table.columns.choose(random).expect("a table has columns");
    let name = &column.name;
    if random.random_bool(0.35) {
        return name.clone();
    }
    let has_time = table.times == Times::Client && !table.is_counter && !column.is_key();
    match random.random_range(0..12) {
        0 if has_time => return format!("writetime({name})"),
        1 if has_time => return format!("ttl({name})"),
        2 if has_time => return format!("maxwritetime({name})"),
        3 => return format!("to_json({name})"),
        4 => return format!("count({name})"),
        // For these Cassandra returns a special type.
        5 | 6 if column.of.is_native("timeuuid") => {}
        5 => return format!("min({name})"),
        6 => return format!("max({name})"),
        7 => return format!("cast({name} as text)"),
        8 => {
            let names: Vec<&str> = table.partition().map(|it| it.name.as_str()).collect();
            return format!("token({})", names.join(", "));
        }
        _ => {}
    }
    // In the name of the result a hash map determines the order of fields.
    let is_plain = |of: &Type| !of.has(&|of| matches!(of, Type::User(_)));
    match &column.of {
        Type::Map(key, _) if is_plain(key) && random.random_bool(0.5) => {
            format!("{name}[{}]", key.literal(random))
        }
        Type::Map(..) if random.random_bool(0.5) => {
            let function = *["map_keys", "map_values"].choose(random).expect("two");
            format!("{function}({name})")
        }
        Type::Set(of) if is_plain(of) && random.random_bool(0.4) => {
            format!("{name}[{}]", of.literal(random))
        }
        Type::List(_) | Type::Set(_) | Type::Map(..) => {
            let function = *["collection_count", "collection_min", "mask_default"]
                .choose(random)
                .expect("three");
            format!("{function}({name})")
        }
        Type::User(fields) => {
            format!("{name}.{}", fields.choose(random).expect("a type has fields").0)
        }
        of if of.is_number() => match random.random_range(0..7) {
            0 => format!("sum({name})"),
            1 => format!("avg({name})"),
            2 => format!("{name} + 1"),
            3 => format!("-{name}"),
            4 => format!("abs({name})"),
            5 => {
                let to =
                    *["int", "bigint", "double", "varint", "decimal"].choose(random).expect("five");
                format!("cast({name} as {to})")
            }
            _ => format!("{name} * {name}"),
        },
        Type::Native(native) => {
            let functions: &[&str] = match native.name {
                "text" => &["mask_inner($, 1, 1)", "text_as_blob($)", "mask_replace($, 'x')"],
                "blob" => &["mask_null($)", "$"],
                // `to_date` of a time before 1970 is another day in Cassandra.
                "timestamp" => &["to_unix_timestamp($)", "$ + 1d", "min_timeuuid($)"],
                "date" => &["to_timestamp($)", "to_unix_timestamp($)"],
                "timeuuid" => &["to_date($)", "to_timestamp($)", "cast($ as timestamp)"],
                "inet" | "uuid" | "boolean" => &["mask_default($)", "mask_null($)"],
                _ => &["$"],
            };
            functions.choose(random).expect("there are some").replace('$', name)
        }
        _ => name.clone(),
    }
}
