//! The object that keeps two processes from writing one backup.
//!
//! Its owner changes it every 20 seconds. A process that finds one waits for longer than that: if it
//! has not changed, its owner has ended. No clocks are compared. All changes are conditional, so
//! that an owner that was replaced notices it.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::{PATIENCE, plain};

pub(crate) const NAME: &str = "LOCK";
const OWNER_BYTES_MAX: u64 = 4096;
const RENEWAL: Duration = Duration::from_secs(20);
/// A lock that has not changed for this time has no owner.
const LEASE: Duration = Duration::from_mins(1);

// A renewal is repeated for `PATIENCE`; its owner gives up before another process takes over.
const _: () = assert!(RENEWAL.as_secs() + PATIENCE.as_secs() < LEASE.as_secs());

/// The process that writes a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    host: String,
    process: u32,
    renewals: u64,
}

#[derive(Debug)]
pub(crate) struct Lock {
    object: Object,
    is_lost: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

#[derive(Debug, Clone)]
struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    place: String,
}

impl Object {
    async fn put(&self, owner: &Owner, mode: PutMode) -> object_store::Result<UpdateVersion> {
        let bytes = serde_json::to_vec(owner).expect("its fields are text and numbers");
        let options = PutOptions { mode, ..PutOptions::default() };
        Ok(self.store.put_opts(&self.path, PutPayload::from(bytes), options).await?.into())
    }

    /// The owner; `None`: there is no lock.
    async fn read(&self) -> anyhow::Result<Option<(Owner, UpdateVersion)>> {
        let reading = || format!("could not read {}", self.place);
        let found = match self.store.get(&self.path).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(plain).with_context(reading)?,
        };
        let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
        let malformed =
            || format!("{} is malformed; delete it if no backup is running", self.place);
        ensure!(found.meta.size <= OWNER_BYTES_MAX, malformed());
        let bytes = found.bytes().await.map_err(plain).with_context(reading)?;
        let owner = serde_json::from_slice(&bytes).with_context(malformed)?;
        Ok(Some((owner, UpdateVersion { e_tag, version })))
    }
}

/// Makes this process the owner. `place`: the lock, for messages.
pub(crate) async fn take(
    store: Arc<dyn ObjectStore>,
    path: Path,
    place: String,
) -> anyhow::Result<Lock> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = Owner { host, process: std::process::id(), renewals: 0 };
    let object = Object { store, path, place };
    let version = own_version(&object, &own).await?;
    let is_lost = Arc::new(AtomicBool::new(false));
    let renewing = tokio::spawn(renew(object.clone(), own, version, Arc::clone(&is_lost)));
    Ok(Lock { object, is_lost, renewing })
}

async fn own_version(object: &Object, own: &Owner) -> anyhow::Result<UpdateVersion> {
    if let Some(version) = create(object, own).await? {
        return Ok(version);
    }
    let in_use = || format!("{} is in use by another process", object.place);
    if let Some((owner, version)) = object.read().await? {
        let Owner { host, process, .. } = &owner;
        // Standard error may be closed.
        let _ = writeln!(
            io::stderr(),
            "myriad: process {process} of {host} has {}; waiting {} s to see whether it has ended",
            object.place,
            LEASE.as_secs()
        );
        sleep(LEASE).await;
        match object.read().await? {
            None => {}
            Some((same, _)) if same == owner => {
                return match object.put(own, PutMode::Update(version)).await {
                    Err(Error::Precondition { .. }) => bail!(in_use()),
                    replaced => replaced.map_err(plain).with_context(|| writing(object)),
                };
            }
            Some((owner, _)) => bail!("{}: {} of {}", in_use(), owner.process, owner.host),
        }
    }
    // It was released meanwhile.
    create(object, own).await?.with_context(in_use)
}

fn writing(object: &Object) -> String {
    format!("could not write {}", object.place)
}

/// Creates the lock. `None`: there is one.
async fn create(object: &Object, own: &Owner) -> anyhow::Result<Option<UpdateVersion>> {
    match object.put(own, PutMode::Create).await {
        Err(Error::AlreadyExists { .. }) => Ok(None),
        created => created.map(Some).map_err(plain).with_context(|| writing(object)),
    }
}

/// Changes the lock from time to time, until it is another's.
async fn renew(object: Object, mut own: Owner, mut version: UpdateVersion, lost: Arc<AtomicBool>) {
    let mut renewed = Instant::now();
    loop {
        sleep(RENEWAL).await;
        own.renewals += 1;
        match object.put(&own, PutMode::Update(version.clone())).await {
            Ok(next) => (version, renewed) = (next, Instant::now()),
            Err(Error::Precondition { .. }) => break,
            Err(_) if renewed.elapsed() + RENEWAL + PATIENCE >= LEASE => break,
            Err(_) => {}
        }
    }
    lost.store(true, Ordering::SeqCst);
}

impl Lock {
    /// Whether another process may write the backup now.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    pub(crate) async fn release(self) -> io::Result<()> {
        self.renewing.abort();
        if self.is_lost() {
            return Ok(());
        }
        self.object.store.delete(&self.object.path).await.map_err(plain)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    async fn take_from(store: &Arc<InMemory>) -> anyhow::Result<Lock> {
        let store: Arc<dyn ObjectStore> = Arc::clone(store) as _;
        take(store, Path::from(NAME), "s3://b/LOCK".to_owned()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_has_one_owner_until_it_is_released() {
        let store = Arc::new(InMemory::new());
        let first = take_from(&store).await.unwrap();
        let refused = take_from(&store).await.unwrap_err().to_string();
        assert!(refused.contains("s3://b/LOCK is in use by another process"), "{refused}");
        assert!(!first.is_lost());
        first.release().await.unwrap();
        take_from(&store).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_has_ended_is_replaced() {
        let store = Arc::new(InMemory::new());
        let first = take_from(&store).await.unwrap();
        first.renewing.abort();
        let before = Instant::now();
        let second = take_from(&store).await.unwrap();
        assert!(before.elapsed() >= LEASE);
        assert!(!second.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_released_meanwhile_is_taken() {
        let store = Arc::new(InMemory::new());
        let first = take_from(&store).await.unwrap();
        let of_second = Arc::clone(&store);
        let second = tokio::spawn(async move { take_from(&of_second).await });
        sleep(LEASE / 2).await;
        first.release().await.unwrap();
        assert!(!second.await.unwrap().unwrap().is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_notices_that_it_was_replaced() {
        let store = Arc::new(InMemory::new());
        let first = take_from(&store).await.unwrap();
        store.delete(&Path::from(NAME)).await.unwrap();
        let second = take_from(&store).await.unwrap();
        sleep(2 * RENEWAL).await;
        assert!(first.is_lost() && !second.is_lost());
        first.release().await.unwrap();
        assert!(take_from(&store).await.is_err(), "the lock of the second one is still there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_malformed_lock_is_refused() {
        let store = Arc::new(InMemory::new());
        store.put(&Path::from(NAME), "x".into()).await.unwrap();
        let refused = take_from(&store).await.unwrap_err().to_string();
        assert!(refused.contains("is malformed"), "{refused}");
    }
}
