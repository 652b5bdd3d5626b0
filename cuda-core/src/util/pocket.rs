//! Fields that a room keeps for a room above it.

/// A field of a type that only a room above knows. The lower room names the field; the upper one
/// says, by implementing this for the name, what is in it. So the lower room imports nothing, and
/// what is there lies in place and is called directly.
pub(crate) trait Pocket {
    /// The field's type. The field starts as its default.
    type Content: Default;
}
