//! What a client must send with a statement.

use crate::types::CqlType;

/// One value that a client must send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// As written behind a colon; of `?` the name of what it is for.
    pub name: String,
    /// The column or the place that it is for.
    pub(crate) receiver: String,
    pub of: CqlType,
}

/// The markers of a statement, each of which gets its type where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Markers {
    names: Vec<Option<String>>,
    found: Vec<Option<Marker>>,
}

impl Markers {
    /// `names` are those that the parser found.
    pub(crate) fn new(names: Vec<Option<String>>) -> Self {
        let found = vec![None; names.len()];
        Markers { names, found }
    }

    /// Gives the marker its type. A name behind a colon goes before that of the receiver.
    pub(crate) fn set(&mut self, index: usize, receiver: &str, of: &CqlType) {
        let name = self.names[index].as_deref().unwrap_or(receiver).to_owned();
        self.found[index] = Some(Marker { name, receiver: receiver.to_owned(), of: of.clone() });
    }

    /// All markers in their order. None if one of them stands where nothing gave it a type, which is
    /// a fault of whoever planned the statement.
    pub(crate) fn finish(self) -> Option<Vec<Marker>> {
        self.found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_have_the_name_of_what_they_are_for() {
        let mut markers = Markers::new(vec![None, Some("b".into())]);
        markers.set(0, "a", &CqlType::INT);
        assert_eq!(markers.clone().finish(), None);
        markers.set(1, "a", &CqlType::TEXT);
        let found = markers.finish().unwrap();
        let marker = |name: &str, of| Marker { name: name.into(), receiver: "a".into(), of };
        assert_eq!(found, [marker("a", CqlType::INT), marker("b", CqlType::TEXT)]);
    }
}
