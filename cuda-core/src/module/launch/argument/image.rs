//! Textures and surfaces as arguments.

use super::{Arguments, Touched, sealed};
use crate::image::texture::object::{BoundObject, ObjectKind};

impl<'a, K: ObjectKind> sealed::PushArgument<'a> for BoundObject<'a, K> {
    fn push(self, arguments: &mut Arguments, touched: &mut Touched<'a>) {
        let (handle, context, touches) = self.into_parts();
        let [_, what] = K::NAMES;
        touched.object(what, context, touches);
        arguments.push(&handle.to_ne_bytes());
    }
}
