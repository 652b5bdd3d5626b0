//! The bytes of a device block, in pages that are created at the first access.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

const PAGE: usize = 64 << 10;

/// The value of untouched bytes. Not zero, so that a missing fill shows.
const POISON: u8 = 0xA5;

/// Sparse bytes: a block of many gigabytes costs nothing until it is used.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    size: usize,
    pages: BTreeMap<usize, Box<[u8]>>,
    /// Parts that are backed by other memory, by their first byte.
    windows: BTreeMap<usize, Window>,
}

#[derive(Debug)]
struct Window {
    size: usize,
    /// The offset in the other memory.
    from: usize,
    pages: Arc<Mutex<Pages>>,
}

impl Pages {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, ..Self::default() }
    }

    /// Backs the bytes from `start` on by `pages`.
    pub(crate) fn open_window(&mut self, start: usize, size: usize, pages: Arc<Mutex<Pages>>) {
        let from = 0;
        self.windows.insert(start, Window { size, from, pages });
    }

    /// Backs the first bytes by `pages` from `from` on.
    pub(crate) fn show(&mut self, from: usize, size: usize, pages: Arc<Mutex<Pages>>) {
        self.windows.insert(0, Window { size, from, pages });
    }

    pub(crate) fn close_window(&mut self, start: usize) {
        self.windows.remove(&start);
    }

    /// Returns the memory that backs `offset`, the offset in it, and how many of `len` bytes it backs.
    fn window(&self, offset: usize, len: usize) -> Option<(Arc<Mutex<Pages>>, usize, usize)> {
        let (&start, window) = self.windows.range(..=offset).next_back()?;
        let at = offset - start;
        let room = window.size.checked_sub(at).filter(|room| *room > 0)?;
        Some((window.pages.clone(), window.from + at, len.min(room)))
    }

    /// Returns the bytes from `offset` on, up to `len` of them, to the end of the page or the next window.
    fn piece(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let (index, start) = (offset / PAGE, offset % PAGE);
        let page_len = PAGE.min(self.size - index * PAGE);
        let page =
            self.pages.entry(index).or_insert_with(|| vec![POISON; page_len].into_boxed_slice());
        // The piece ends where the next window begins.
        let next = self.windows.range(offset..).next();
        let len = next.map_or(len, |(window, _)| len.min(window - offset));
        let end = page_len.min(start + len);
        &mut page[start..end]
    }

    pub(crate) fn read(&mut self, mut offset: usize, mut to: &mut [u8]) {
        while !to.is_empty() {
            if let Some((pages, at, len)) = self.window(offset, to.len()) {
                let (head, tail) = to.split_at_mut(len);
                let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
                pages.read(at, head);
                offset += len;
                to = tail;
                continue;
            }
            let piece = self.piece(offset, to.len());
            let (head, tail) = to.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            offset += head.len();
            to = tail;
        }
    }

    pub(crate) fn write(&mut self, mut offset: usize, mut from: &[u8]) {
        while !from.is_empty() {
            if let Some((pages, at, len)) = self.window(offset, from.len()) {
                let (head, tail) = from.split_at(len);
                let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
                pages.write(at, head);
                offset += len;
                from = tail;
                continue;
            }
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

    #[test]
    fn shows_other_memory_through_windows() {
        let inner = Arc::new(Mutex::new(Pages::new(4)));
        let mut pages = Pages::new(16);
        pages.open_window(4, 4, inner.clone());
        pages.write(2, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut back = [0; 4];
        inner.lock().expect("no panic").read(0, &mut back);
        assert_eq!(back, [3, 4, 5, 6]);
        pages.close_window(4);
        let mut back = [0; 8];
        pages.read(2, &mut back);
        assert_eq!(back, [1, 2, POISON, POISON, POISON, POISON, 7, 8]);
    }
}
