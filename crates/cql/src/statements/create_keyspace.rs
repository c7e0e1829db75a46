//! `CREATE KEYSPACE [IF NOT EXISTS] name WITH options`

use super::Statement;
use super::options::{Options, parse_with};
use crate::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct CreateKeyspace {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    pub(crate) options: Options,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_not_exists = parser.if_not_exists();
    let name = parser.name()?;
    let options = parse_with(parser)?;
    Ok(Statement::CreateKeyspace(CreateKeyspace { name, if_not_exists, options }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::{OptionValue, parse};

    #[test]
    fn replication_is_a_map() {
        let parsed = parse(
            "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1} AND durable_writes = true",
        );
        let Ok(Statement::CreateKeyspace(found)) = parsed.map(|parsed| parsed.statement) else {
            panic!()
        };
        let class = ("class".to_owned(), "SimpleStrategy".to_owned());
        let factor = ("replication_factor".to_owned(), "1".to_owned());
        assert!(found.if_not_exists);
        assert_eq!(
            found.options,
            [
                ("replication".to_owned(), OptionValue::Map(vec![class, factor])),
                ("durable_writes".to_owned(), OptionValue::Text("true".into())),
            ]
        );
    }
}
