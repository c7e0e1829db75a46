//! The accounts of memory round sizes as the allocator does.

use store::types::allocation_bytes;

#[test]
fn accounts_round_sizes_as_the_allocator_does() {
    let sizes = (1..=1 << 20).chain((20..=30).flat_map(|power| [1 << power, (1 << power) + 1]));
    for bytes in sizes {
        // SAFETY: computes a number.
        let taken_bytes = unsafe { libmimalloc_sys::mi_good_size(bytes) };
        assert_eq!(allocation_bytes(bytes), taken_bytes, "of {bytes} bytes");
    }
    assert_eq!(allocation_bytes(0), 0);
}
