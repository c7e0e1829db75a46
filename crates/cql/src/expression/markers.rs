//! The values that a client must send with a statement.

use crate::types::CqlType;

/// One value that a client must send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The name after the colon; for `?`, the name of the receiver.
    pub name: String,
    /// The column or the position that receives the value.
    pub(crate) receiver: String,
    pub of: CqlType,
}

/// The markers of a statement, each of which gets its type from its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Markers {
    names: Vec<Option<String>>,
    found: Vec<Option<Marker>>,
}

impl Markers {
    /// `names` are the markers found by the parser.
    pub(crate) fn new(names: Vec<Option<String>>) -> Self {
        let found = vec![None; names.len()];
        Markers { names, found }
    }

    /// Sets the type of the marker. A name after a colon takes precedence over the receiver's.
    pub(crate) fn set(&mut self, index: usize, receiver: &str, of: &CqlType) {
        let name = self.names[index].as_deref().unwrap_or(receiver).to_owned();
        self.found[index] = Some(Marker { name, receiver: receiver.to_owned(), of: of.clone() });
    }

    /// All markers in order. None if one of them has no type, which is a bug in the planner of the
    /// statement.
    pub(crate) fn finish(self) -> Option<Vec<Marker>> {
        self.found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_named_after_their_receivers() {
        let mut markers = Markers::new(vec![None, Some("b".into())]);
        markers.set(0, "a", &CqlType::INT);
        assert_eq!(markers.clone().finish(), None);
        markers.set(1, "a", &CqlType::TEXT);
        let found = markers.finish().unwrap();
        let marker = |name: &str, of| Marker { name: name.into(), receiver: "a".into(), of };
        assert_eq!(found, [marker("a", CqlType::INT), marker("b", CqlType::TEXT)]);
    }
}
