//! Views and the plans they gave, written down. A change that is not to change behaviour is held against such a record:
//! the same views have to give the same plans, to the byte.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use planner::{ClusterView, Plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of a record.
#[derive(Serialize)]
struct Written<'a> {
    now: Timestamp,
    view: &'a ClusterView,
    plan: &'a Plan,
}

/// The same, read.
#[derive(Deserialize)]
struct Read {
    now: Timestamp,
    view: ClusterView,
    plan: Value,
}

/// Writes a record, from any number of threads.
pub struct Recorder {
    file: Mutex<GzEncoder<BufWriter<File>>>,
}

impl Recorder {
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = GzEncoder::new(BufWriter::new(File::create(path)?), Compression::fast());
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes one view and its plan down. An error shows again when the record is finished.
    pub fn note(&self, view: &ClusterView, now: Timestamp, plan: &Plan) {
        let Ok(mut line) = serde_json::to_vec(&Written { now, view, plan }) else { return };
        line.push(b'\n');
        let _ = self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
    }

    pub fn finish(self) -> io::Result<()> {
        let file = self.file.into_inner().unwrap_or_else(PoisonError::into_inner);
        file.finish()?.flush()
    }
}

/// What came of a record that was planned again.
#[derive(Debug, Default)]
pub struct Replayed {
    pub views: u64,
    pub differ: u64,
    /// The first plan that differs: as it was, and as it is.
    pub first: Option<String>,
}

/// Plans every view of a record again.
pub fn replay(path: &Path) -> io::Result<Replayed> {
    let mut replayed = Replayed::default();
    for line in BufReader::new(GzDecoder::new(File::open(path)?)).lines() {
        let Read { now, view, plan } = serde_json::from_str(&line?)?;
        let again = serde_json::to_value(planner::plan(&view, now))?;
        replayed.views += 1;
        if again != plan {
            replayed.differ += 1;
            let told = || format!("  {}/{} at {now}\n  was {plan}\n  is  {again}", view.namespace, view.name);
            replayed.first.get_or_insert_with(told);
        }
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner_loop;
    use crate::script::Script;

    #[test]
    fn what_was_recorded_is_planned_alike() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let recorder = Recorder::create(path.path()).unwrap();
        planner_loop::record(&Script::from_seed(7), &recorder);
        recorder.finish().unwrap();
        let replayed = replay(path.path()).unwrap();
        assert!(replayed.views > 20, "{replayed:?}");
        assert_eq!(replayed.differ, 0, "{replayed:?}");
    }
}
