//! Functions of many rows.

use crate::cql::error::CqlError;
use crate::cql::type_name::Native;
use crate::cql::types::CqlType;

/// What is computed of the rows of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aggregate {
    /// `count(*)`
    CountRows,
    /// `count(column)`: values that are not null.
    Count,
    Sum(Native),
    Average(Native),
    Min(CqlType),
    Max(CqlType),
}

/// An aggregate on its way through a group.
#[derive(Debug, Clone)]
pub struct Fold {
    aggregate: Aggregate,
    count: i64,
}

impl Aggregate {
    pub fn count_rows() -> Self {
        Aggregate::CountRows
    }

    /// The type of the result.
    pub fn returns(&self) -> CqlType {
        match self {
            Aggregate::CountRows | Aggregate::Count => CqlType::BIGINT,
            Aggregate::Sum(native) | Aggregate::Average(native) => CqlType::Native(*native),
            Aggregate::Min(of) | Aggregate::Max(of) => of.clone(),
        }
    }

    /// Before the first row of a group.
    pub fn start(&self) -> Fold {
        Fold { aggregate: self.clone(), count: 0 }
    }
}

impl Fold {
    /// Adds the value of one row; None is null. `count(*)` counts nulls too.
    pub fn add(&mut self, value: Option<&[u8]>) -> Result<(), CqlError> {
        if value.is_some() || self.aggregate == Aggregate::CountRows {
            self.count += 1;
        }
        Ok(())
    }

    /// Behind the last row of a group: None is null.
    pub fn finish(self) -> Result<Option<Vec<u8>>, CqlError> {
        Ok(Some(self.count.to_be_bytes().to_vec()))
    }
}
