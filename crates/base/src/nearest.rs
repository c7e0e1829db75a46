//! The name that a writer probably meant.

/// The nearest of `names`, if one is near: a third of the letters wrong is no longer a typo. Case, and `_`
/// for `-`, do not matter.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let near = (name.len() / 3).max(1);
    names
        .map(|known| (edit_distance(&name, known), known))
        .filter(|&(distance, _)| distance <= near)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

/// Letters to insert, remove or replace to make one text the other. O(product of the lengths): names are
/// short, and so is the part of a wrong name that is compared.
fn edit_distance(left: &str, right: &str) -> usize {
    const LETTERS_MAX: usize = 64;
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.chars().take(LETTERS_MAX).enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, &other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_near_and_other_words_are_not() {
        let names = ["workers", "work-us", "listen", "listen-tls"];
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(nearest(name, names.into_iter()), expected, "{name}");
        };
        check("wrokers", Some("workers"));
        check("WORKERS", Some("workers"));
        check("listen_tls", Some("listen-tls"));
        check("lisen", Some("listen"));
        check("x", None);
        check("maxmemory", None);
        check("", None);
        check(&"listen".repeat(1000), None);
    }
}
