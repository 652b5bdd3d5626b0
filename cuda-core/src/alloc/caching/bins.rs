//! A stream's free blocks of one pool, by size.

use std::collections::HashMap;
use std::mem;

use cuda_sys::CUdeviceptr;

use super::segments::CacheBlockState;
use super::{Home, class};
use crate::timeline::Mark;
use crate::types::PoolUsage;

/// A stream's free blocks of one pool.
#[derive(Default)]
pub(super) struct Bins {
    /// Blocks that the stream may reuse at once, indexed by [`class::bin`].
    bins: Vec<Vec<Cached>>,
    /// Counters of this stream's allocated blocks; [`Bins::usage`] adds the free ones.
    pub(super) counts: PoolUsage,
}

impl PoolUsage {
    /// Counts a block that a caching pool allocates.
    #[inline]
    pub(super) fn allocate(&mut self, bytes: usize) {
        self.hand_out(bytes);
        self.allocations += 1;
        self.allocated += bytes as u64;
    }
}

/// A block that is not allocated.
pub(super) struct Cached {
    pub(super) address: CUdeviceptr,
    /// The point of the home stream's timeline after which other streams may use the block.
    pub(super) mark: Mark,
    pub(super) home: Home,
}

impl Cached {
    /// Returns the address and the mark. Moves the home into `gone`: dropping it may destroy a stream or free
    /// memory of a pool.
    pub(super) fn into_free(self, gone: &mut Vec<Home>) -> (CUdeviceptr, Mark) {
        gone.push(self.home);
        (self.address, self.mark)
    }
}

/// Blocks that were taken out of a stream's bins.
pub(super) type Contents = Vec<Vec<Cached>>;

impl Bins {
    /// Takes a block for a request of `needed` bytes (already rounded).
    #[inline]
    pub(super) fn take(&mut self, needed: usize) -> Option<Cached> {
        let mut bin = class::bin(needed);
        let latest = self.bins.get(bin)?.last();
        if latest.is_none_or(|block| block.home.bytes != needed) {
            bin = self.bring_forward(needed)?;
        }
        let block = self.bins.get_mut(bin)?.pop()?;
        self.counts.allocate(block.home.bytes);
        Some(block)
    }

    /// Moves the smallest fitting block to the end of its bin, and returns the index of that bin.
    ///
    /// Blocks of a bin have one size unless they are large. A large block may be somewhat larger than the
    /// request; only the latest few are considered. The smallest is chosen because the code that freed a
    /// larger one will probably ask for that size again.
    #[cold]
    fn bring_forward(&mut self, needed: usize) -> Option<usize> {
        const LOOKS: usize = 16;
        for at in class::bin(needed)..=class::bin(class::most(needed)) {
            let bin = self.bins.get_mut(at)?;
            let looked_at = bin.iter().enumerate().rev().take(LOOKS);
            let serving = looked_at.filter(|(_, block)| class::fits(block.home.bytes, needed));
            if let Some((best, _)) = serving.min_by_key(|(_, block)| block.home.bytes) {
                let last = bin.len() - 1;
                bin.swap(last, best);
                return Some(at);
            }
        }
        None
    }

    /// Puts a block into its bin; returns it if the bins do not keep it.
    #[inline]
    pub(super) fn put(&mut self, block: Cached) -> Option<Cached> {
        let bin = self.bins.get_mut(block.home.bin);
        if let Some(bin) = bin.filter(|bin| bin.len() < bin.capacity()) {
            bin.push(block);
            return None;
        }
        self.put_first(block)
    }

    /// [`Bins::put`] when there are no bins yet or the bin is full. A bin of large blocks keeps one block.
    /// The block before it goes back to the heap and joins its neighbours there, so that long-lived memory is
    /// not cut from a block that a larger request will need.
    #[cold]
    fn put_first(&mut self, block: Cached) -> Option<Cached> {
        if block.home.bin >= class::BINS {
            return Some(block);
        }
        self.bins.resize_with(class::BINS, Vec::new);
        let bin = &mut self.bins[block.home.bin];
        if block.home.bytes <= class::SegmentKind::LARGEST_SMALL {
            bin.push(block);
            return None;
        }
        let older = bin.pop();
        bin.reserve_exact(1);
        bin.push(block);
        older
    }

    /// Returns the counters, with the free blocks summed on demand, so that a hit does not pay for a counter.
    pub(super) fn usage(&self) -> PoolUsage {
        let free = || self.bins.iter().flatten().map(|block| block.home.bytes);
        PoolUsage { free: free().sum(), largest_free: free().max().unwrap_or(0), ..self.counts }
    }

    /// Adds the blocks to `kept`, by address.
    pub(super) fn list(&self, kept: &mut HashMap<CUdeviceptr, CacheBlockState>) {
        let blocks = self.bins.iter().flatten();
        kept.extend(blocks.map(|block| (block.address, CacheBlockState::Free)));
    }

    /// Removes all blocks.
    pub(super) fn take_all(&mut self) -> Contents {
        mem::take(&mut self.bins)
    }

    /// Removes the blocks of the size class of `needed` and of all larger classes.
    pub(super) fn take_from(&mut self, needed: usize) -> Contents {
        let first = class::bin(needed).min(self.bins.len());
        self.bins[first..].iter_mut().map(mem::take).collect()
    }
}
