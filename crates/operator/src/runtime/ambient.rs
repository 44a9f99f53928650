//! What a pass takes from outside besides objects and etcd: the time, and chance. A simulation brings its own, so that a
//! run can be repeated.

use jiff::Timestamp;

/// Time and chance.
pub trait Ambient: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Sixty-four random bits.
    fn entropy(&self) -> u64;
}

/// The clock on the wall, and real chance.
pub struct Real;

impl Ambient for Real {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn entropy(&self) -> u64 {
        rand::random()
    }
}
