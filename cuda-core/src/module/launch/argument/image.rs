//! Textures, surfaces, managed and virtual buffers as arguments.

use cuda_sys::CUdeviceptr;

use super::{Arguments, Touched, sealed};
use crate::device_memory::managed::ManagedBuffer;
use crate::device_memory::virtual_memory::buffer::VirtualBuffer;
use crate::image::texture::BoundTexture;
use crate::image::texture::surface::BoundSurface;
use crate::types::pod::Pod;

impl<'a> sealed::PushArgument<'a> for BoundTexture<'a> {
    fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
        let (handle, context, touches) = self.into_parts();
        touched.object("the texture", context, touches);
        arguments.push(&handle.to_ne_bytes());
    }
}

impl<'a> sealed::PushArgument<'a> for BoundSurface<'a> {
    fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
        let (handle, context, touches) = self.into_parts();
        touched.object("the surface", context, touches);
        arguments.push(&handle.to_ne_bytes());
    }
}

macro_rules! seen_through_views {
    ($($buffer:ident)*) => {$(
        impl<'a, T: Pod> sealed::TouchMemory<'a> for &'a $buffer<T> {
            fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
                self.as_view().touch(touched)
            }
        }

        impl<'a, T: Pod> sealed::TouchMemory<'a> for &'a mut $buffer<T> {
            fn touch(self, touched: &mut Touched<'a>) -> CUdeviceptr {
                self.as_view_mut().touch(touched)
            }
        }

        impl<'a, T: Pod> sealed::PushArgument<'a> for &'a $buffer<T> {
            fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
                self.as_view().push(arguments, touched);
            }
        }

        impl<'a, T: Pod> sealed::PushArgument<'a> for &'a mut $buffer<T> {
            fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
                self.as_view_mut().push(arguments, touched);
            }
        }
    )*};
}

seen_through_views!(ManagedBuffer VirtualBuffer);
