//! Error bodies in the dialect of hosted Redis.

use wire::resp::write_json_text;

/// Appends `{"error":text}`.
pub(super) fn write_error(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"error\":");
    write_json_text(text.as_bytes(), out);
    out.push(b'}');
}
