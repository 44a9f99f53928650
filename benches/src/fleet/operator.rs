//! The operator as a process of this machine, with the permissions it has when installed: it uses a token of its service
//! account. So its memory and time are its own, and its requests are counted like those of the installed one.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::meter::Process;
use crate::target::Target;

/// Longer than the longest run.
const TOKEN_LIFETIME: i64 = 8 * 3600;
const FAREWELL: Duration = Duration::from_secs(15);

/// How the operator is started.
pub struct Launch {
    pub manager: PathBuf,
    kubeconfig: PathBuf,
    log: PathBuf,
}

impl Launch {
    /// `folder` receives the log and, while this lives, a kubeconfig.
    pub async fn prepare(target: &Target, manager: &Path, folder: &Path) -> Result<Self> {
        let accounts: Api<ServiceAccount> =
            Api::namespaced(target.client.clone(), &target.deployment.namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_LIFETIME), ..Default::default() };
        let request = TokenRequest { spec: Some(spec), ..Default::default() };
        let account = target.service_account().await?;
        let answer = accounts.create_token_request(&account, &PostParams::default(), &request).await?;
        let token = answer.status.and_then(|status| status.token);
        let token = token.context("the API server gave no token")?;
        let theirs = std::fs::read_to_string(&target.kubeconfig)?;
        let kubeconfig = folder.join("operator.kubeconfig");
        write_private(&kubeconfig, &with_token(&theirs, &token)?)?;
        Ok(Self { manager: manager.to_owned(), kubeconfig, log: folder.join("operator.log") })
    }

    pub fn start(&self) -> Result<Running> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.manager)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--metrics-bind-address=127.0.0.1:18080", "--health-probe-bind-address=127.0.0.1:18081"])
            .arg("--zap-log-level=warn")
            // As the image has it.
            .env("MIMALLOC_ALLOW_THP", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {} (`make image` builds it)", self.manager.display()))?;
        Ok(Running { child })
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // It carries a token.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// An operator that runs.
pub struct Running {
    child: Child,
}

impl Running {
    pub fn process(&self) -> Result<Process> {
        self.child.id().map(Process).context("the operator has ended, its log says why")
    }

    /// Asks it to end and waits until it has.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(pid) = pid else { bail!("the operator has ended by itself, its log says why") };
        kill_process(pid, Signal::TERM)?;
        tokio::time::timeout(FAREWELL, self.child.wait()).await.context("the operator does not end")??;
        Ok(())
    }
}

/// The same cluster, another user.
fn with_token(kubeconfig: &str, token: &str) -> Result<String> {
    let mut config: Value = serde_norway::from_str(kubeconfig).context("the kubeconfig is not YAML")?;
    let users =
        config.get_mut("users").and_then(Value::as_array_mut).context("the kubeconfig has no users")?;
    for user in users {
        user["user"] = json!({ "token": token });
    }
    Ok(serde_norway::to_string(&config)?)
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_replaces_every_other_credential() {
        let theirs = "clusters:\n- name: lab\n  cluster: {server: 'https://x'}\nusers:\n- name: admin\n  user:\n    client-key-data: secret\n";
        let ours = with_token(theirs, "abc").unwrap();
        assert!(ours.contains("https://x") && ours.contains("abc"));
        assert!(!ours.contains("secret"));
        assert!(with_token("clusters: []", "abc").is_err());
    }

    #[test]
    fn a_token_is_written_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        write_private(&path, "x").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
