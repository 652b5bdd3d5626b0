//! Fields that a lower room keeps for a room above it.

/// A field whose type only a room above knows. The lower room names the field; the upper room implements this
/// trait for the name and so chooses the field's type. The lower room imports nothing, and the content is
/// stored in place and called directly.
pub(crate) trait Pocket {
    /// The field's type. The field starts as its default.
    type Content: Default;
}
