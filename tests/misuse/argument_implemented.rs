//~ E0277
// A type is passed as memory or as a value that cuda-core knows, not as itself.
use cuda_core::{Argument, DeviceBuffer, DeviceSlice};

struct Tensor(DeviceBuffer<f32>);

#[cfg(misuse)]
impl<'a> Argument<'a> for &'a Tensor {
    type As = &'a Tensor;
    fn into_argument(self) -> Self::As {
        self
    }
}
#[cfg(not(misuse))]
impl<'a> Argument<'a> for &'a Tensor {
    type As = DeviceSlice<'a, f32>;
    fn into_argument(self) -> Self::As {
        self.0.as_view()
    }
}

fn is_argument<'a>(_: impl Argument<'a>) {}

fn main() {
    let _ = |tensor: &Tensor| is_argument(tensor);
}
