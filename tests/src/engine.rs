//! A corner of the real engine for one test: whatever carries its label goes when the test ends, also when it
//! fails. Touches nothing else, for the engine has other tenants.

use std::time::Duration;

use mesh_engine::{Engine, Environment, LabelSelector, Signal, endpoint};

/// The engine that this machine's tests use.
///
/// # Panics
/// When none answers, saying what to do.
pub async fn connect() -> Engine {
    let endpoint = endpoint::resolve(None, &Environment::of_this_process()).unwrap();
    match Engine::connect(&endpoint).await {
        Ok(engine) => engine,
        Err(error) => panic!("{error}: {}", error.remedy().unwrap_or_default()),
    }
}

/// What in the engine goes with this value.
#[derive(Debug)]
pub struct Corner {
    label: String,
    value: String,
}

impl Corner {
    /// The corner of what carries `label` with `value`: for a mesh, the label that holds its id.
    #[must_use]
    pub fn of(label: &str, value: &str) -> Self {
        Self { label: label.to_owned(), value: value.to_owned() }
    }

    /// The label that what is made in it must carry, and its value.
    #[must_use]
    pub fn label(&self) -> (&str, &str) {
        (&self.label, &self.value)
    }

    /// What selects it.
    #[must_use]
    pub fn selector(&self) -> LabelSelector {
        LabelSelector::is(&self.label, &self.value)
    }
}

impl Drop for Corner {
    fn drop(&mut self) {
        let selector = self.selector();
        // On a thread of its own: the test's runtime may be the one that is just being ended.
        let cleaning = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(clean(&selector));
        });
        if cleaning.join().is_err() {
            eprintln!("what carries {}={} could not be removed from the engine", self.label, self.value);
        }
    }
}

async fn clean(selector: &LabelSelector) {
    let engine = connect().await;
    for container in engine.list(selector).await.unwrap() {
        engine.kill(&container.id, Signal::Kill).await.unwrap();
        engine.wait(&container.id, Duration::from_secs(30)).await.unwrap();
        engine.remove(&container.id).await.unwrap();
    }
    for image in engine.list_images(selector).await.unwrap() {
        // One that another test uses stays until that one's corner goes.
        engine.remove_image(&image.id).await.unwrap();
    }
}
