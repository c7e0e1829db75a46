//! Known differences, explained in `docs/migrate/cassandra.md`, "Differences from Cassandra".

use crate::cql::bound::PREPARED;

/// Failures inside Cassandra: paging states that it created itself, groups without rows, a value
/// that it decodes as another type, a number that it cannot convert.
const FAILURES: [&str; 2] =
    ["error 000a Invalid value for the paging state", "error 0000 java.lang."];
/// The prefix of an unintended error.
const JAVA: &str = "error 0000 java.lang.IllegalArgumentException: ";
/// A scan with groups sometimes fails like this.
const READ_FAILURE: &str = "error 1300 ";
/// Lists of functions have the order of a hash map.
const SIGNATURES: &str = "(known type signatures:";
/// A hash map determines which of two invalid columns is named.
const JSON_MISTAKE: &str = "error 2200 Error decoding JSON value for ";
/// The parser's error for malformed JSON; for an empty document it reports length 0.
const NO_JSON: [&str; 2] = [
    "error 2200 Could not decode JSON string as a map: ",
    "error 2200 Got null for INSERT JSON values",
];
/// It converts an empty value to null, and then fails to read its number.
const EMPTY_NUMBERS: [&str; 2] =
    ["error 0000 java.lang.NullPointerException", "error 0000 java.lang.IndexOutOfBoundsException"];
const REFUSED_NUMBER: &str = "error 2200 Invalid ";
/// A hash map determines which of two conditions is evaluated first.
const BAD_COMPARISON: &str = "error 2200 Invalid comparison with ";
/// Queries that only Myriad answers by an index. Without an index it must reject them, too.
const INDEX_REFUSALS: [&str; 3] = [
    "ORDER BY with 2ndary indexes is not supported",
    "Select on indexed columns and with IN clause for the PRIMARY KEY",
    "cannot be restricted (preceding column",
];
/// Of two errors in restrictions either may be reported.
const RESTRICTED_TWICE: [&str; 5] = [
    "cannot be restricted as preceding column",
    "cannot be restricted by more than one relation",
    "More than one restriction was found",
    "Cannot execute this query as it might involve data filtering",
    "SELECT DISTINCT with WHERE clause only supports restriction by partition key",
];

/// Whether two answers to a statement count as equal.
pub(super) fn is_same(
    statement: &str,
    has_index: bool,
    myriad: &[String],
    other: &[String],
) -> bool {
    let ([myriad, ours], [other, theirs]) = (parted(myriad), parted(other));
    is_same_preparation(statement, ours, theirs)
        && is_same_answer(statement, has_index, myriad, other)
}

/// The answer to a statement, and its description when it was prepared.
pub(super) fn parted(lines: &[String]) -> [&[String]; 2] {
    let end = lines.iter().position(|line| line.starts_with(PREPARED)).unwrap_or(lines.len());
    let (answer, prepared) = lines.split_at(end);
    [answer, prepared]
}

/// For a rejected statement, the time of the rejection is not compared: when it is prepared, or
/// later.
fn is_same_preparation(statement: &str, ours: &[String], theirs: &[String]) -> bool {
    if ours == theirs || ours.is_empty() || theirs.is_empty() {
        return true;
    }
    let columns = |lines: &[String]| -> Vec<String> {
        let parts = lines.iter().map(|line| line.split_once(": ").unwrap_or_default().1);
        parts.map(without_casts).collect()
    };
    statement.contains("cast(") && columns(ours) == columns(theirs)
}

fn is_same_answer(statement: &str, has_index: bool, myriad: &[String], other: &[String]) -> bool {
    let first = |lines: &[String]| lines.first().cloned().unwrap_or_default();
    let (ours, theirs) = (first(myriad), first(other));
    myriad == other
        || statement.starts_with("SELECT") && is_same_read(statement, has_index, myriad, other)
        || is_same_refusal(statement, &ours, &theirs)
        || is_judged_in_another_order(statement, myriad, other)
}

fn is_same_read(statement: &str, has_index: bool, myriad: &[String], other: &[String]) -> bool {
    let says = |word: &str| other.iter().any(|line| line.starts_with(word));
    let is_refused = |words: &str| {
        let mut lines = other.iter();
        lines.any(|line| line.starts_with("error 2200 ") && line.contains(words))
    };
    if FAILURES.iter().any(|word| says(word)) {
        return true;
    }
    let may_read = has_index || myriad.iter().any(|line| line.starts_with("error 2200 "));
    if may_read && INDEX_REFUSALS.iter().any(|it| is_refused(it)) {
        return true;
    }
    if statement.contains(" GROUP BY ") && says(READ_FAILURE) {
        return true;
    }
    // Cassandra returns deleted entries.
    if statement.contains(" CONTAINS KEY ") && !statement.contains('(') {
        let mut theirs = other.iter();
        if myriad.iter().all(|line| theirs.any(|other| other == line)) {
            return true;
        }
    }
    // For a column in descending order Cassandra does not recognize that it already has the
    // requested type.
    if !statement.contains("cast(") {
        return false;
    }
    if other.iter().any(|line| line.contains("Invalid call to function system.cast_as_")) {
        return true;
    }
    match (myriad, other) {
        ([ours, our_rows @ ..], [theirs, their_rows @ ..]) => {
            our_rows == their_rows && without_casts(ours) == without_casts(theirs)
        }
        _ => false,
    }
}

/// The columns of a result, with casts of columns to their own types removed.
fn without_casts(columns: &str) -> String {
    let shown = columns.split(" | ").map(|column| {
        let parts = column.strip_prefix("cast(").and_then(|rest| rest.split_once(" as "));
        let Some((name, types)) = parts else { return column.to_owned() };
        match types.split_once(") ") {
            Some((to, of)) if to == of => format!("{name} {of}"),
            _ => column.to_owned(),
        }
    });
    shown.collect::<Vec<_>>().join(" | ")
}

fn is_same_refusal(statement: &str, ours: &str, theirs: &str) -> bool {
    let both = |is_such: &dyn Fn(&str) -> bool| is_such(ours) && is_such(theirs);
    let is_error = |line: &str| line.starts_with("error ");
    if both(&|line| line.starts_with(JSON_MISTAKE))
        || both(&|line| NO_JSON.iter().any(|words| line.starts_with(words)))
    {
        return true;
    }
    if ours.starts_with(REFUSED_NUMBER) && EMPTY_NUMBERS.iter().any(|it| theirs.starts_with(it)) {
        return true;
    }
    if let (Some(ours), Some(theirs)) =
        (ours.strip_prefix("error 2200 "), theirs.strip_prefix(JAVA))
        && theirs.starts_with(ours)
    {
        return true;
    }
    // Cassandra parses documents when it plans: one error in a document, one in another statement.
    if statement.starts_with("BEGIN ") && statement.contains(" JSON ") && both(&is_error) {
        return true;
    }
    if both(&|line| RESTRICTED_TWICE.iter().any(|words| line.contains(words))) {
        return true;
    }
    let head = |line: &str| line.split(SIGNATURES).next().map(str::to_owned);
    if ours.contains(SIGNATURES) && head(ours) == head(theirs) {
        return true;
    }
    // Columns of tuples have the order of a hash set.
    theirs.contains(" ,c") && ours.starts_with("error 2200")
}

/// One condition does not hold, and another cannot be evaluated.
fn is_judged_in_another_order(statement: &str, myriad: &[String], other: &[String]) -> bool {
    let is_refused = |lines: &[String]| {
        lines.first().is_some_and(|line| line.starts_with("[applied]"))
            && lines.get(1).is_some_and(|line| line.starts_with("false"))
    };
    let fails =
        |lines: &[String]| lines.first().is_some_and(|line| line.starts_with(BAD_COMPARISON));
    statement.contains(" IF ")
        && (is_refused(myriad) && fails(other) || fails(myriad) && is_refused(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_differences_are_accepted() {
        let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
        for (statement, myriad, other, expected) in [
            ("SELECT a FROM t", "a int\n1", "a int\n1", true),
            ("SELECT a FROM t", "a int\n1", "a int\n2", false),
            ("SELECT a FROM t", "a int\n1", "error 0000 java.lang.ClassCastException", true),
            (
                "INSERT INTO t (a) VALUES ({})",
                "void",
                "error 0000 java.lang.ClassCastException",
                false,
            ),
            (
                "BEGIN BATCH UPDATE t SET a = 1 WHERE k IN (1, 2) IF a = 2; APPLY BATCH",
                "error 2200 Batch with conditions cannot span multiple partitions",
                "error 0000 java.lang.IllegalArgumentException: Batch with conditions cannot span \
                 multiple partitions (you cannot use IN on the partition key)",
                true,
            ),
            ("SELECT a FROM t WHERE m CONTAINS KEY 1", "a int", "a int\n1", true),
            ("SELECT a FROM t WHERE m CONTAINS KEY 1", "a int\n1", "a int", false),
            ("SELECT a FROM t", "a int", "error 1300 Operation failed", false),
            ("SELECT a FROM t GROUP BY a", "a int", "error 1300 Operation failed", true),
            ("SELECT cast(a as int) FROM t", "a int\n1", "cast(a as int) int\n1", true),
            ("SELECT cast(a as int) FROM t", "a int\n1", "cast(a as int) int\n2", false),
            (
                "UPDATE t SET a = 1 WHERE k = 1 IF a = 1 AND l < []",
                "[applied] boolean | a int\nfalse | 2",
                "error 2200 Invalid comparison with an empty list for operator \"<\"",
                true,
            ),
            (
                "UPDATE t SET a = 1 WHERE k = 1 IF l < []",
                "[applied] boolean\ntrue",
                "error 2200 Invalid comparison with an empty list for operator \"<\"",
                false,
            ),
            (
                "SELECT a FROM t WHERE p = ?",
                "a int\nprepared markers: p int",
                "a int\nprepared markers: p text",
                false,
            ),
            (
                "SELECT a FROM t WHERE p = ?",
                "a int\nprepared markers: p int",
                "a int\n1\nprepared markers: p int",
                false,
            ),
            (
                "SELECT a FROM t WHERE p = ?",
                "error 2200 no\nprepared markers: p int",
                "error 2200 no",
                true,
            ),
            (
                "SELECT cast(a as int) FROM t",
                "a int\nprepared result: a int",
                "cast(a as int) int\nprepared result: cast(a as int) int",
                true,
            ),
            (
                "INSERT INTO t JSON ?",
                "error 2200 Could not decode JSON string as a map: EOF. (String was: )",
                "error 2200 Could not decode JSON string as a map: No content. (String was: )",
                true,
            ),
            (
                "UPDATE t SET n = n + ? WHERE k = 1",
                "error 2200 Invalid null value for counter increment",
                "error 0000 java.lang.IndexOutOfBoundsException",
                true,
            ),
            (
                "UPDATE t SET n = n + ? WHERE k = 1",
                "void",
                "error 0000 java.lang.IndexOutOfBoundsException",
                false,
            ),
            (
                "BEGIN BATCH INSERT INTO t JSON '{}'; INSERT INTO t (a) VALUES (1); APPLY BATCH",
                "error 2200 Some clustering keys are missing: c",
                "error 2200 Error decoding JSON value for c: no",
                true,
            ),
        ] {
            let found = is_same(statement, false, &lines(myriad), &lines(other));
            assert_eq!(found, expected, "{statement}: {myriad} / {other}");
        }
    }

    #[test]
    fn results_of_an_index_are_known_differences_only_with_an_index() {
        let statement = "SELECT a FROM t WHERE p = 1 AND d = 1 ALLOW FILTERING";
        let refused = "error 2200 PRIMARY KEY column \"d\" cannot be restricted (preceding column \"c\" \
                       is not restricted)";
        for (has_index, myriad, expected) in [
            (true, "a int", true),
            (false, "a int", false),
            (false, "error 2200 Another mistake", true),
        ] {
            let found = is_same(statement, has_index, &[myriad.to_owned()], &[refused.to_owned()]);
            assert_eq!(found, expected, "{has_index}: {myriad}");
        }
    }
}
