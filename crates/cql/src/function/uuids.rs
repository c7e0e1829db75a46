//! `uuid()`

use super::{Call, Function, Shape, Signature};
use crate::error::CqlError;
use crate::type_name::Native;

pub(super) static FUNCTIONS: &[Function] = &[Function {
    name: "uuid",
    older_name: None,
    shape: Shape::Fixed(&[Signature { arguments: &[], returns: Native::Uuid }]),
    doc: "A new random UUID of version 4.",
    run: |call: &Call<'_>| -> Result<Option<Vec<u8>>, CqlError> {
        let random = call.moment.random().to_be_bytes();
        Ok(Some(uuid::Builder::from_random_bytes(random).into_uuid().as_bytes().to_vec()))
    },
}];

#[cfg(test)]
mod tests {
    use crate::expression::tests::evaluated;

    #[test]
    fn uuids_are_random() {
        let made = uuid::Uuid::parse_str(&evaluated("uuid()", "uuid")).unwrap();
        assert_eq!(made.get_version_num(), 4);
    }
}
