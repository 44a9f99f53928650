//! Container images without a container builder.
//!
//! [`dockerfile`] reads the small part of the Dockerfile language that an image of static binaries needs,
//! [`archive`] writes the archive, the same bytes for the same inputs, and [`bundled`] makes the lab's own images.

pub mod archive;
pub mod bundled;
pub mod dockerfile;
pub mod reference;

pub use archive::assemble;
pub use dockerfile::Recipe;
