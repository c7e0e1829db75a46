//! Differences that are known, and why: `docs/cql.md`, "Differences from Cassandra".

/// What Cassandra answers a page's state with that it has made itself, of groups without rows.
const BROKEN_PAGE: &str = "error 000a Invalid value for the paging state";
/// Lists of functions come as a hash map gives them.
const SIGNATURES: &str = "(known type signatures:";
/// Which of two columns with a mistake is named is chosen by a hash map.
const JSON_MISTAKE: &str = "error 2200 Error decoding JSON value for ";

/// Whether two answers to a statement count as the same.
pub(super) fn is_same(statement: &str, myriad: &[String], other: &[String]) -> bool {
    if myriad == other || other.iter().any(|line| line == BROKEN_PAGE) {
        return true;
    }
    let first = |lines: &[String]| lines.first().cloned().unwrap_or_default();
    let (ours, theirs) = (first(myriad), first(other));
    if ours.starts_with(JSON_MISTAKE) && theirs.starts_with(JSON_MISTAKE) {
        return true;
    }
    let head = |line: &str| line.split(SIGNATURES).next().map(str::to_owned);
    if ours.contains(SIGNATURES) && head(&ours) == head(&theirs) {
        return true;
    }
    // Columns of tuples come as a hash set gives them.
    if theirs.contains(" ,c") && ours.starts_with("error 2200") {
        return true;
    }
    // Of a column in descending order it does not see that its type is the one that is asked for.
    if statement.contains("cast(") && theirs.contains("Invalid call to function system.cast_as_") {
        return !ours.starts_with("error");
    }
    // Asked for no rows at all it does not look at the key.
    ours == "error 2200 Key may not be empty" && other.len() == 1
}
