//! The cluster itself: credentials, the control plane, the nodes and what runs on them from the start.

pub mod addons;
pub mod api;
pub mod control_plane;
pub mod down;
pub mod images;
pub mod node;
pub mod node_config;
pub mod pki;
pub mod seed;
pub mod status;
pub mod up;
