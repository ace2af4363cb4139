//! One run of the real program, with a run folder as a host would give it.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::bus::Settings;
use mesh_protocol::handover::{Role, RoleAck, RoleOrder};
use mesh_protocol::id::InstanceId;

use crate::support::{SOON, mesh, until};

pub struct Instance {
    pub id: InstanceId,
    pub folder: Utf8PathBuf,
    child: Child,
    number: u64,
}

impl Instance {
    pub fn start(at: &Utf8Path, name: &str, seat: &Settings, state: &Settings, lease: Duration) -> Self {
        let folder = at.join("run").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("instance"), format!("{name}\n")).unwrap();
        std::fs::write(folder.join("role.ack"), "").unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_mesh-controller"))
            .args(["--mesh", mesh().as_str(), "--name", "lab", "--bus", &seat.address])
            .args(["--seat-credential", seat.credential.as_str()])
            .args(["--state-credential", state.credential.as_str()])
            .args(["--run-dir", folder.as_str()])
            .args(["--lease-ms", &lease.as_millis().to_string()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { id: name.parse().unwrap(), folder, child, number: 0 }
    }

    /// Writes an order, as a host does.
    pub fn order(&mut self, role: Role) {
        self.number += 1;
        let order = RoleOrder { instance: self.id.clone(), role, number: self.number };
        let beside = self.folder.join("role.new");
        std::fs::write(&beside, serde_json::to_vec(&order).unwrap()).unwrap();
        std::fs::rename(beside, self.folder.join("role")).unwrap();
    }

    /// Orders, and waits until it is acknowledged; answers how long that took.
    pub async fn give(&mut self, role: Role) -> Duration {
        let started = Instant::now();
        self.order(role);
        self.acknowledged(role, None).await;
        started.elapsed()
    }

    /// Waits for an acknowledgement of the last order.
    pub async fn acknowledged(&self, role: Role, trouble: Option<&str>) {
        let right = |ack: RoleAck| {
            ack.number == self.number
                && ack.role == role
                && match (&ack.trouble, trouble) {
                    (None, None) => true,
                    (Some(found), Some(part)) => found.contains(part),
                    _ => false,
                }
        };
        until("the order is acknowledged", async || self.ack().is_some_and(right))
            .await
            .unwrap_or_else(|error| panic!("{error}: {:?}\n{}", self.ack(), self.log()));
    }

    pub fn ack(&self) -> Option<RoleAck> {
        serde_json::from_slice(&std::fs::read(self.folder.join("role.ack")).ok()?).ok()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The most memory it ever had, in kilobytes.
    pub fn peak_kilobytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn freeze(&self) {
        self.signal("STOP");
    }

    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < SOON, "it does not end: {}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.id, self.log());
        }
    }
}
