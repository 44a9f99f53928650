//! Writes the CRD manifests into the chart: `cargo run -p api --bin crdgen [directory]`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/etcd-operator/crd-bases");
    let dir = env::args_os().nth(1).map_or_else(|| PathBuf::from(chart), PathBuf::from);
    fs::create_dir_all(&dir)?;
    for manifest in api::crd::all()? {
        let yaml = manifest.yaml()?;
        fs::write(dir.join(&manifest.file_name), &yaml)?;
        println!("{} ({} KiB)", manifest.file_name, yaml.len().div_ceil(1024));
    }
    Ok(())
}
