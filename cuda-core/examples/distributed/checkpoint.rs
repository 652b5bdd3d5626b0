//! Weights in a file that is replaced as a whole.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::meet::write_whole;
use crate::shared::Result;

/// The first bytes of a checkpoint.
const MAGIC: [u8; 8] = *b"cudareg1";

/// The progress of the training.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checkpoint {
    /// The number of completed steps.
    pub(crate) step: u32,
    pub(crate) weights: Vec<f32>,
}

impl Checkpoint {
    pub(crate) fn write(&self, path: &Path) -> Result {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.step.to_le_bytes());
        self.weights.iter().for_each(|weight| bytes.extend(weight.to_le_bytes()));
        bytes.extend(sum(&bytes).to_le_bytes());
        write_whole(path, &bytes)
    }

    /// Reads a checkpoint with `dim` weights; returns [`None`] if there is no file.
    pub(crate) fn read(path: &Path, dim: usize) -> Result<Option<Self>> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        };
        let foreign = || format!("{} is no checkpoint of this program: remove it", path.display());
        Ok(Some(Self::parse(&bytes, dim).ok_or_else(foreign)?))
    }

    fn parse(bytes: &[u8], dim: usize) -> Option<Self> {
        let (rest, end) = bytes.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*end) != sum(rest) {
            return None;
        }
        let (step, weights) = rest.strip_prefix(&MAGIC)?.split_first_chunk::<4>()?;
        let weights =
            weights.chunks_exact(4).map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let weights: Vec<f32> = weights.collect();
        (weights.len() == dim).then(|| Self { step: u32::from_le_bytes(*step), weights })
    }
}

/// Returns the FNV-1a hash.
fn sum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meet::token;

    #[test]
    fn a_checkpoint_comes_back_and_a_damaged_one_is_refused() {
        let path = std::env::temp_dir().join(format!("cuda-core-checkpoint-{}", token()));
        assert_eq!(Checkpoint::read(&path, 2).unwrap(), None);
        let checkpoint = Checkpoint { step: 40, weights: vec![0.5, -1.0] };
        checkpoint.write(&path).unwrap();
        assert_eq!(Checkpoint::read(&path, 2).unwrap(), Some(checkpoint));
        assert!(Checkpoint::read(&path, 3).unwrap_err().to_string().contains("remove it"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[12] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(Checkpoint::read(&path, 2).is_err());
        fs::remove_file(&path).unwrap();
    }
}
