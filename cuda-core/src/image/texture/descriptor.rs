//! The options of a texture.

use cuda_sys::CUDA_TEXTURE_DESC;

use crate::error::{Error, Result};
use crate::image::Texel;
use crate::util::{raw_enum, setters};

raw_enum! {
    /// What a texture returns for a coordinate beyond its edge, in one dimension.
    ///
    /// ```
    /// use cuda_core::image::{AddressMode, TextureDescriptor};
    ///
    /// let black_outside = TextureDescriptor::default()
    ///     .with_address([AddressMode::Border; 3])
    ///     .with_border([0.0, 0.0, 0.0, 1.0]);
    /// ```
    #[derive(Default)]
    AddressMode: CUaddress_mode {
        /// The texel at the edge.
        #[default]
        Clamp = CU_TR_ADDRESS_MODE_CLAMP,
        /// The image repeated; with normalised coordinates only.
        Wrap = CU_TR_ADDRESS_MODE_WRAP,
        /// The image mirrored; with normalised coordinates only.
        Mirror = CU_TR_ADDRESS_MODE_MIRROR,
        /// The border colour.
        Border = CU_TR_ADDRESS_MODE_BORDER,
    }
}

raw_enum! {
    /// What a texture returns between texels, or between levels.
    ///
    /// ```
    /// use cuda_core::image::{FilterMode, TextureDescriptor};
    ///
    /// let smooth = TextureDescriptor::default().with_filter(FilterMode::Linear);
    /// assert_eq!(TextureDescriptor::default().filter, FilterMode::Point);
    /// ```
    #[derive(Default)]
    FilterMode: CUfilter_mode {
        /// The nearest texel or level.
        #[default]
        Point = CU_TR_FILTER_MODE_POINT,
        /// A weighted mean of the nearest texels or levels.
        Linear = CU_TR_FILTER_MODE_LINEAR,
    }
}

/// The type in which a kernel reads a channel.
///
/// ```
/// use cuda_core::image::{FilterMode, ReadMode, TextureDescriptor};
///
/// // Bytes, interpolated: 0 to 1 in the kernel.
/// let smooth_bytes = TextureDescriptor::default()
///     .with_filter(FilterMode::Linear)
///     .with_read(ReadMode::NormalizedFloat);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReadMode {
    /// The number as it is.
    #[default]
    Element,
    /// Integers of 8 and 16 bits become floats: 0 to 1, signed ones −1 to 1. Floats stay as they are.
    NormalizedFloat,
}

/// The unit of coordinates in a texture.
///
/// ```
/// use cuda_core::image::{AddressMode, Coordinates, TextureDescriptor};
///
/// // An image without an end: only places from 0 to 1 can wrap.
/// let tiles = TextureDescriptor::default()
///     .with_address([AddressMode::Wrap; 3])
///     .with_coordinates(Coordinates::Normalized);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Coordinates {
    /// Texels, from 0 to the size.
    #[default]
    Texels,
    /// Fractions of the size, from 0 to 1.
    Normalized,
}

/// How a texture is sampled. The default is CUDA's: the nearest texel unconverted, clamped to the edge,
/// with coordinates in texels.
///
/// ```
/// use cuda_core::image::{AddressMode, Coordinates, FilterMode, TextureDescriptor};
///
/// let smooth = TextureDescriptor::default()
///     .with_address([AddressMode::Wrap; 3])
///     .with_filter(FilterMode::Linear)
///     .with_coordinates(Coordinates::Normalized);
/// # let _ = smooth;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct TextureDescriptor {
    /// The result beyond the edge, in x, y and z. CUDA ignores it for buffers without rows.
    pub address: [AddressMode; 3],
    /// The result between texels. CUDA ignores it for buffers without rows, too.
    pub filter: FilterMode,
    /// The type in which a kernel reads a channel.
    pub read: ReadMode,
    /// The unit of coordinates; a mipmap needs [`Coordinates::Normalized`].
    pub coordinates: Coordinates,
    /// Whether bytes are converted from sRGB to linear when they are read as floats.
    pub srgb: bool,
    /// The most samples that an oblique view may take, at most 16; 0 and 1 mean one sample.
    pub max_anisotropy: u32,
    /// The texel that [`AddressMode::Border`] returns.
    pub border: [f32; 4],
    /// How the levels of a mipmap are sampled.
    pub mipmap: MipmapSampling,
}

/// How the levels of a mipmap are sampled.
///
/// ```
/// use cuda_core::image::{Coordinates, FilterMode, MipmapSampling, TextureDescriptor};
///
/// let levels = MipmapSampling::default().with_filter(FilterMode::Linear).with_levels(0.0, 4.0);
/// let trilinear = TextureDescriptor::default()
///     .with_filter(FilterMode::Linear)
///     .with_coordinates(Coordinates::Normalized)
///     .with_mipmap(levels);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct MipmapSampling {
    /// The result between levels.
    pub filter: FilterMode,
    /// The number of levels added to the level that the hardware chooses.
    pub bias: f32,
    /// The range of levels that are sampled; zero is the largest image. By default only level zero.
    pub levels: (f32, f32),
}

const READ_AS_INTEGER: u32 = cuda_sys::CU_TRSF_READ_AS_INTEGER;
const NORMALIZED_COORDINATES: u32 = cuda_sys::CU_TRSF_NORMALIZED_COORDINATES;
const SRGB: u32 = cuda_sys::CU_TRSF_SRGB;

impl TextureDescriptor {
    setters! {
        /// Sets the result beyond the edge in x, y and z, in place of [`AddressMode::Clamp`] in each.
        with_address(modes: [AddressMode; 3]) => address = modes;
        /// Sets the result between texels, in place of [`FilterMode::Point`].
        with_filter(filter: FilterMode) => filter = filter;
        /// Sets the type in which a kernel reads a channel, in place of [`ReadMode::Element`].
        with_read(read: ReadMode) => read = read;
        /// Sets the unit of coordinates, in place of [`Coordinates::Texels`].
        with_coordinates(coordinates: Coordinates) => coordinates = coordinates;
        /// Sets the most samples that an oblique view may take, at most 16; by default one.
        with_max_anisotropy(samples: u32) => max_anisotropy = samples;
        /// Sets the texel that [`AddressMode::Border`] returns: red, green, blue and alpha as the
        /// kernel reads them, in place of zeros.
        with_border(border: [f32; 4]) => border = border;
        /// Sets how the levels of a mipmap are sampled; by default the largest image alone.
        with_mipmap(mipmap: MipmapSampling) => mipmap = mipmap;
        /// Converts bytes from sRGB to linear when they are read as floats; by default they are not
        /// converted.
        with_srgb() => srgb = true;
    }
}

impl MipmapSampling {
    setters! {
        /// Sets the result between levels, in place of [`FilterMode::Point`].
        with_filter(filter: FilterMode) => filter = filter;
        /// Sets the number of levels added to the level that the hardware chooses; zero by default.
        with_bias(bias: f32) => bias = bias;
        /// Sets the first and the last level that are sampled; zero is the largest image. By default
        /// level zero alone.
        with_levels(largest: f32, smallest: f32) => levels = (largest, smallest);
    }
}

impl TextureDescriptor {
    /// Returns an error for combinations that CUDA does not define.
    pub(super) fn check<T: Texel>(&self, op: &'static str) -> Result<()> {
        let wraps = |mode: &AddressMode| matches!(mode, AddressMode::Wrap | AddressMode::Mirror);
        let bits = size_of::<T>() / T::CHANNELS as usize * 8;
        let is_float =
            T::FORMAT == cuda_sys::CU_AD_FORMAT_FLOAT || T::FORMAT == cuda_sys::CU_AD_FORMAT_HALF;
        let reads_floats = self.read == ReadMode::NormalizedFloat;
        let is_linear = self.filter == FilterMode::Linear;
        let is_bytes = T::FORMAT == cuda_sys::CU_AD_FORMAT_UNSIGNED_INT8;
        let wraps = self.coordinates == Coordinates::Texels && self.address.iter().any(wraps);
        let wide = reads_floats && !is_float && bits == 32;
        let refused = [
            (
                wraps,
                "wrapping and mirroring want normalised coordinates: \
                 `with_coordinates(Coordinates::Normalized)`",
            ),
            (wide, "integers of 32 bits cannot be read as normalised floats"),
            (
                !reads_floats && !is_float && is_linear,
                "linear filtering of integers needs elements that are read as normalised floats",
            ),
            (self.srgb && !is_bytes, "sRGB is an encoding of unsigned bytes"),
            (self.max_anisotropy > 16, "more than 16 samples"),
        ];
        refused.into_iter().try_for_each(|(refused, why)| Error::unless(!refused, op, why))
    }

    pub(super) fn as_raw(&self) -> CUDA_TEXTURE_DESC {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        CUDA_TEXTURE_DESC {
            addressMode: self.address.map(AddressMode::as_raw),
            filterMode: self.filter.as_raw(),
            flags: bit(self.read == ReadMode::Element, READ_AS_INTEGER)
                | bit(self.coordinates == Coordinates::Normalized, NORMALIZED_COORDINATES)
                | bit(self.srgb, SRGB),
            maxAnisotropy: self.max_anisotropy,
            mipmapFilterMode: self.mipmap.filter.as_raw(),
            mipmapLevelBias: self.mipmap.bias,
            minMipmapLevelClamp: self.mipmap.levels.0,
            maxMipmapLevelClamp: self.mipmap.levels.1,
            borderColor: self.border,
            ..CUDA_TEXTURE_DESC::default()
        }
    }

    /// Converts the driver's description; modes of newer drivers become the default.
    pub(super) fn from_raw(raw: &CUDA_TEXTURE_DESC) -> Self {
        let has = |flag| raw.flags & flag != 0;
        Self {
            address: raw.addressMode.map(|mode| AddressMode::from_raw(mode).unwrap_or_default()),
            filter: FilterMode::from_raw(raw.filterMode).unwrap_or_default(),
            read: if has(READ_AS_INTEGER) { ReadMode::Element } else { ReadMode::NormalizedFloat },
            coordinates: if has(NORMALIZED_COORDINATES) {
                Coordinates::Normalized
            } else {
                Coordinates::Texels
            },
            srgb: has(SRGB),
            max_anisotropy: raw.maxAnisotropy,
            border: raw.borderColor,
            mipmap: MipmapSampling {
                filter: FilterMode::from_raw(raw.mipmapFilterMode).unwrap_or_default(),
                bias: raw.mipmapLevelBias,
                levels: (raw.minMipmapLevelClamp, raw.maxMipmapLevelClamp),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_the_driver() {
        let descriptor = TextureDescriptor {
            address: [AddressMode::Wrap, AddressMode::Mirror, AddressMode::Border],
            filter: FilterMode::Linear,
            read: ReadMode::NormalizedFloat,
            coordinates: Coordinates::Normalized,
            srgb: true,
            max_anisotropy: 4,
            border: [0.25, 0.5, 0.75, 1.0],
            mipmap: MipmapSampling { filter: FilterMode::Linear, bias: 0.5, levels: (1.0, 3.0) },
        };
        let back = TextureDescriptor::from_raw(&descriptor.as_raw());
        assert_eq!(back, descriptor);
        let plain = TextureDescriptor::default();
        assert_eq!(TextureDescriptor::from_raw(&plain.as_raw()), plain);
    }

    #[test]
    fn what_cuda_does_not_define_is_refused() {
        let plain = TextureDescriptor::default();
        let linear = TextureDescriptor { filter: FilterMode::Linear, ..plain };
        assert!(linear.check::<f32>("op").is_ok());
        assert!(linear.check::<u8>("op").is_err());
        let wrapped = TextureDescriptor { address: [AddressMode::Wrap; 3], ..plain };
        assert!(wrapped.check::<f32>("op").is_err());
        let normalized = TextureDescriptor { read: ReadMode::NormalizedFloat, ..plain };
        assert!(normalized.check::<[u16; 2]>("op").is_ok());
        assert!(normalized.check::<i32>("op").is_err());
        let srgb = plain.with_srgb();
        assert!(srgb.srgb && !plain.srgb);
        assert!(srgb.check::<[u8; 4]>("op").is_ok());
        assert!(srgb.check::<u16>("op").is_err());
    }
}
