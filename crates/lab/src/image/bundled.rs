//! The images every node of the lab has: the Pod sandbox, CoreDNS, probes for tests, and the
//! etcd releases.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::{Recipe, archive};
use crate::{
    progress::Progress,
    tools::{
        Toolbox,
        catalogue::{ETCD, ETCD_PROGRAMS, hex},
    },
};

/// Sandbox of every Pod.
pub const PAUSE: &str = "localhost/lab/pause:1";
pub const COREDNS: &str = "localhost/lab/coredns:lab";

/// Probes for tests, since the other images hold no shell.
pub const TOOLBOX: &str = "localhost/lab/toolbox:1";

struct Bundle {
    image: String,
    dockerfile: String,
    programs: Vec<PathBuf>,
}

/// Archives of all bundled images, made once and kept in the cache; the ones a node needs to start come first.
pub fn ensure(cache: &Path, tools: &Toolbox, progress: &Progress) -> Result<Vec<PathBuf>> {
    let bundles = bundles(tools)?;
    let paths: Vec<_> = bundles.iter().map(|bundle| bundle.path(cache)).collect();
    if paths.iter().all(|path| path.exists()) {
        return Ok(paths);
    }
    let step = progress.step("assembling the images of the lab");
    for (bundle, path) in bundles.iter().zip(&paths).filter(|(_, path)| !path.exists()) {
        bundle.build(path).with_context(|| format!("cannot assemble the image {}", bundle.image))?;
    }
    step.done();
    Ok(paths)
}

pub fn etcd_images() -> Result<Vec<String>> {
    ETCD.iter().map(|module| Ok(format!("quay.io/coreos/etcd:v{}", module.version()?))).collect()
}

fn bundles(tools: &Toolbox) -> Result<Vec<Bundle>> {
    let mut bundles = vec![
        Bundle {
            image: PAUSE.into(),
            dockerfile: "FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT [\"/pause\"]\n".into(),
            programs: vec![tools.program("pause", "pause")?.to_path_buf()],
        },
        Bundle {
            image: COREDNS.into(),
            dockerfile: "FROM scratch\nCOPY coredns /coredns\nENTRYPOINT [\"/coredns\"]\n".into(),
            programs: vec![tools.program("coredns", "coredns")?.to_path_buf()],
        },
        Bundle {
            image: TOOLBOX.into(),
            dockerfile: "FROM scratch\nCOPY toolbox /toolbox\nUSER 65532:65532\nENTRYPOINT [\"/toolbox\"]\nCMD [\"serve\"]\n"
                .into(),
            programs: vec![tools.program("toolbox", "toolbox")?.to_path_buf()],
        },
    ];
    for (module, image) in ETCD.iter().zip(etcd_images()?) {
        let programs = ETCD_PROGRAMS.map(|(name, _)| tools.program(module.name, name).map(Path::to_path_buf));
        bundles.push(Bundle {
            image,
            // Command and directories as in the project's own image, so that Pod specs fit both.
            dockerfile: "FROM scratch\nCOPY etcd etcdctl etcdutl /usr/local/bin/\nWORKDIR /var/etcd/\n\
                         EXPOSE 2379 2380\nENV PATH=/usr/local/bin\nCMD [\"/usr/local/bin/etcd\"]\n"
                .into(),
            programs: programs.into_iter().collect::<Result<_>>()?,
        });
    }
    Ok(bundles)
}

impl Bundle {
    /// The programs' own paths hold their content keys, so they stand for the content.
    fn path(&self, cache: &Path) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(archive::FORMAT.to_le_bytes());
        hash.update(&self.image);
        hash.update(&self.dockerfile);
        for program in &self.programs {
            let entry = program.parent().and_then(Path::file_name).unwrap_or_default();
            hash.update(entry.as_encoded_bytes());
        }
        let name = self.image.rsplit('/').next().unwrap_or_default().replace(':', "-");
        cache.join("images").join(format!("{name}-{}.tar", &hex(&hash.finalize())[..16]))
    }

    fn build(&self, path: &Path) -> Result<()> {
        let dir = path.parent().context("an image archive has a directory")?;
        let context = dir.join(format!(".context-{}", std::process::id()));
        let _ = fs::remove_dir_all(&context);
        fs::create_dir_all(&context)?;
        for program in &self.programs {
            let name = program.file_name().context("a program has a name")?;
            std::os::unix::fs::symlink(program, context.join(name))?;
        }
        let recipe = Recipe::parse(&self.dockerfile)?;
        let built = archive::assemble(&recipe, &context, &self.image, path);
        let _ = fs::remove_dir_all(&context);
        built
    }
}
