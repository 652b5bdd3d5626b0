//! A list that keeps its first elements inline: most launches have few arguments.

/// A list of `N` elements inline, or of any number on the heap.
pub(super) struct Few<T, const N: usize> {
    inline: [T; N],
    len: usize,
    /// All elements, once there are more than `N`.
    spilled: Vec<T>,
}

impl<T, const N: usize> Few<T, N> {
    /// An empty list; `filler` stands where no element is yet.
    #[inline]
    pub(super) fn new(filler: impl Fn() -> T) -> Self {
        Self {
            inline: std::array::from_fn(|_| filler()),
            len: 0,
            spilled: Vec::new(),
        }
    }

    /// Appends an element; `filler` takes the place of those that move to the heap.
    #[inline]
    pub(super) fn push(&mut self, element: T, filler: impl Fn() -> T) {
        match self.inline.get_mut(self.len) {
            Some(place) => *place = element,
            None => {
                if self.spilled.is_empty() {
                    let inline = self.inline.iter_mut();
                    self.spilled
                        .extend(inline.map(|place| std::mem::replace(place, filler())));
                }
                self.spilled.push(element);
            }
        }
        self.len += 1;
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[T] {
        if self.spilled.is_empty() {
            &self.inline[..self.len]
        } else {
            &self.spilled
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        if self.spilled.is_empty() {
            &mut self.inline[..self.len]
        } else {
            &mut self.spilled
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Few;

    #[test]
    fn keeps_its_order_when_it_spills() {
        let mut few = Few::<_, 3>::new(|| 0);
        for count in 0..10 {
            assert_eq!(few.as_slice(), (0..count).collect::<Vec<_>>());
            few.push(count, || 0);
        }
        few.as_mut_slice()[9] = 7;
        assert_eq!(few.as_slice().last(), Some(&7));
    }
}
