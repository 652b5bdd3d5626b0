//! Process-wide settings: of staging and of pinned memory, and trims.

use cuda_core::{
    CachingPool, PinnedPool, drops,
    pinned::PinnedBackend,
    staging::{self, StagingOptions},
};
use proptest::prelude::*;

use crate::property::outcome::{Done, pick};
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) enum SettingOp {
    TrimShared { keep: bool },
    TrimPrivate { pool: u8 },
    TrimPinned,
    TrimStaging,
    FlushDrops,
    Slabs,
    DriverPinned,
    Staging { threads: u8, chunk: u8 },
}

pub(in crate::property) fn ops() -> impl Strategy<Value = SettingOp> {
    let small = any::<u8>;
    prop_oneof![
        1 => any::<bool>().prop_map(|keep| SettingOp::TrimShared { keep }),
        1 => small().prop_map(|pool| SettingOp::TrimPrivate { pool }),
        1 => Just(SettingOp::TrimPinned),
        1 => Just(SettingOp::TrimStaging),
        1 => Just(SettingOp::FlushDrops),
        3 => Just(SettingOp::Slabs),
        1 => Just(SettingOp::DriverPinned),
        2 => (0..3u8, small()).prop_map(|(threads, chunk)| SettingOp::Staging { threads, chunk }),
    ]
}

/// Sizes of the chunks through which large copies are staged.
const CHUNKS: [usize; 3] = [4 << 10, 64 << 10, 256 << 10];

impl World {
    pub(super) fn settings(&mut self, op: SettingOp) -> Done {
        match op {
            SettingOp::TrimShared { keep } => {
                CachingPool::shared()?.trim(if keep { 2 << 20 } else { 0 })?;
            }
            SettingOp::TrimPrivate { pool } => {
                if let Some(pool) = pick(&mut self.caches, pool) {
                    pool.trim(0)?;
                }
            }
            SettingOp::TrimPinned => drop(PinnedPool::shared().trim(0)?),
            SettingOp::TrimStaging => drop(staging::trim()?),
            SettingOp::FlushDrops => drops::flush(),
            SettingOp::Slabs => PinnedPool::set_backend(PinnedBackend::Slab),
            SettingOp::DriverPinned => PinnedPool::set_backend(PinnedBackend::Driver),
            SettingOp::Staging { threads, chunk } => {
                let chunk = CHUNKS[usize::from(chunk) % CHUNKS.len()];
                staging::set_options(StagingOptions::new(threads.into(), chunk))?
            }
        }
        Ok(())
    }
}
