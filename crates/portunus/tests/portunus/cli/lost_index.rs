//! The index of SQLite's log is deleted while several processes use the database.

use std::process::{Child, Stdio};

use sqlx::{Connection as _, SqliteConnection};

use super::full_disk::{accept_of, answer, call, prepare, reply, start};
use super::{Folder, holds_soon, program, terminate};

const ROUNDS: usize = 8;

fn follow(folder: &Folder) -> Child {
    let mut command = program(folder);
    command.args(["audit", "--follow"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn processes_that_lose_the_index_of_the_log_leave_the_database_sound() {
    let folder = Folder::new("lost-index");
    let (upstream, key) = prepare(&folder);
    let (child, _log, url) = start(&folder);
    let mut follower = follow(&folder);
    for round in 0..ROUNDS {
        // The gateway opens the database again with its next statement.
        let index = folder.0.join("data/portunus.db-shm");
        assert!(holds_soon(|| std::fs::remove_file(&index).is_ok()), "{round}");
        let served = || {
            let mut caller = call(&url, &key);
            // A call that needs the database while it is opened again is refused.
            let reached =
                accept_of(&mut caller, &upstream).map(|mut connection| answer(&mut connection));
            let got = reply(caller);
            assert!(got.starts_with("HTTP/1.1 200") || reached.is_none(), "{got}");
            reached.is_some()
        };
        assert!(holds_soon(served), "{round}");
        // A process that notices the loss ends, or goes on with the new index.
        let made = || {
            let name = format!("round {round}");
            folder.run(&["keys", "create", "--name", &name, "--unlimited"]).status.success()
        };
        assert!(holds_soon(made), "{round}");
        if follower.try_wait().unwrap().is_some() {
            follower = follow(&folder);
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
    let all_are_posted = || {
        let exported = folder.run(&["ledger", "export"]);
        String::from_utf8(exported.stdout).unwrap().lines().count() == ROUNDS
    };
    assert!(holds_soon(all_are_posted));
    assert_eq!(terminate(child), Some(0));
    let proved = folder.run(&["ledger", "verify"]);
    assert!(proved.status.success(), "{proved:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found: String = runtime.block_on(async {
        let url = format!("sqlite:{}", folder.0.join("data/portunus.db").display());
        let mut database = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut database).await.unwrap()
    });
    assert_eq!(found, "ok");
}
