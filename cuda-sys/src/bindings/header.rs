pub(crate) const HEADER: Option<crate::Header> = None;
