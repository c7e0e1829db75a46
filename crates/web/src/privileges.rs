//! The user of the workers: the master stays root, binds and reads keys, and workers drop their
//! privileges before they read any client input.

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Group, Uid, User};
use serde::{Deserialize, Serialize};

use crate::UsageError;
use crate::config::Config;

/// User and group of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerUser {
    uid: u32,
    gid: u32,
}

impl WorkerUser {
    /// Looks up the configured user and group; `None` if no user is configured.
    pub(crate) fn find(config: &Config) -> anyhow::Result<Option<WorkerUser>> {
        let Some(user) = &config.user else { return Ok(None) };
        let unknown = |option: &str, name: &str| UsageError(format!("{option}: unknown {name:?}"));
        let named = User::from_name(user).context("could not look up the user")?;
        let (uid, own_group) = if let Some(found) = named {
            (found.uid, Some(found.gid))
        } else {
            let uid = Uid::from_raw(user.parse().map_err(|_| unknown("user", user))?);
            let found = User::from_uid(uid).context("could not look up the user")?;
            (uid, found.map(|found| found.gid))
        };
        let gid = match &config.group {
            Some(group) => match Group::from_name(group).context("could not look up the group")? {
                Some(found) => found.gid,
                None => Gid::from_raw(group.parse().map_err(|_| unknown("group", group))?),
            },
            None => own_group.ok_or_else(|| {
                UsageError(format!("user: {user} is not in the user database and requires group"))
            })?,
        };
        let found = WorkerUser { uid: uid.as_raw(), gid: gid.as_raw() };
        if !found.is_current() && !Uid::effective().is_root() {
            return Err(UsageError("user: only root can run workers as another user".into()).into());
        }
        Ok(Some(found))
    }

    fn is_current(self) -> bool {
        (self.uid, self.gid) == (Uid::effective().as_raw(), Gid::effective().as_raw())
    }

    /// Switches this process to the user permanently. Must be called before any thread starts.
    pub(crate) fn assume(self) -> anyhow::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        if Uid::effective().is_root() {
            nix::unistd::setgroups(&[]).context("could not clear the supplementary groups")?;
            nix::unistd::setresgid(gid, gid, gid).context("could not change the group")?;
            nix::unistd::setresuid(uid, uid, uid).context("could not change the user")?;
        }
        let (users, groups) = (nix::unistd::getresuid()?, nix::unistd::getresgid()?);
        let all = [users.real, users.effective, users.saved].iter().all(|one| *one == uid)
            && [groups.real, groups.effective, groups.saved].iter().all(|one| *one == gid);
        // Starting with unexpected privileges is worse than not starting.
        if !all || (!uid.is_root() && nix::unistd::setresuid(uid, Uid::from_raw(0), uid).is_ok()) {
            bail!("the system did not change the user");
        }
        nix::sys::prctl::set_no_new_privs().context("could not disable new privileges")
    }
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(user: &str, group: Option<&str>) -> Result<Option<WorkerUser>, String> {
        let config = Config {
            user: Some(user.to_owned()),
            group: group.map(str::to_owned),
            ..Config::default()
        };
        WorkerUser::find(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(WorkerUser::find(&Config::default()).unwrap(), None);
        let (uid, gid) = (Uid::effective(), Gid::effective());
        let own = WorkerUser { uid: uid.as_raw(), gid: gid.as_raw() };
        let (user, group) = (uid.to_string(), gid.to_string());
        assert_eq!(find(&user, Some(&group)), Ok(Some(own)));
        if let Some(named) = User::from_uid(uid).unwrap() {
            assert_eq!(find(&named.name, None).unwrap().unwrap().uid, own.uid);
        }
        assert_eq!(find("no such user", None), Err("user: unknown \"no such user\"".into()));
        assert_eq!(find(&user, Some("no such")), Err("group: unknown \"no such\"".into()));
        if !is_root() {
            let other = (uid.as_raw() + 1).to_string();
            assert!(find(&other, Some(&group)).unwrap_err().contains("only root"));
        }
    }
}
