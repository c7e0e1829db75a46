//! Random statements that change a table.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::query;
use super::schema::{Column, Role, TABLE, Table, Times};
use super::term::Term;
use super::types::Type;

/// Timestamps of writes: few, so that they are often equal.
const TIMESTAMPS: std::ops::Range<i64> = 1..60;
/// TTLs of cells, in statements: each statement runs a second after the one before.
const LIVES: std::ops::Range<i32> = 1..60;

/// Any statement that changes data.
pub(super) fn change(random: &mut StdRng, table: &Table) -> String {
    if random.random_bool(0.12) {
        return batch(random, table);
    }
    let is_conditional = table.times == Times::Server && random.random_bool(0.35);
    single(random, table, is_conditional, true)
}

fn single(random: &mut StdRng, table: &Table, is_conditional: bool, has_time: bool) -> String {
    if table.is_counter {
        return count(random, table);
    }
    match random.random_range(0..20) {
        0..8 => insert(random, table, is_conditional, has_time),
        8 | 9 => insert_json(random, table, is_conditional, has_time),
        10..16 => update(random, table, is_conditional, has_time),
        _ => delete(random, table, is_conditional, has_time),
    }
}

fn batch(random: &mut StdRng, table: &Table) -> String {
    let kind = match (table.is_counter, random.random_bool(0.5)) {
        (true, _) => "COUNTER ",
        (false, true) => "UNLOGGED ",
        (false, false) => "",
    };
    let is_timed = table.times == Times::Client && !table.is_counter && random.random_bool(0.4);
    let using = if is_timed {
        format!("USING TIMESTAMP {} ", Term::bigint(random.random_range(TIMESTAMPS)).marked())
    } else {
        String::new()
    };
    let is_conditional = table.times == Times::Server && random.random_bool(0.2);
    let count = random.random_range(1..5);
    let statements: Vec<String> =
        (0..count).map(|at| single(random, table, is_conditional && at == 0, !is_timed)).collect();
    format!("BEGIN {kind}BATCH {using}{}; APPLY BATCH", statements.join("; "))
}

/// `USING ...`, or nothing.
fn using(random: &mut StdRng, table: &Table, has_time: bool, has_life: bool) -> String {
    let mut parts = Vec::new();
    if has_time && table.times == Times::Client && random.random_bool(0.6) {
        parts.push(format!("TIMESTAMP {}", Term::bigint(random.random_range(TIMESTAMPS)).marked()));
    }
    let has_life = has_life && table.cells_expire() && random.random_bool(0.2);
    if has_life {
        parts.push(format!("TTL {}", Term::int(random.random_range(LIVES)).marked()));
    }
    parts.shuffle(random);
    if parts.is_empty() { String::new() } else { format!(" USING {}", parts.join(" AND ")) }
}

fn insert(random: &mut StdRng, table: &Table, is_conditional: bool, has_time: bool) -> String {
    let is_static = random.random_bool(0.1) && table.statics().next().is_some();
    let mut columns: Vec<&Column> = table.partition().collect();
    if !is_static {
        columns.extend(table.clustering());
    }
    for column in table.values() {
        let is_taken = match column.role {
            Role::Static => random.random_bool(0.4),
            _ => !is_static && random.random_bool(0.7),
        };
        columns.extend(is_taken.then_some(column));
    }
    columns.shuffle(random);
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let values: Vec<String> = columns
        .iter()
        .map(|column| {
            if !column.is_key() && random.random_bool(0.1) {
                return "null".to_owned();
            }
            column.marked(random)
        })
        .collect();
    let condition = if is_conditional { " IF NOT EXISTS" } else { "" };
    let using = using(random, table, has_time, table.rows_expire);
    let (names, values) = (names.join(", "), values.join(", "));
    format!("INSERT INTO {TABLE} ({names}) VALUES ({values}){condition}{using}")
}

fn insert_json(random: &mut StdRng, table: &Table, is_conditional: bool, has_time: bool) -> String {
    let mut members = Vec::new();
    for column in &table.columns {
        if column.is_key() || random.random_bool(0.6) {
            let name = match column.name.strip_prefix('"') {
                Some(quoted) => format!("\"\\\"{}\\\"\"", quoted.trim_end_matches('"')),
                None => format!("\"{}\"", column.name),
            };
            let value = if random.random_bool(0.1) && !column.is_key() {
                "null".to_owned()
            } else {
                column.of.json(random)
            };
            members.push(format!("{name}: {value}"));
        }
    }
    let rest = *["", "", " DEFAULT UNSET", " DEFAULT NULL"].choose(random).expect("four");
    let condition = if is_conditional { " IF NOT EXISTS" } else { "" };
    let using = using(random, table, has_time, table.rows_expire);
    let json = format!("{{{}}}", members.join(", "));
    let text = format!("'{}'", json.replace('\'', "''"));
    let document = Term { text, bytes: json.into_bytes() }.marked();
    format!("INSERT INTO {TABLE} JSON {document}{rest}{condition}{using}")
}

fn update(random: &mut StdRng, table: &Table, is_conditional: bool, has_time: bool) -> String {
    let mut columns = table.values();
    columns.shuffle(random);
    columns.truncate(random.random_range(1..4));
    // An update of static columns alone selects no row.
    let is_static = !columns.is_empty() && columns.iter().all(|it| it.role == Role::Static);
    let assignments: Vec<String> =
        columns.iter().map(|column| assignment(random, column)).collect();
    if assignments.is_empty() {
        return insert(random, table, is_conditional, has_time);
    }
    let is_partition = is_static && random.random_bool(0.9);
    let mut place = query::row(random, table, is_partition);
    if !is_conditional && random.random_bool(0.1) {
        place = query::rows(random, table);
    }
    let using = using(random, table, has_time, true);
    let condition = if is_conditional { condition(random, table) } else { String::new() };
    format!("UPDATE {TABLE}{using} SET {} WHERE {place}{condition}", assignments.join(", "))
}

fn assignment(random: &mut StdRng, column: &Column) -> String {
    let name = &column.name;
    if random.random_bool(0.08) {
        return format!("{name} = null");
    }
    let whole = format!("{name} = {}", column.marked(random));
    if random.random_bool(0.25) {
        return whole;
    }
    let value = column.of.marked(random);
    match &column.of {
        Type::List(of) => match random.random_range(0..5) {
            0 | 1 => format!("{name} = {name} + {value}"),
            2 => format!("{name} = {value} + {name}"),
            3 => format!("{name} = {name} - {value}"),
            _ => format!("{name}[{}] = {}", index(random), of.marked(random)),
        },
        Type::Set(_) => match random.random_range(0..3) {
            0 => format!("{name} = {name} - {value}"),
            1 => format!("{name} += {value}"),
            _ => format!("{name} = {name} + {value}"),
        },
        Type::Map(key, of) => match random.random_range(0..4) {
            0 => {
                let keys = Type::Set(key.clone()).marked(random);
                format!("{name} = {name} - {keys}")
            }
            1 => format!("{name}[{}] = null", key.marked(random)),
            2 => format!("{name}[{}] = {}", key.marked(random), of.marked(random)),
            _ => format!("{name} = {name} + {value}"),
        },
        Type::User(fields) => {
            let (field, of) = fields.choose(random).expect("a type has fields");
            format!("{name}.{field} = {}", of.marked(random))
        }
        _ => whole,
    }
}

/// An index of a list.
fn index(random: &mut StdRng) -> String {
    Term::int(random.random_range(0..3)).marked()
}

fn delete(random: &mut StdRng, table: &Table, is_conditional: bool, has_time: bool) -> String {
    let mut targets = Vec::new();
    let mut is_static = false;
    if random.random_bool(0.5) {
        let mut columns = table.values();
        columns.shuffle(random);
        columns.truncate(random.random_range(1..3));
        is_static = !columns.is_empty() && columns.iter().all(|it| it.role == Role::Static);
        targets.extend(columns.iter().map(|column| target(random, column)));
    }
    let place = match random.random_range(0..10) {
        _ if is_conditional => query::row(random, table, is_static),
        0..5 => query::row(random, table, is_static),
        5 | 6 => query::rows(random, table),
        7 => query::row(random, table, true),
        _ if targets.is_empty() => query::range(random, table),
        _ => query::row(random, table, is_static),
    };
    let using = using(random, table, has_time, false);
    let condition = if is_conditional { condition(random, table) } else { String::new() };
    let targets = targets.join(", ");
    let space = if targets.is_empty() { "" } else { " " };
    format!("DELETE {targets}{space}FROM {TABLE}{using} WHERE {place}{condition}")
}

fn target(random: &mut StdRng, column: &Column) -> String {
    let name = &column.name;
    if random.random_bool(0.4) {
        return name.clone();
    }
    match &column.of {
        Type::List(_) => format!("{name}[{}]", index(random)),
        Type::Set(of) => format!("{name}[{}]", of.marked(random)),
        Type::Map(key, _) => format!("{name}[{}]", key.marked(random)),
        Type::User(fields) => {
            format!("{name}.{}", fields.choose(random).expect("a type has fields").0)
        }
        _ => name.clone(),
    }
}

/// ` IF ...`.
fn condition(random: &mut StdRng, table: &Table) -> String {
    let columns = table.values();
    let Some(column) = columns.choose(random).filter(|_| random.random_bool(0.7)) else {
        return " IF EXISTS".to_owned();
    };
    let mut conditions = vec![comparison(random, column)];
    if random.random_bool(0.2) {
        let other = columns.choose(random).expect("there is one");
        conditions.push(comparison(random, other));
    }
    format!(" IF {}", conditions.join(" AND "))
}

fn comparison(random: &mut StdRng, column: &Column) -> String {
    let name = &column.name;
    if random.random_bool(0.1) {
        // Other comparisons with null are rejected, but in Cassandra only if a hash map iterates
        // over them first.
        return format!("{name} {} null", if random.random_bool(0.5) { "=" } else { "!=" });
    }
    let operator = *["=", "=", "!=", "<", "<=", ">", ">="].choose(random).expect("seven");
    let value = column.marked(random);
    let is_part = random.random_bool(0.5);
    match &column.of {
        Type::List(of) if is_part => {
            format!("{name}[{}] {operator} {}", index(random), of.marked(random))
        }
        Type::Map(key, of) if is_part => {
            format!("{name}[{}] {operator} {}", key.marked(random), of.marked(random))
        }
        Type::User(fields) if is_part => {
            let (field, of) = fields.choose(random).expect("a type has fields");
            format!("{name}.{field} {operator} {}", of.marked(random))
        }
        of if random.random_bool(0.2) => {
            format!("{name} IN ({}, {})", of.marked(random), of.marked(random))
        }
        _ => format!("{name} {operator} {value}"),
    }
}

fn count(random: &mut StdRng, table: &Table) -> String {
    let columns = table.values();
    let column = columns.choose(random).expect("a table that counts has counters");
    let (name, is_static) = (&column.name, column.role == Role::Static);
    let sign = if random.random_bool(0.6) { '+' } else { '-' };
    let by = *["1", "0", "7", "-3", "9223372036854775807"].choose(random).expect("five");
    let by = Term::native("counter", by).marked();
    let place = query::row(random, table, is_static);
    format!("UPDATE {TABLE} SET {name} = {name} {sign} {by} WHERE {place}")
}
