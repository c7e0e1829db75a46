//! Random writes and deletions compared with a model that knows only one rule: the latest write
//! wins.

use proptest::prelude::*;

use super::harness::{Asked, Server};

/// One statement; each has its own timestamp.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Insert {
        p: i32,
        c: i32,
        v: Option<i32>,
        ttl: u32,
    },
    Update {
        p: i32,
        c: i32,
        v: Option<i32>,
        ttl: u32,
    },
    DeleteCell {
        p: i32,
        c: i32,
    },
    DeleteRow {
        p: i32,
        c: i32,
    },
    /// From the first key, up to but excluding the second.
    DeleteRange {
        p: i32,
        from: i32,
        to: i32,
    },
    DeletePartition {
        p: i32,
    },
}

/// The parameters of a SELECT.
#[derive(Debug, Clone)]
struct Question {
    p: Option<Vec<i32>>,
    /// First value included, second excluded.
    c: Option<(i32, i32)>,
    one_of: Option<Vec<i32>>,
    v_above: Option<i32>,
    is_reversed: bool,
    limit: Option<u32>,
    page_size: i32,
}

const PARTITIONS: std::ops::Range<i32> = 0..3;
const ROWS: std::ops::Range<i32> = -3..4;
/// Delay of the queries in seconds: some TTLs have elapsed by then.
const LATER: u32 = 50;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = || prop_oneof![3 => (0..9_i32).prop_map(Some), 1 => Just(None)];
    let ttl = || prop_oneof![Just(0_u32), Just(10), Just(100)];
    let step = prop_oneof![
        4 => (PARTITIONS, ROWS, value(), ttl()).prop_map(|(p, c, v, ttl)| Step::Insert { p, c, v, ttl }),
        4 => (PARTITIONS, ROWS, value(), ttl()).prop_map(|(p, c, v, ttl)| Step::Update { p, c, v, ttl }),
        1 => (PARTITIONS, ROWS).prop_map(|(p, c)| Step::DeleteCell { p, c }),
        1 => (PARTITIONS, ROWS).prop_map(|(p, c)| Step::DeleteRow { p, c }),
        1 => (PARTITIONS, ROWS, ROWS).prop_map(|(p, from, to)| Step::DeleteRange { p, from, to }),
        1 => PARTITIONS.prop_map(|p| Step::DeletePartition { p }),
    ];
    proptest::collection::vec(step, 1..40)
}

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let partitions = proptest::option::of(proptest::collection::vec(PARTITIONS, 1..4));
    let range = proptest::option::of((ROWS, ROWS));
    let one_of = proptest::option::of(proptest::collection::vec(ROWS, 1..4));
    let limit = proptest::option::of(1..6_u32);
    let rest = (proptest::option::of(0..9_i32), any::<bool>(), limit, 1..5_i32);
    let question = (partitions, range, one_of, rest);
    let question = question.prop_map(|(p, c, one_of, (v_above, turned, limit, page_size))| {
        let is_one = p.as_ref().is_some_and(|keys| keys.len() == 1);
        let one_of = one_of.filter(|_| c.is_none());
        Question { is_reversed: turned && is_one, p, c, one_of, v_above, limit, page_size }
    });
    proptest::collection::vec(question, 1..6)
}

impl Step {
    pub(crate) fn text(&self, timestamp: usize) -> String {
        let shown = |v: &Option<i32>| v.map_or_else(|| "null".to_owned(), |v| v.to_string());
        match self {
            Step::Insert { p, c, v, ttl } => format!(
                "INSERT INTO t (p, c, v) VALUES ({p}, {c}, {}) USING TTL {ttl} AND TIMESTAMP {timestamp}",
                shown(v)
            ),
            Step::Update { p, c, v, ttl } => format!(
                "UPDATE t USING TTL {ttl} AND TIMESTAMP {timestamp} SET v = {} WHERE p = {p} AND c = {c}",
                shown(v)
            ),
            Step::DeleteCell { p, c } => {
                format!("DELETE v FROM t USING TIMESTAMP {timestamp} WHERE p = {p} AND c = {c}")
            }
            Step::DeleteRow { p, c } => {
                format!("DELETE FROM t USING TIMESTAMP {timestamp} WHERE p = {p} AND c = {c}")
            }
            Step::DeleteRange { p, from, to } => format!(
                "DELETE FROM t USING TIMESTAMP {timestamp} WHERE p = {p} AND c >= {from} AND c < {to}"
            ),
            Step::DeletePartition { p } => {
                format!("DELETE FROM t USING TIMESTAMP {timestamp} WHERE p = {p}")
            }
        }
    }

    /// Whether the step deletes a row, whatever its content.
    fn covers(&self, p: i32, c: i32) -> bool {
        match *self {
            Step::DeleteRow { p: own, c: row } => (own, row) == (p, c),
            Step::DeleteRange { p: own, from, to } => own == p && (from..to).contains(&c),
            Step::DeletePartition { p: own } => own == p,
            _ => false,
        }
    }
}

fn lasts(ttl: u32) -> bool {
    ttl == 0 || ttl > LATER
}

/// A row that exists.
pub(crate) struct Row {
    pub(crate) v: Option<i32>,
}

/// `None`: there is no row. Timestamps are positions in the list.
pub(crate) fn row(steps: &[(usize, Step)], p: i32, c: i32) -> Option<Row> {
    let deleted = steps.iter().filter(|(_, step)| step.covers(p, c)).map(|(at, _)| *at).max();
    let newer = || steps.iter().filter(|(at, _)| deleted.is_none_or(|deleted| *at > deleted));
    let liveness = newer().filter_map(|(at, step)| match step {
        Step::Insert { p: own, c: row, ttl, .. } if (*own, *row) == (p, c) => Some((*at, *ttl)),
        _ => None,
    });
    let cell = newer().filter_map(|(at, step)| match step {
        Step::Insert { p: own, c: row, v, ttl } | Step::Update { p: own, c: row, v, ttl }
            if (*own, *row) == (p, c) =>
        {
            Some((*at, *v, *ttl))
        }
        Step::DeleteCell { p: own, c: row } if (*own, *row) == (p, c) => Some((*at, None, 0)),
        _ => None,
    });
    let is_inserted = liveness.max().is_some_and(|(_, ttl)| lasts(ttl));
    let value = cell.max_by_key(|(at, ..)| *at);
    let value = value.filter(|(_, _, ttl)| lasts(*ttl)).and_then(|(_, v, _)| v);
    (is_inserted || value.is_some()).then_some(Row { v: value })
}

impl Question {
    fn text(&self) -> String {
        let list = |list: &[i32]| list.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        let mut conditions = Vec::new();
        if let Some(p) = &self.p {
            conditions.push(format!("p IN ({})", list(p)));
        }
        if let Some((from, to)) = self.c {
            conditions.push(format!("c >= {from} AND c < {to}"));
        }
        if let Some(one_of) = &self.one_of {
            conditions.push(format!("c IN ({})", list(one_of)));
        }
        if let Some(above) = self.v_above {
            conditions.push(format!("v > {above}"));
        }
        let mut text = "SELECT p, c, v FROM t".to_owned();
        if !conditions.is_empty() {
            text += " WHERE ";
            text += &conditions.join(" AND ");
        }
        if self.is_reversed {
            text += " ORDER BY c DESC";
        }
        if let Some(limit) = self.limit {
            text += " LIMIT ";
            text += &limit.to_string();
        }
        text + " ALLOW FILTERING"
    }

    fn expected(&self, steps: &[(usize, Step)]) -> Vec<String> {
        let mut found = Vec::new();
        // In token order, which is also the order of the expected values.
        for p in [1, 0, 2] {
            let mut rows: Vec<i32> = ROWS.collect();
            if self.is_reversed {
                rows.reverse();
            }
            for c in rows {
                let is_asked = self.p.as_ref().is_none_or(|keys| keys.contains(&p))
                    && self.c.is_none_or(|(from, to)| (from..to).contains(&c))
                    && self.one_of.as_ref().is_none_or(|one_of| one_of.contains(&c));
                let Some(Row { v }) = row(steps, p, c).filter(|_| is_asked) else { continue };
                if self.v_above.is_none_or(|above| v.is_some_and(|v| v > above)) {
                    let shown = v.map_or_else(|| "null".to_owned(), |v| v.to_string());
                    found.push((p, format!("{p} | {c} | {shown}")));
                }
            }
        }
        if self.p.is_some() {
            found.sort_by_key(|(p, _)| *p);
        }
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        found.into_iter().map(|(_, row)| row).take(limit).collect()
    }
}

fn pages(server: &mut Server, question: &Question) -> Vec<String> {
    let mut rows = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let page_size = Some(question.page_size);
        let asked = Asked { page_size, paging_state: state.as_deref(), ..Asked::default() };
        let page = server.ask(&question.text(), asked).unwrap();
        rows.extend(page.rows);
        state = page.paging_state;
        if state.is_none() {
            return rows;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn writes_in_any_order_produce_the_same_rows(
        steps in steps(),
        seed in any::<u64>(),
        questions in questions(),
    ) {
        let mut order: Vec<(usize, Step)> = steps.into_iter().enumerate().collect();
        // Timestamps are positions in the list; the order of arrival is different.
        order.sort_by_key(|(at, _)| (*at as u64).wrapping_mul(seed | 1));
        let mut server = Server::new();
        server.check("> CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))");
        for (timestamp, step) in &order {
            server.run(&step.text(*timestamp)).unwrap();
        }
        server.pass_seconds(u64::from(LATER));
        for question in &questions {
            let expected = question.expected(&order);
            let whole = server.run(&question.text()).unwrap().rows;
            prop_assert_eq!(&whole, &expected, "{}", question.text());
            prop_assert_eq!(&pages(&mut server, question), &expected, "{} page by page", question.text());
            server.turn_rows = 2;
            let in_pieces = server.run(&question.text()).unwrap().rows;
            prop_assert_eq!(&in_pieces, &expected, "{} in pieces", question.text());
            prop_assert_eq!(&pages(&mut server, question), &expected, "{} in pieces of pages", question.text());
            server.turn_rows = 0;
        }
    }
}
