//! What this instance is and does, as its parts share it: who, which program, in which role.
//!
//! In: changes of the role, told by [`crate::roles`]. Out: what answers say of whoever gives them. Not here: why
//! the role changes.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

use mesh_protocol::handover::{Form, Role};
use mesh_protocol::id::{Digest, InstanceId};
use mesh_protocol::verb::By;
use sha2::Digest as _;
use tokio::sync::Notify;

/// What this program says its version is.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// This instance.
#[derive(Debug)]
pub struct Myself {
    instance: InstanceId,
    program: Digest,
    serving: AtomicBool,
    lock_taken: AtomicBool,
    /// Told when there is something for the executor to do.
    pub wake: Notify,
}

impl Myself {
    /// An instance that stands by, as all do at first.
    #[must_use]
    pub fn new(instance: InstanceId, program: Digest) -> Self {
        Self {
            instance,
            program,
            serving: AtomicBool::new(false),
            lock_taken: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// Who.
    #[must_use]
    pub const fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// The digest of the program that it runs.
    #[must_use]
    pub const fn program(&self) -> &Digest {
        &self.program
    }

    /// What it does.
    #[must_use]
    pub fn role(&self) -> Role {
        if self.serving.load(Ordering::Acquire) { Role::Serving } else { Role::StandingBy }
    }

    /// It does something else now. Serving begins without the lock ever taken.
    pub fn set_role(&self, role: Role) {
        if role == Role::Serving {
            self.lock_taken.store(false, Ordering::Release);
        }
        self.serving.store(role == Role::Serving, Ordering::Release);
    }

    /// Whether it has held the plan lock since it was told to serve.
    #[must_use]
    pub fn lock_taken(&self) -> bool {
        self.lock_taken.load(Ordering::Acquire)
    }

    /// It holds the plan lock.
    pub fn took_lock(&self) {
        self.lock_taken.store(true, Ordering::Release);
    }

    /// As an answer says it.
    #[must_use]
    pub fn by(&self) -> By {
        By {
            instance: self.instance.clone(),
            form: form(&self.instance),
            role: self.role(),
            version: VERSION.to_owned(),
        }
    }
}

/// In which form an instance runs: its host says so by the first letter of its id.
#[must_use]
pub fn form(instance: &InstanceId) -> Form {
    if instance.as_str().starts_with("c-") { Form::Container } else { Form::Process }
}

/// The digest of the program that runs here.
///
/// # Errors
/// When it cannot be read.
pub fn program_digest() -> Result<Digest, std::io::Error> {
    let mut program = std::fs::File::open("/proc/self/exe")?;
    let mut hash = sha2::Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match program.read(&mut chunk)? {
            0 => return Ok(Digest::from_sha256(hash.finalize().into())),
            read => hash.update(&chunk[..read]),
        }
    }
}
