//! The name that the user probably meant.

/// Longer names are not misspelled options, which are shorter than this.
const LETTERS_MAX: usize = 64;

/// The nearest of `names`, if one is near: with a third of the letters wrong it is no longer a
/// typo. Case is ignored, and `_` equals `-`.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = name.chars().take(LETTERS_MAX + 1).map(|letter| match letter {
        '_' => '-',
        other => other.to_ascii_lowercase(),
    });
    let name: Vec<char> = letters.collect();
    if name.len() > LETTERS_MAX {
        return None;
    }
    let near = (name.len() / 3).max(1);
    names
        .map(|known| (edit_distance(&name, known), known))
        .filter(|&(distance, _)| distance <= near)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

/// Letters to insert, remove, replace or swap with their neighbor to turn one text into the other.
/// O(product of the lengths).
// Source: optimal string alignment, the restricted Damerau-Levenshtein distance
fn edit_distance(left: &[char], right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.iter().enumerate() {
        let mut row = vec![at + 1];
        for (column, other) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != other);
            let mut least = replaced.min(last[column + 1] + 1).min(row[column] + 1);
            let is_swapped =
                at > 0 && column > 0 && *letter == right[column - 1] && left[at - 1] == *other;
            if is_swapped {
                least = least.min(before[column - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_near_and_other_words_are_not() {
        let names = ["workers", "work-us", "listen", "listen-tls", "dir"];
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(nearest(name, names.into_iter()), expected, "{name}");
        };
        check("wrokers", Some("workers"));
        check("WORKERS", Some("workers"));
        check("listen_tls", Some("listen-tls"));
        check("lisen", Some("listen"));
        // Swapped letters count as one mistake.
        check("dri", Some("dir"));
        check("x", None);
        check("maxmemory", None);
        check("", None);
        check(&"listen".repeat(1000), None);
    }
}
