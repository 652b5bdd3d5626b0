//! NVTX events with attributes.

use std::ffi::{CString, c_char};

use crate::util::from;

/// A range or a mark with attributes that a profiler shows beside its name: a colour, a category, a number.
///
/// ```no_run
/// use cuda_core::nvtx::{self, NvtxEvent};
///
/// const STEP: NvtxEvent<'_> = NvtxEvent::new("step").color(0xff76_b900).category(1);
/// nvtx::name_category(1, "training");
/// for number in 0..100u64 {
///     let _step = nvtx::range(STEP.payload(number));
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use = "`nvtx::range` and `nvtx::mark` take it"]
#[doc(alias("nvtxEventAttributes_t"))]
pub struct NvtxEvent<'a> {
    name: &'a str,
    color: Option<u32>,
    category: u32,
    payload: NvtxPayload,
}

/// The number that an [event](NvtxEvent) shows: a `u64`, an `i64` or an `f64`.
///
/// ```
/// assert_ne!(cuda_core::nvtx::NvtxPayload::from(1u64), cuda_core::nvtx::NvtxPayload::from(1.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum NvtxPayload {
    /// No number.
    #[default]
    None,
    /// A count, such as a number of bytes.
    Unsigned(u64),
    /// A number that may be negative.
    Signed(i64),
    /// Any other number.
    Float(f64),
}

impl<'a> NvtxEvent<'a> {
    /// Creates an event that has only a name, which ends at a NUL.
    pub const fn new(name: &'a str) -> Self {
        Self { name, color: None, category: 0, payload: NvtxPayload::None }
    }

    /// Sets the colour: alpha, red, green and blue from the highest byte on.
    pub const fn color(mut self, argb: u32) -> Self {
        self.color = Some(argb);
        self
    }

    /// Sets the category, by which profilers filter and which [`name_category`](super::name_category) names;
    /// 0 is none.
    pub const fn category(mut self, category: u32) -> Self {
        self.category = category;
        self
    }

    /// Sets the number that the event shows.
    pub fn payload(mut self, payload: impl Into<NvtxPayload>) -> Self {
        self.payload = payload.into();
        self
    }

    /// The event's name, as it was given.
    pub const fn get_name(&self) -> &'a str {
        self.name
    }

    /// The event's [colour](Self::color), if it has one.
    pub const fn get_color(&self) -> Option<u32> {
        self.color
    }

    /// The event's [category](Self::category); 0 is none.
    pub const fn get_category(&self) -> u32 {
        self.category
    }

    /// The [number](Self::payload) that the event shows.
    pub const fn get_payload(&self) -> NvtxPayload {
        self.payload
    }

    /// Whether the event has only a name.
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::new(self.name)
    }

    /// Converts the event to the tool's representation, which refers to `name`.
    pub(super) fn attributes(&self, name: &CString) -> EventAttributes {
        let (payload_type, payload) = match self.payload {
            NvtxPayload::None => (0, 0),
            NvtxPayload::Unsigned(number) => (1, number),
            NvtxPayload::Signed(number) => (2, number as u64),
            NvtxPayload::Float(number) => (3, number.to_bits()),
        };
        EventAttributes {
            version: 3,
            size: size_of::<EventAttributes>() as u16,
            category: self.category,
            color_type: i32::from(self.color.is_some()),
            color: self.color.unwrap_or(0),
            payload_type,
            reserved: 0,
            payload,
            message_type: 1,
            message: name.as_ptr(),
        }
    }
}

/// Converts a text to a C string, up to the first NUL.
pub(super) fn c_name(name: &str) -> CString {
    CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

from! {
    ['a] &'a str => NvtxEvent<'a>: |name| Self::new(name);
    ['a] &'a String => NvtxEvent<'a>: |name| Self::new(name);
    [] u64 => NvtxPayload: |number| Self::Unsigned(number);
    [] i64 => NvtxPayload: |number| Self::Signed(number);
    [] f64 => NvtxPayload: |number| Self::Float(number);
}

/// `nvtxEventAttributes_t` of NVTX 3, with an ASCII message.
#[repr(C)]
pub(super) struct EventAttributes {
    pub(super) version: u16,
    pub(super) size: u16,
    pub(super) category: u32,
    /// 1 if `color` is set.
    pub(super) color_type: i32,
    pub(super) color: u32,
    /// 0: none; 1 to 3: a `u64`, an `i64`, an `f64`.
    pub(super) payload_type: i32,
    pub(super) reserved: i32,
    pub(super) payload: u64,
    pub(super) message_type: i32,
    pub(super) message: *const c_char,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<EventAttributes>() == 48);
