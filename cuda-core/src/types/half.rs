//! Floating-point numbers of 16 bits.

use std::fmt;

use crate::util::from;

/// Defines a number of 16 bits: its name, its layout, and its conversions from and to the bits of an `f32`.
macro_rules! half {
    (
        $(#[$about:meta])*
        $name:ident: $one:literal, $widen:ident, $narrow:ident;
        max $max:literal, infinity $infinity:literal, epsilon $epsilon:literal, normal $normal:literal
    ) => {
        $(#[$about])*
        #[allow(non_camel_case_types, reason = "named like the primitive floats")]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u16);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);
            /// One.
            pub const ONE: Self = Self($one);
            /// The largest finite number.
            pub const MAX: Self = Self($max);
            /// The smallest finite number, which is negative.
            pub const MIN: Self = Self(0x8000 | $max);
            /// The smallest positive number that is normal.
            pub const MIN_POSITIVE: Self = Self($normal);
            /// The difference between one and the next larger number.
            pub const EPSILON: Self = Self($epsilon);
            /// Infinity.
            pub const INFINITY: Self = Self($infinity);
            /// Negative infinity.
            pub const NEG_INFINITY: Self = Self(0x8000 | $infinity);
            /// Not a number: a quiet one, without payload.
            pub const NAN: Self = Self($infinity | ($infinity >> 1 & !$infinity));

            /// The number with these bits.
            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            /// The number's bits.
            pub const fn to_bits(self) -> u16 {
                self.0
            }

            /// Returns the number nearest to `value`; if two are equally near, the one whose last bit is
            /// zero. A value that is too large becomes infinite. A NaN keeps its sign and the upper bits of
            /// its payload, and becomes quiet.
            pub const fn from_f32(value: f32) -> Self {
                let bits = value.to_bits();
                let sign = (bits >> 16) as u16 & 0x8000;
                Self(sign | $narrow(bits & 0x7fff_ffff))
            }

            /// Returns exactly the same number; a NaN keeps its sign and its payload.
            pub const fn to_f32(self) -> f32 {
                let sign = (self.0 as u32 & 0x8000) << 16;
                f32::from_bits(sign | $widen(self.0 as u32 & 0x7fff))
            }

            /// Whether it is a NaN.
            pub const fn is_nan(self) -> bool {
                self.to_f32().is_nan()
            }
        }

        from! {
            [] $name => f32: |value| value.to_f32();
            [] $name => f64: |value| value.to_f32().into();
        }

        /// As for `f32`: zeroes are equal whatever their signs, and a NaN equals nothing.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }

        // SAFETY: a `u16` and nothing else.
        unsafe impl crate::types::pod::Pod for $name {}
    };
}

half! {
    /// IEEE 754's number of 16 bits, CUDA's `__half`: 5 bits of exponent, 10 of fraction, at most
    /// 65504.
    ///
    /// For storage and for kernels: it has conversions but no arithmetic. Its bits are those of `half::f16`.
    ///
    /// ```
    /// use cuda_core::f16;
    ///
    /// assert_eq!(f16::ONE.to_bits(), 0x3c00);
    /// assert_eq!(f16::from_f32(0.1).to_f32(), 0.099975586);
    /// assert!(f16::from_f32(65520.0).to_f32().is_infinite());
    /// ```
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// use cuda_core::f16;
    ///
    /// let values = [1.0f32, 0.5, -2.0].map(f16::from_f32);
    /// let mut x = stream.upload_new(&values)?;
    /// let launch = stream.kernel(&function).block(3).arg(&mut x).arg(f16::from_f32(3.0));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("__half", "half2"))]
    f16: 0x3c00, wide_of_half, half_of_wide;
    max 0x7bff, infinity 0x7c00, epsilon 0x1400, normal 0x0400
}

half! {
    /// The upper half of an `f32`, CUDA's `__nv_bfloat16`: 8 bits of exponent, 7 of fraction.
    ///
    /// For storage and for kernels: it has conversions but no arithmetic. Its bits are those of `half::bf16`.
    ///
    /// ```
    /// use cuda_core::bf16;
    ///
    /// assert_eq!(bf16::ONE.to_bits(), 0x3f80);
    /// assert_eq!(bf16::from_f32(3.14159).to_f32(), 3.140625);
    /// assert_eq!(f32::from(bf16::from_f32(1e38)), 9.969_21e37);
    /// ```
    #[doc(alias("__nv_bfloat16"))]
    bf16: 0x3f80, wide_of_brain, brain_of_wide;
    max 0x7f7f, infinity 0x7f80, epsilon 0x3c00, normal 0x0080
}

/// How many more bits the fraction of an `f32` has than that of an `f16`.
const DROPPED: u32 = 13;
/// The difference of the exponents' biases, 127 and 15, at the position of an `f32`'s exponent.
const REBIAS: u32 = (127 - 15) << 23;
/// The bits of infinity.
const INFINITY: u32 = f32::INFINITY.to_bits();
/// The bits of the least `f32` that is normal as an `f16`, 2⁻¹⁴, and of 2¹⁶, which is beyond all `f16`s.
const NORMAL: u32 = 113 << 23;
const BEYOND: u32 = 143 << 23;

/// Drops the last `count` bits, rounding to nearest, ties to even.
const fn rounded(bits: u32, count: u32) -> u32 {
    let odd = bits >> count & 1;
    (bits + (1 << (count - 1)) - 1 + odd) >> count
}

/// Converts the magnitude of an `f16` to that of an `f32`.
const fn wide_of_half(half: u32) -> u32 {
    match half {
        0..0x0400 => (half as f32 / (1 << 24) as f32).to_bits(),
        0x0400..0x7c00 => (half << DROPPED) + REBIAS,
        _ => half << DROPPED | INFINITY,
    }
}

const fn half_of_wide(wide: u32) -> u16 {
    let half = match wide {
        // The `f32`s from 0.5 on are 2⁻²⁴ apart, as subnormal halves are: the addition rounds to one of them.
        0..NORMAL => (f32::from_bits(wide) + 0.5).to_bits() - 0.5f32.to_bits(),
        NORMAL..BEYOND => rounded(wide - REBIAS, DROPPED),
        BEYOND..=INFINITY => 0x7c00,
        _ => 0x7e00 | wide >> DROPPED & 0x3ff,
    };
    half as u16
}

const fn wide_of_brain(brain: u32) -> u32 {
    brain << 16
}

const fn brain_of_wide(wide: u32) -> u16 {
    let brain = match wide {
        0..=INFINITY => rounded(wide, 16),
        _ => wide >> 16 | 0x40,
    };
    brain as u16
}

#[cfg(test)]
mod tests {
    use super::{bf16, f16};

    /// The distance of the numbers that are tested: an interpreter needs minutes for all.
    const STEP: usize = if cfg!(miri) { 251 } else { 1 };

    /// Checks that every number survives the conversion to `f32` and back; a NaN becomes quiet by `quiet`.
    fn round_trips(narrow: fn(f32) -> u16, widen: fn(u16) -> f32, infinity: u16, quiet: u16) {
        for bits in (0..=u16::MAX).step_by(STEP) {
            let nan = bits & 0x7fff > infinity;
            assert_eq!(widen(bits).is_nan(), nan, "{bits:#x}");
            let expected = if nan { bits | quiet } else { bits };
            assert_eq!(narrow(widen(bits)), expected, "{bits:#x}");
        }
    }

    /// Checks that values just below, at and just above the middle of two neighbours round to the nearer one,
    /// or to even.
    fn rounds_to_nearest(narrow: fn(f32) -> u16, widen: fn(u16) -> f32, infinity: u16) {
        for low in (0..infinity).step_by(STEP) {
            let high = low + 1;
            // Infinity stands for where the next number would be.
            let step = f64::from(widen(low)) - f64::from(widen(low.saturating_sub(1)));
            let above = match high == infinity {
                true => f64::from(widen(low)) + step,
                false => f64::from(widen(high)),
            };
            let middle = ((f64::from(widen(low)) + above) / 2.0) as f32;
            let even = if low % 2 == 0 { low } else { high };
            for (value, expected) in
                [(middle.next_down(), low), (middle, even), (middle.next_up(), high)]
            {
                assert_eq!(narrow(value), expected, "{value:e}");
                assert_eq!(narrow(-value), expected | 0x8000, "-{value:e}");
            }
        }
    }

    #[test]
    fn halves_convert_as_ieee_754_says() {
        let narrow = |value| f16::from_f32(value).to_bits();
        let widen = |bits| f16::from_bits(bits).to_f32();
        round_trips(narrow, widen, 0x7c00, 0x0200);
        rounds_to_nearest(narrow, widen, 0x7c00);
        for (value, bits) in [
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65519.996, 0x7bff),
            (65520.0, 0x7c00),
            (f32::MAX, 0x7c00),
            (f32::NEG_INFINITY, 0xfc00),
            (5.960_464_5e-8, 0x0001),
            (f32::MIN_POSITIVE, 0x0000),
            (-0.0, 0x8000),
        ] {
            assert_eq!(narrow(value), bits, "{value:e}");
        }
    }

    #[test]
    fn brain_floats_convert_as_the_upper_half_rounded() {
        let narrow = |value| bf16::from_f32(value).to_bits();
        let widen = |bits| bf16::from_bits(bits).to_f32();
        round_trips(narrow, widen, 0x7f80, 0x0040);
        rounds_to_nearest(narrow, widen, 0x7f80);
        assert_eq!(narrow(f32::MAX), 0x7f80);
        assert_eq!(narrow(f32::from_bits(0x7f80_0001)), 0x7fc0, "a NaN of low bits stays one");
    }

    /// Checks each constant by its neighbours.
    macro_rules! is_consistent {
        ($half:ident) => {
            let next = |half: $half| $half::from_bits(half.to_bits() + 1);
            assert_eq!(next($half::MAX), $half::INFINITY);
            assert_eq!($half::MIN.to_f32(), -$half::MAX.to_f32());
            assert_eq!($half::NEG_INFINITY.to_f32(), f32::NEG_INFINITY);
            assert_eq!($half::EPSILON.to_f32(), next($half::ONE).to_f32() - 1.0);
            // Numbers are as far apart below `MIN_POSITIVE` as above it, so the one before it has no leading
            // one.
            let below = $half::from_bits($half::MIN_POSITIVE.to_bits() - 1);
            let step = $half::from_bits(1).to_f32();
            assert_eq!($half::MIN_POSITIVE.to_f32() - below.to_f32(), step);
            assert_eq!(next($half::MIN_POSITIVE).to_f32() - $half::MIN_POSITIVE.to_f32(), step);
            assert_eq!($half::MIN_POSITIVE.to_f32().to_bits() & 0x7f_ffff, 0, "a power of two");
            assert!($half::NAN.is_nan());
            assert_eq!($half::from_f32(f32::NAN).to_bits(), $half::NAN.to_bits());
        };
    }

    #[test]
    fn constants_are_what_they_are_called() {
        is_consistent!(f16);
        is_consistent!(bf16);
        assert_eq!((f16::MAX.to_f32(), f16::MIN_POSITIVE.to_f32()), (65504.0, 1.0 / 16384.0));
        assert_eq!(bf16::MIN_POSITIVE.to_f32(), f32::MIN_POSITIVE);
    }

    #[test]
    fn halves_compare_as_numbers() {
        assert_eq!(f16::from_bits(0x8000), f16::ZERO);
        assert_ne!(f16::from_bits(0x7e00), f16::from_bits(0x7e00));
        assert!(f16::ZERO < f16::ONE && bf16::ZERO < bf16::ONE);
        assert_eq!((f16::ONE.to_string(), format!("{:?}", bf16::ONE)), ("1".into(), "1.0".into()));
        assert_eq!((f64::from(f16::ONE), f32::from(bf16::ONE)), (1.0, 1.0));
    }
}
