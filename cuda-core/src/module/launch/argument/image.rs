//! Textures, surfaces, managed and virtual buffers as arguments.

use super::{Arguments, Touched, sealed};
use crate::image::texture::BoundTexture;
use crate::image::texture::surface::BoundSurface;

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
