//! Types whose values are plain bytes.

/// A type whose values are plain bytes: whatever a device wrote is a valid value.
///
/// Implemented for integers, floats, [`f16`](struct@crate::f16), [`bf16`](crate::bf16), complex
/// numbers and arrays of such types; [`pod!`](crate::pod!) implements it for a struct of your own,
/// without `unsafe`. Rust's orphan rule keeps you from implementing it for types of other crates.
/// Pass those as their bits (`&[half::f16]` as `&[u16]`), or wrap them. Neither `bool`, `char`,
/// references nor `NonZero` qualify, since some bit patterns are not values of these types:
///
/// ```compile_fail,E0277
/// let stream = cuda_core::Device::get(0).unwrap().create_stream().unwrap();
/// let flags = stream.alloc::<bool>(8).unwrap();
/// ```
///
/// # Safety
/// Every bit pattern of the type's size is a valid value. The type has no padding, no interior mutability and
/// no pointers.
///
/// ```
/// #[derive(Clone, Copy)]
/// #[repr(transparent)]
/// struct Wrapped(std::num::Wrapping<u32>);
///
/// // SAFETY: a `u32` and nothing else.
/// unsafe impl cuda_core::Pod for Wrapped {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be filled from a device",
    note = "`Pod` holds for types of which every bit pattern is a value and that have no padding",
    note = "declare a struct of your own by `cuda_core::pod! {{ struct P {{ .. }} }}`"
)]
#[doc(alias("DeviceCopy", "DeviceRepr", "ValidAsZeroBits"))]
pub unsafe trait Pod: Copy + Send + Sync + 'static {}

macro_rules! primitive {
    ($($ty:ty)*) => {$(
        // SAFETY: a primitive number: any bit pattern is a value, there is no padding.
        unsafe impl Pod for $ty {}
    )*};
}

primitive!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array is its elements one after the other, without padding between or after them.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// Declares structs that are [`Pod`]: the elements of buffers and arguments of kernels.
///
/// Each struct becomes `#[repr(C)]`, `Clone` and `Copy`: leave these two traits out of your own
/// `#[derive(…)]`, which may have others. The compiler checks that the fields are `Pod`, and that there is no
/// padding between or after them, so you write no `unsafe`. The macro takes structs with named fields and
/// without type parameters.
///
/// ```
/// cuda_core::pod! {
///     /// As the kernel has it: `struct Particle { float3 position; float mass; };`
///     #[derive(Debug, PartialEq)]
///     pub struct Particle {
///         pub position: [f32; 3],
///         pub mass: f32,
///     }
/// }
/// # let _ = |stream: &cuda_core::Stream| -> cuda_core::Result<()> {
/// let particles = [Particle { position: [0.0; 3], mass: 1.0 }; 100];
/// let mut buffer = stream.upload_new(&particles)?;
/// # Ok(()) };
/// ```
///
/// Padding does not compile; declare it as a field:
///
/// ```compile_fail,E0080
/// cuda_core::pod! {
///     struct Tagged { tag: u8, value: u32 } // three bytes after `tag`
/// }
/// ```
///
/// CUDA aligns its vector types to more than their elements: `float2` to 8 bytes, `float4` and `double2` to
/// 16, but `float3` to 4. An array in their place is aligned like its elements. So
/// `{ mass: f32, place: [f32; 4] }` has `place` at byte 4 and no padding, and compiles, but the kernel's
/// `struct { float mass; float4 place; }` has it at byte 16. Give such a field a type with CUDA's alignment,
/// and the gap becomes an error until it is a field:
///
/// ```
/// cuda_core::pod! {
///     #[repr(align(16))]
///     struct Float4 { xyzw: [f32; 4] }
///
///     /// `struct Body { float mass; float4 place; };`
///     struct Body { mass: f32, gap: [f32; 3], place: Float4 }
/// }
/// assert_eq!((std::mem::offset_of!(Body, place), size_of::<Body>()), (16, 32));
/// ```
///
/// A field that is not `Pod` does not compile:
///
/// ```compile_fail,E0277
/// cuda_core::pod! {
///     struct Flagged { flag: bool }
/// }
/// ```
#[macro_export]
macro_rules! pod {
    ($(
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_vis:vis $field:ident: $ty:ty),* $(,)?
        }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_attribute])* $field_vis $field: $ty),*
        }

        const _: () = {
            // The size of the field itself: an attribute may have changed the type written above.
            const fn size<S, F: $crate::Pod>(_: fn(S) -> F) -> usize {
                ::core::mem::size_of::<F>()
            }
            let _ = |$name { $($field: _),* }: $name| {};
            let mut fields = 0;
            $(
                ::core::assert!(
                    ::core::mem::offset_of!($name, $field) == fields,
                    ::core::concat!(
                        "`", ::core::stringify!($name), "` has padding before `",
                        ::core::stringify!($field), "`: add a field for it"
                    ),
                );
                fields += size(|$name { $field: one, .. }: $name| one);
            )*
            ::core::assert!(
                ::core::mem::size_of::<$name>() == fields,
                ::core::concat!(
                    "`", ::core::stringify!($name),
                    "` has padding after its last field: add a field for it"
                ),
            );
            // SAFETY: the lines above do not compile unless each field is `Pod`, and all of them
            // together are as large as the struct, which so has no padding.
            unsafe impl $crate::Pod for $name {}
        };
    )*};
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`pod!` declares structs with named fields and without generics: `pod! { struct Pair { \
             first: f32, second: f32 } }`"
        );
    };
}

/// Returns the bytes of a slice.
pub(crate) fn bytes_of<T: Pod>(slice: &[T]) -> &[u8] {
    // SAFETY: `Pod` has no padding, so all `size_of_val` bytes are initialised; `u8` has no
    // alignment to keep; the lifetime is that of the borrow.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

/// Returns the bytes of a slice for writing.
pub(crate) fn bytes_of_mut<T: Pod>(slice: &mut [T]) -> &mut [u8] {
    // SAFETY: `Pod` has no padding, so all `size_of_val` bytes are initialised, and any that are
    // written make valid values; `u8` has no alignment to keep; the lifetime is that of the
    // exclusive borrow.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
}
