//! A heap block owned through one thin pointer: the only unsafe code of the store.
//!
//! A slot of the key table is six bytes wide, so that nine of them and their tags fill one cache
//! line; `Box<[u8]>` would take sixteen. The block carries its own length, its size and 24 bits that
//! may be written through a shared reference (the access clock of a key):
//!
//! ```text
//! offset 0  len    u32  bytes in use
//! offset 4  word   u32  relaxed atomic: 24 bits of the owner, 8 bits for the size of the block
//! offset 8  bytes
//! ```
//!
//! Blocks have the sizes that the allocator would round them to, so the size is the number of one of
//! [`SIZES`], and what rounding adds is room to grow.
//!
//! The lookup of a bucket reads one cache line. `benchmarks/record/diary.md` has all figures.
//! Oracle: the tests run every operation on a `Vec<u8>` as well, with fewer cases under miri.

#![expect(clippy::cast_ptr_alignment, reason = "blocks are allocated with ALIGN, that of u32")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const HEADER_BYTES: usize = 8;
const ALIGN: usize = 4;

/// mimalloc adds this to a request with an alignment before it rounds, unless the size of the block
/// is a power of two up to [`EXACT_BYTES_MAX`]: a request for a whole block would take the next
/// larger one.
///
/// Source: mimalloc 3.3, `src/alloc-aligned.c`, `mi_malloc_is_naturally_aligned`
const ALLOCATOR_BYTES: usize = ALIGN - 1;
const EXACT_BYTES_MAX: usize = 4096;

/// Longest content of a block. A key and a value of 512 MiB each, and the entry's own header, fit.
pub(crate) const BLOB_BYTES_MAX: usize = (u32::MAX as usize) - 64;

const _: () = assert!(HEADER_BYTES == 2 * size_of::<u32>(), "length and word");
const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGN), "each header word is aligned");
const _: () = assert!(BLOB_BYTES_MAX <= u32::MAX as usize - HEADER_BYTES, "lengths fit a u32");

/// Bits of the word that belong to the owner of the block.
const OWNER_BITS: u32 = 24;
const OWNER_MASK: u32 = (1 << OWNER_BITS) - 1;

/// Sizes up to this one are those of the allocator.
const SMALL_BYTES_MAX: usize = 512 << 10;
const SIZE_COUNT: usize = 161;
const _: () = assert!(SIZE_COUNT <= 1 << (u32::BITS - OWNER_BITS), "a size has eight bits");

/// The sizes of blocks: multiples of 16 up to 64 bytes, then four per doubling up to
/// [`SMALL_BYTES_MAX`], then eight.
static SIZES: [usize; SIZE_COUNT] = sizes();
const _: () = assert!(sizes()[SIZE_COUNT - 1] >= HEADER_BYTES + BLOB_BYTES_MAX + ALLOCATOR_BYTES);

/// What is requested for a block of each size.
static REQUESTS: [usize; SIZE_COUNT] = requests();

const fn requests() -> [usize; SIZE_COUNT] {
    let mut requests = sizes();
    let mut index = 1;
    while index < SIZE_COUNT {
        let size = requests[index];
        if !size.is_power_of_two() || size > EXACT_BYTES_MAX {
            requests[index] = size - ALLOCATOR_BYTES;
        }
        index += 1;
    }
    requests
}

const fn sizes() -> [usize; SIZE_COUNT] {
    let mut sizes = [0; SIZE_COUNT];
    let mut index = 1;
    while index < SIZE_COUNT {
        let before: usize = sizes[index - 1];
        sizes[index] = before
            + if before < 64 {
                16
            } else if before < SMALL_BYTES_MAX {
                (1 << before.ilog2()) / 4
            } else {
                (1 << before.ilog2()) / 8
            };
        index += 1;
    }
    sizes
}

/// The number of the smallest size that holds `bytes`.
#[inline]
fn size_index(bytes: usize) -> usize {
    debug_assert!(bytes > 0);
    if bytes <= 64 {
        return bytes.div_ceil(16);
    }
    let power = (bytes - 1).ilog2() as usize;
    if bytes <= SMALL_BYTES_MAX {
        return 4 + (power - 6) * 4 + ((bytes - 1 - (1 << power)) >> (power - 2)) + 1;
    }
    56 + (power - 19) * 8 + ((bytes - 1 - (1 << power)) >> (power - 3)) + 1
}

pub(crate) struct Blob {
    block: NonNull<u8>,
}

/// A borrowed block.
#[derive(Clone, Copy)]
pub(crate) struct BlobRef<'a> {
    block: NonNull<u8>,
    owner: PhantomData<&'a Blob>,
}

/// Bits of the address of a block.
const ADDRESS_BITS: u32 = 48;

/// Room for a block: its address, 0 for none.
///
/// Linux gives a program higher addresses only if it asks for them, on x86-64 and on arm64 alike.
#[derive(Default)]
#[repr(C, packed(2))]
pub(crate) struct Slot {
    address_low: u32,
    address_high: u16,
}

const _: () = assert!(size_of::<Slot>() * 8 == ADDRESS_BITS as usize);

impl Slot {
    #[inline]
    fn block(&self) -> Option<NonNull<u8>> {
        let address = self.address_low as usize | usize::from(self.address_high) << u32::BITS;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.block().is_none()
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<BlobRef<'_>> {
        self.block().map(|block| BlobRef { block, owner: PhantomData })
    }

    /// Puts a block into an empty slot.
    #[inline]
    pub(crate) fn fill(&mut self, blob: Blob) {
        debug_assert!(self.is_empty(), "a block is freed by its owner");
        let address = std::mem::ManuallyDrop::new(blob).block.as_ptr().expose_provenance();
        assert!(address >> ADDRESS_BITS == 0, "an address of a program has 48 bits");
        self.set_address(address);
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<Blob> {
        let block = self.block()?;
        self.set_address(0);
        Some(Blob { block })
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the 48 bits of an address")]
    fn set_address(&mut self, address: usize) {
        self.address_low = address as u32;
        self.address_high = (address >> u32::BITS) as u16;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.take());
    }
}

// SAFETY: a `Blob` owns its block exclusively, like a `Box<[u8]>`; the shared word is atomic.
unsafe impl Send for Blob {}
// SAFETY: `&Blob` allows only reads and access to the atomic word.
unsafe impl Sync for Blob {}

fn layout(size_index: usize) -> Layout {
    Layout::from_size_align(REQUESTS[size_index], ALIGN).expect("4 GiB fit isize")
}

fn size_index_of(len: usize) -> usize {
    assert!(len <= BLOB_BYTES_MAX, "a block holds at most BLOB_BYTES_MAX bytes");
    let bytes = HEADER_BYTES + len;
    let index = size_index(bytes);
    if bytes <= REQUESTS[index] { index } else { index + 1 }
}

fn size_word(size_index: usize) -> u32 {
    u32::try_from(size_index).expect("below SIZE_COUNT") << OWNER_BITS
}

impl Blob {
    /// A zeroed word and the concatenation of `parts`, in the smallest block that holds it.
    pub(crate) fn concat(parts: &[&[u8]]) -> Blob {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut blob = Blob::with_size(size_index_of(len));
        let mut at = HEADER_BYTES;
        for part in parts {
            // SAFETY: the parts' lengths sum up to at most the capacity just allocated, and a
            // fresh allocation overlaps nothing.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    part.as_ptr(),
                    blob.block.as_ptr().add(at),
                    part.len(),
                );
            }
            at += part.len();
        }
        debug_assert_eq!(at, HEADER_BYTES + len, "the parts fill the block");
        blob.set_len(len);
        blob
    }

    fn with_size(size_index: usize) -> Blob {
        let layout = layout(size_index);
        assert!(layout.size() > HEADER_BYTES, "a block holds its header");
        // SAFETY: the layout has a non-zero size, as just checked.
        let block = unsafe { alloc(layout) };
        let Some(block) = NonNull::new(block) else { handle_alloc_error(layout) };
        // SAFETY: both header words are inside the block, at offsets that are multiples of 4.
        unsafe {
            block.as_ptr().cast::<u32>().write(0);
            block.as_ptr().cast::<u32>().add(1).write(size_word(size_index));
        }
        Blob { block }
    }

    #[inline]
    pub(crate) fn as_ref(&self) -> BlobRef<'_> {
        BlobRef { block: self.block, owner: PhantomData }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.as_ref().len()
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        REQUESTS[self.as_ref().size_index()] - HEADER_BYTES
    }

    fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        let len = u32::try_from(len).expect("bounded by the capacity");
        // SAFETY: as in `len`; `&mut self` excludes readers.
        unsafe { self.block.as_ptr().cast::<u32>().write(len) }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.as_ref().bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr().add(HEADER_BYTES), self.len()) }
    }

    /// Shortens or lengthens the content; new bytes are zero. With `room`, a block that must grow
    /// gets twice the new length (bounded); without, the next size, which is at least an eighth
    /// larger.
    pub(crate) fn resize(&mut self, len: usize, room: bool) {
        const ROOM_BYTES_MAX: usize = 1 << 20;
        let old_len = self.len();
        if len > self.capacity() {
            let extra = if room { len.min(ROOM_BYTES_MAX) } else { 0 };
            self.reallocate(size_index_of((len + extra).min(BLOB_BYTES_MAX).max(len)));
        }
        debug_assert!(len <= self.capacity());
        if len > old_len {
            // SAFETY: `len <= capacity`, so the bytes between are inside the block.
            unsafe {
                self.block.as_ptr().add(HEADER_BYTES + old_len).write_bytes(0, len - old_len);
            }
        }
        self.set_len(len);
        if self.capacity() > 64 && len < self.capacity() / 4 {
            self.reallocate(size_index_of(len));
        }
    }

    fn reallocate(&mut self, size_index: usize) {
        let (old, new) = (layout(self.as_ref().size_index()), layout(size_index));
        debug_assert!(HEADER_BYTES + self.len() <= new.size(), "content is never cut off");
        // SAFETY: the block was allocated with `old`; `new` has a non-zero size.
        let block = unsafe { realloc(self.block.as_ptr(), old, new.size()) };
        let Some(block) = NonNull::new(block) else { handle_alloc_error(new) };
        self.block = block;
        let word = size_word(size_index) | self.as_ref().word();
        self.as_ref().atomic().store(word, Ordering::Relaxed);
    }
}

impl<'a> BlobRef<'a> {
    #[inline]
    pub(crate) fn len(self) -> usize {
        // SAFETY: the header was written by `with_size`.
        unsafe { self.block.as_ptr().cast::<u32>().read() as usize }
    }

    #[inline]
    fn size_index(self) -> usize {
        (self.atomic().load(Ordering::Relaxed) >> OWNER_BITS) as usize
    }

    #[inline]
    fn atomic(self) -> &'a AtomicU32 {
        // SAFETY: the word is inside the block, is aligned, is valid as long as the block's owner,
        // and is reached through this atomic only.
        unsafe { AtomicU32::from_ptr(self.block.as_ptr().cast::<u32>().add(1)) }
    }

    /// The owner's 24 bits.
    #[inline]
    pub(crate) fn word(self) -> u32 {
        self.atomic().load(Ordering::Relaxed) & OWNER_MASK
    }

    /// Sets the owner's 24 bits. The caller excludes other writers; only then the size is kept.
    #[inline]
    pub(crate) fn set_word(self, word: u32) {
        debug_assert!(word <= OWNER_MASK);
        let size = self.atomic().load(Ordering::Relaxed) & !OWNER_MASK;
        self.atomic().store(size | word, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        // SAFETY: the first `len` bytes after the header are initialised, and do not change while
        // the block is borrowed.
        unsafe {
            std::slice::from_raw_parts(
                self.block.as_ptr().add(HEADER_BYTES).cast_const(),
                self.len(),
            )
        }
    }

    /// Heap bytes of the block, header included.
    pub(crate) fn allocation_bytes(self) -> usize {
        SIZES[self.size_index()]
    }

    /// Prefetches the first two cache lines of the block.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch(self.block.as_ptr());
        prefetch(self.block.as_ptr().wrapping_add(LINE_BYTES));
    }

    /// Prefetches all lines, at most the first [`LINES_MAX`]. Reads the length of the block.
    #[inline]
    pub(crate) fn prefetch_all(self) {
        prefetch_block(self.block.as_ptr(), HEADER_BYTES + self.len());
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        // SAFETY: the block was allocated with this layout, and is not used afterwards.
        unsafe { dealloc(self.block.as_ptr(), layout(self.as_ref().size_index())) }
    }
}

impl Clone for Blob {
    fn clone(&self) -> Self {
        let copy = Blob::concat(&[self.bytes()]);
        copy.as_ref().set_word(self.as_ref().word());
        copy
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Blob").field(&self.bytes()).finish()
    }
}

/// Prefetches the cache line at `pointer`; any address is allowed.
#[inline]
pub(crate) fn prefetch<T>(pointer: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint: it faults on no address and changes no state that a program sees.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = pointer;
}

const LINE_BYTES: usize = 64;

/// Most cache lines of one block that are prefetched.
const LINES_MAX: usize = 6;

/// Prefetches the cache lines of a block, at most the first [`LINES_MAX`]; any address is allowed.
#[inline]
pub(crate) fn prefetch_block<T>(block: *const T, bytes: usize) {
    let start = block.cast::<u8>();
    let before = start.addr() % LINE_BYTES;
    let lines = (before + bytes).div_ceil(LINE_BYTES).min(LINES_MAX);
    let first = start.wrapping_sub(before);
    (0..lines).for_each(|line| prefetch(first.wrapping_add(line * LINE_BYTES)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::types::allocation_bytes;

    #[test]
    #[cfg_attr(miri, ignore = "calls C code")]
    fn accounts_round_sizes_as_the_allocator_does() {
        let sizes = (1..=1 << 20).chain((20..=30).flat_map(|power| [1 << power, (1 << power) + 1]));
        for bytes in sizes {
            // SAFETY: computes a number.
            let taken_bytes = unsafe { libmimalloc_sys::mi_good_size(bytes) };
            assert_eq!(allocation_bytes(bytes), taken_bytes, "of {bytes} bytes");
        }
    }

    #[test]
    fn a_block_has_the_smallest_size_that_holds_it() {
        let around = |size: usize| size.saturating_sub(2).max(1)..size + 2;
        let sizes = (1..=4096).chain(SIZES.iter().flat_map(|size| around(*size)));
        for bytes in sizes.filter(|bytes| *bytes <= SIZES[SIZE_COUNT - 1]) {
            let index = size_index(bytes);
            assert!(SIZES[index] >= bytes && SIZES[index - 1] < bytes, "{bytes} bytes");
            if (9..=SMALL_BYTES_MAX).contains(&bytes) {
                assert_eq!(SIZES[index], allocation_bytes(bytes));
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Resize(usize, bool),
        Write(usize, u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0usize..600, any::<bool>()).prop_map(|(len, room)| Step::Resize(len, room)),
            (0usize..600, any::<u8>()).prop_map(|(at, byte)| Step::Write(at, byte)),
        ];
        proptest::collection::vec(step, 0..40)
    }

    fn check(parts: &[Vec<u8>], steps: &[Step]) {
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut blob = Blob::concat(&slices);
        let mut oracle = slices.concat();
        blob.as_ref().set_word(77);
        for step in steps {
            match *step {
                Step::Resize(len, room) => {
                    blob.resize(len, room);
                    oracle.resize(len, 0);
                }
                Step::Write(at, byte) if at < oracle.len() => {
                    blob.bytes_mut()[at] = byte;
                    oracle[at] = byte;
                }
                Step::Write(..) => {}
            }
            assert_eq!(blob.bytes(), oracle);
            assert!(blob.capacity() >= blob.len());
        }
        assert_eq!(blob.as_ref().word(), 77);
        assert_eq!(blob.clone().bytes(), oracle);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn behaves_like_a_vec(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..4),
            steps in steps(),
        ) {
            check(&parts, &steps);
        }
    }

    #[test]
    fn a_slot_owns_its_block() {
        let mut slot = Slot::default();
        assert!(slot.take().is_none());
        slot.fill(Blob::concat(&[b"one"]));
        assert_eq!(slot.get().expect("filled").bytes(), b"one");
        let blob = slot.take().expect("filled");
        assert_eq!(blob.bytes(), b"one");
        assert!(slot.is_empty());
        slot.fill(blob);
        assert!(!slot.is_empty());
    }

    #[test]
    fn an_empty_block_is_a_block() {
        check(&[], &[Step::Resize(0, true), Step::Resize(5, false), Step::Resize(0, false)]);
    }
}
