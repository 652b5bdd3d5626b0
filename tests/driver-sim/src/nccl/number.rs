//! Number types, as NCCL reduces them.

use std::ffi::c_int;

/// `ncclDataType_t`, without the eight-bit floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
}

impl Number {
    pub(crate) fn from_raw(raw: c_int) -> Option<Self> {
        let all = [
            Self::I8,
            Self::U8,
            Self::I32,
            Self::U32,
            Self::I64,
            Self::U64,
            Self::F16,
            Self::F32,
            Self::F64,
            Self::Bf16,
        ];
        all.get(usize::try_from(raw).ok()?).copied()
    }

    pub(crate) fn width(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// How numbers of several ranks are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    Product,
    Max,
    Min,
    Average,
    /// The sum of each rank's number times its factor.
    Scaled,
}

impl Reduction {
    /// Returns one of the built-in reductions.
    pub(crate) fn from_raw(raw: c_int) -> Option<Self> {
        let all = [Self::Sum, Self::Product, Self::Max, Self::Min, Self::Average];
        all.get(usize::try_from(raw).ok()?).copied()
    }
}

/// A rank's input to a reduction: its numbers, and its factor for a scaled one.
pub(crate) struct Given {
    pub(crate) bytes: Vec<u8>,
    pub(crate) factor: Vec<u8>,
}

/// Reduces the numbers of all ranks.
pub(crate) fn reduce(number: Number, how: Reduction, given: &[Given]) -> Vec<u8> {
    match number {
        Number::I8 => fold::<i8>(how, given),
        Number::U8 => fold::<u8>(how, given),
        Number::I32 => fold::<i32>(how, given),
        Number::U32 => fold::<u32>(how, given),
        Number::I64 => fold::<i64>(how, given),
        Number::U64 => fold::<u64>(how, given),
        Number::F16 => fold::<F16>(how, given),
        Number::F32 => fold::<f32>(how, given),
        Number::F64 => fold::<f64>(how, given),
        Number::Bf16 => fold::<Bf16>(how, given),
    }
}

/// Reduces numbers of one type. NCCL does not specify in which order it adds: here each part of the numbers
/// begins with another rank, as in a ring.
fn fold<T: Arithmetic>(how: Reduction, given: &[Given]) -> Vec<u8> {
    let (ranks, width) = (given.len(), size_of::<T>());
    let count = given[0].bytes.len() / width;
    let mut result = Vec::with_capacity(count * width);
    for index in 0..count {
        let start = index * ranks / count;
        let one = |k: usize| {
            let from = &given[(start + k) % ranks];
            let value = T::read(&from.bytes[index * width..][..width]);
            match how {
                Reduction::Scaled => value.and(Reduction::Product, T::read(&from.factor[..width])),
                Reduction::Average => value.share(ranks),
                _ => value,
            }
        };
        let total = (1..ranks).fold(one(0), |total, k| total.and(how, one(k)));
        let total = if how == Reduction::Average { total.mean(ranks) } else { total };
        total.write(&mut result);
    }
    result
}

trait Arithmetic: Copy {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, to: &mut Vec<u8>);
    /// Combines two numbers. Averages and scaled sums are sums here.
    fn and(self, how: Reduction, other: Self) -> Self;

    /// Converts a term of an average before the sum: as in NCCL, floats are divided here.
    fn share(self, _ranks: usize) -> Self {
        self
    }

    /// Converts the sum of an average: integers are divided here.
    fn mean(self, _ranks: usize) -> Self {
        self
    }
}

macro_rules! bytes {
    () => {
        fn read(bytes: &[u8]) -> Self {
            Self::from_le_bytes(bytes.try_into().expect("the bytes of one number"))
        }

        fn write(self, to: &mut Vec<u8>) {
            to.extend(self.to_le_bytes());
        }
    };
}

macro_rules! integers {
    ($($number:ty)*) => {
        $(
            impl Arithmetic for $number {
                bytes!();

                fn and(self, how: Reduction, other: Self) -> Self {
                    match how {
                        Reduction::Product => self.wrapping_mul(other),
                        Reduction::Max => self.max(other),
                        Reduction::Min => self.min(other),
                        _ => self.wrapping_add(other),
                    }
                }

                fn mean(self, ranks: usize) -> Self {
                    // There are at most 64 ranks, one per device.
                    self / ranks as Self
                }
            }
        )*
    };
}

integers!(i8 u8 i32 u32 i64 u64);

macro_rules! floats {
    ($($number:ty: $wide:ty, $read:expr, $write:expr;)*) => {
        $(
            impl Arithmetic for $number {
                bytes!();

                fn and(self, how: Reduction, other: Self) -> Self {
                    let (one, other) = ($read(self), $read(other));
                    $write(match how {
                        Reduction::Product => one * other,
                        Reduction::Max => one.max(other),
                        Reduction::Min => one.min(other),
                        _ => one + other,
                    })
                }

                fn share(self, ranks: usize) -> Self {
                    self.and(Reduction::Product, $write(1.0 / ranks as $wide))
                }
            }
        )*
    };
}

/// The bits of a float of two bytes.
#[derive(Debug, Clone, Copy)]
struct Half<const BRAIN: bool>(u16);

/// A 16-bit float of IEEE 754.
type F16 = Half<false>;

/// The upper half of an `f32`.
type Bf16 = Half<true>;

impl<const BRAIN: bool> Half<BRAIN> {
    fn from_le_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(bytes))
    }

    fn to_le_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }
}

impl F16 {
    fn wide(self) -> f32 {
        let (exponent, fraction) = (u32::from(self.0 >> 10 & 0x1f), u32::from(self.0 & 0x3ff));
        let magnitude = match exponent {
            0 => fraction as f32 / 16_777_216.0,
            31 if fraction == 0 => f32::INFINITY,
            31 => f32::NAN,
            _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
        };
        if self.0 >> 15 == 1 { -magnitude } else { magnitude }
    }

    /// Rounds to nearest, ties to even.
    fn narrow(wide: f32) -> Self {
        let (sign, magnitude) = ((wide.to_bits() >> 31 << 15) as u16, wide.abs());
        let bits = if magnitude.is_nan() {
            0x7e00
        } else if magnitude >= 65520.0 {
            0x7c00
        } else if magnitude < 1.0 / 16384.0 {
            // The successor of the largest of these is the least normal number.
            (magnitude * 16_777_216.0).round_ties_even() as u16
        } else {
            let bits = magnitude.to_bits();
            (((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112 << 10)) as u16
        };
        Self(sign | bits)
    }
}

impl Bf16 {
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Rounds to nearest, ties to even.
    fn narrow(wide: f32) -> Self {
        if wide.is_nan() {
            return Self(0x7fff);
        }
        let bits = wide.to_bits();
        Self(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

floats! {
    f32: f32, f32::from, f32::from;
    f64: f64, f64::from, f64::from;
    F16: f32, F16::wide, F16::narrow;
    Bf16: f32, Bf16::wide, Bf16::narrow;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_itself_after_a_round_trip() {
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 251 } else { 1 }) {
            let (half, brain) = (Half::<false>(bits), Half::<true>(bits));
            if !half.wide().is_nan() {
                assert_eq!(F16::narrow(half.wide()).0, bits);
            }
            if !brain.wide().is_nan() {
                assert_eq!(Bf16::narrow(brain.wide()).0, bits);
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_even() {
        let narrow = |wide: f32| (F16::narrow(wide).wide(), Bf16::narrow(wide).wide());
        assert_eq!(narrow(2049.0), (2048.0, 2048.0));
        assert_eq!(narrow(2051.0), (2052.0, 2048.0));
        assert_eq!(narrow(65520.0), (f32::INFINITY, 65536.0));
        assert_eq!(narrow(65519.0).0, 65504.0);
        assert_eq!(narrow(-1.0 / 16_777_216.0).0, -1.0 / 16_777_216.0);
        assert!(narrow(f32::NAN).0.is_nan() && narrow(f32::NAN).1.is_nan());
    }

    fn bytes<const N: usize>(number: Number, how: Reduction, given: [&[u8]; N]) -> Vec<u8> {
        let given = given.map(|bytes| Given { bytes: bytes.to_vec(), factor: vec![3] });
        reduce(number, how, &given)
    }

    #[test]
    fn small_integers_wrap_and_are_divided_last() {
        let given = [&[200, 7][..], &[100, 250], &[9, 1]];
        let reduced = |how| bytes(Number::U8, how, given);
        assert_eq!(reduced(Reduction::Sum), [53, 2]);
        assert_eq!(reduced(Reduction::Max), [200, 250]);
        assert_eq!(reduced(Reduction::Min), [9, 1]);
        assert_eq!(reduced(Reduction::Average), [17, 0]);
        assert_eq!(reduced(Reduction::Product), [32, 214]);
        assert_eq!(reduced(Reduction::Scaled), [159, 6]);
        assert_eq!(bytes(Number::I8, Reduction::Max, [&[200], &[100]]), [100]);
    }
}
