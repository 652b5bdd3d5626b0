//! NCCL
mod call;
mod communicator;
mod element;
mod group;
mod library;
mod on_stream;
mod ranks;
mod raw;
mod reduction;
mod unique_id;

pub use communicator::{Communicator, CommunicatorOptions};
pub use element::Element;
pub use group::{Group, group};
pub use library::{install, version};
pub use on_stream::OnStream;
pub use ranks::{OnStreams, Ranks};
pub use reduction::Reduction;
pub use unique_id::UniqueId;
