//! The results as pictures: plain SVG, drawn here, so that a result needs no program but a browser to be looked at.

mod compared;
mod growth;
mod svg;
mod timeline;

pub use compared::compared;
pub use growth::growth;
pub use timeline::timeline;
