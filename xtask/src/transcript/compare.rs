//! Compares a reply with the form that a transcript expects.

use crate::transcript::file::{Expected, Order};
use crate::transcript::notation::{Node, glob_matches};

/// True if `actual` matches `expected`.
///
/// Unordered children are matched first come, first served: with patterns among them, put the
/// narrower pattern first.
pub(crate) fn matches(expected: &Expected, actual: &Node) -> bool {
    matches_in(expected, actual, Order::AsWritten)
}

fn matches_in(expected: &Expected, actual: &Node, inherited: Order) -> bool {
    if expected.is_pattern {
        return glob_matches(&expected.head, &actual.flat());
    }
    if !heads_equal(&expected.head, &actual.head)
        || expected.children.len() != actual.children.len()
    {
        return false;
    }
    let order = if expected.order == Order::AsWritten { inherited } else { expected.order };
    let below = order.inherited();
    let group = group_size(&expected.head, order);
    if group == 0 {
        let mut both = expected.children.iter().zip(&actual.children);
        return both.all(|(expected, actual)| matches_in(expected, actual, below));
    }
    let mut left: Vec<&[Node]> = actual.children.chunks(group).collect();
    expected.children.chunks(group).all(|wanted| {
        let found = left.iter().position(|candidate| {
            candidate.len() == wanted.len()
                && wanted.iter().zip(*candidate).all(|(e, a)| matches_in(e, a, below))
        });
        found.map(|index| left.swap_remove(index)).is_some()
    })
}

/// How many children form a group when order is ignored; 0: order is significant.
fn group_size(head: &str, order: Order) -> usize {
    match (head.as_bytes().first(), order) {
        (Some(b'%'), _) => 2,
        (Some(b'~'), _) | (_, Order::Any | Order::AnyDeep) => 1,
        (_, Order::AnyPairs) => 2,
        (_, Order::AsWritten) => 0,
    }
}

/// Doubles are equal as numbers: servers may write the same one with more or fewer digits.
fn heads_equal(expected: &str, actual: &str) -> bool {
    let double = |head: &str| head.strip_prefix(',').and_then(|text| text.parse::<f64>().ok());
    match (double(expected), double(actual)) {
        (Some(expected), Some(actual)) => expected.total_cmp(&actual).is_eq(),
        _ => expected == actual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::file::{Reply, parse};

    fn check(expected: &str, actual: &[&str], equal: bool) {
        let transcript = parse(&format!("> A\n{expected}")).unwrap();
        let Reply::Tree(expected) = &transcript.steps[0].expectations[0].reply else { panic!() };
        assert_eq!(matches(expected, &tree(actual)), equal, "{expected:?} against {actual:?}");
    }

    /// Builds a reply's tree from indented lines.
    fn tree(lines: &[&str]) -> Node {
        let text = lines.iter().fold(String::from("> A\n"), |text, line| text + "< " + line + "\n");
        let transcript = parse(&text).unwrap();
        let Reply::Tree(expected) = &transcript.steps[0].expectations[0].reply else { panic!() };
        node(expected)
    }

    fn node(expected: &Expected) -> Node {
        let children = expected.children.iter().map(node).collect();
        Node { head: expected.head.clone(), children }
    }

    #[test]
    fn order_counts_unless_said_otherwise() {
        check("< *2\n<   :1\n<   :2\n", &["*2", "  :1", "  :2"], true);
        check("< *2\n<   :1\n<   :2\n", &["*2", "  :2", "  :1"], false);
        check("@unordered\n< *2\n<   :1\n<   :2\n", &["*2", "  :2", "  :1"], true);
        check("@unordered\n< *2\n<   :1\n<   :1\n", &["*2", "  :2", "  :1"], false);
        check("< ~2\n<   :1\n<   :2\n", &["~2", "  :2", "  :1"], true);
    }

    #[test]
    fn pairs_stay_together() {
        let expected = "@unordered pairs\n< *4\n<   :1\n<   :2\n<   :3\n<   :4\n";
        check(expected, &["*4", "  :3", "  :4", "  :1", "  :2"], true);
        check(expected, &["*4", "  :1", "  :4", "  :3", "  :2"], false);
    }

    #[test]
    fn deep_reaches_what_is_below() {
        let expected = "< *2\n<   $1 0\n<   *2\n<     :1\n<     :2\n";
        let actual = ["*2", "  $1 0", "  *2", "    :2", "    :1"];
        check(expected, &actual, false);
        check(&format!("@unordered deep\n{expected}"), &actual, true);
        check(&format!("@unordered\n{expected}"), &actual, false);
    }

    #[test]
    fn patterns_see_the_whole_element() {
        check("@match *2 $2* :{1..9}\n", &["*2", "  $1", "  :7"], false);
        check("@match *2 $1 ? :{1..9}\n", &["*2", "  $1 k", "  :7"], true);
        check("< *2\n<   $1 k\n<   @match :*\n", &["*2", "  $1 k", "  :7"], true);
    }

    #[test]
    fn doubles_are_numbers() {
        check("< ,0.1\n", &[",0.10000000000000001"], true);
        check("< ,0.1\n", &[",0.2"], false);
        check("< ,inf\n", &[",inf"], true);
    }
}
