//! The bytes of a device block: pages that exist once they are touched.

use std::collections::BTreeMap;

const PAGE: usize = 64 << 10;

/// What untouched memory reads as. Not zero, so that a missing fill shows.
const POISON: u8 = 0xA5;

/// Sparse bytes, so that a block of many gigabytes costs nothing until it is used.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    size: usize,
    pages: BTreeMap<usize, Box<[u8]>>,
}

impl Pages {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            pages: BTreeMap::new(),
        }
    }

    /// The bytes from `offset` on, up to `len` of them and to the end of the page.
    fn piece(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let (index, start) = (offset / PAGE, offset % PAGE);
        let page_len = PAGE.min(self.size - index * PAGE);
        let page = self
            .pages
            .entry(index)
            .or_insert_with(|| vec![POISON; page_len].into_boxed_slice());
        let end = page_len.min(start + len);
        &mut page[start..end]
    }

    pub(crate) fn read(&mut self, mut offset: usize, mut to: &mut [u8]) {
        while !to.is_empty() {
            let piece = self.piece(offset, to.len());
            let (head, tail) = to.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            offset += head.len();
            to = tail;
        }
    }

    pub(crate) fn write(&mut self, mut offset: usize, mut from: &[u8]) {
        while !from.is_empty() {
            let piece = self.piece(offset, from.len());
            let (head, tail) = from.split_at(piece.len());
            piece.copy_from_slice(head);
            offset += head.len();
            from = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crosses_pages() {
        let mut pages = Pages::new(PAGE + 10);
        pages.write(PAGE - 3, &[1, 2, 3, 4, 5]);
        let mut back = [0; 7];
        pages.read(PAGE - 4, &mut back);
        assert_eq!(back, [POISON, 1, 2, 3, 4, 5, POISON]);
    }
}
