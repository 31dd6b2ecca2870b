//! Erasure of an account: nothing personal is left, every sum is, and others keep what is theirs.

use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{CallOutcome, LedgerEntry, SettlementKnowledge};
use store::{
    Account, ArchiveFile, AuditLine, Factor, FactorKind, Identity, KeyRecord, Link, LinkPurpose,
    Session, Store, StoredResponse,
};

use crate::on_both;
use crate::samples::{account, entry, id, key};
use crate::test_database::TestDatabase;

on_both!(
    an_erased_account_leaves_its_sums_and_nothing_else,
    sessions_of_archived_and_corrected_calls_are_erased,
    rows_that_changed_often_leave_no_copies,
    an_erasure_that_was_interrupted_is_listed_and_may_be_repeated,
    lines_and_links_of_others_are_not_changed,
);

const NOW: Micros = Micros::new(1_000_000);

async fn is_proved(store: &Store) {
    let (proofs, _) = store.verify().await.unwrap();
    for proof in proofs {
        assert!(proof.violations.is_empty(), "{proof:?}");
    }
}

/// Adds an account with a row in most tables. All of its texts contain the word.
async fn furnish(store: &Store, word: &str) -> (Account, KeyRecord) {
    let account = Account {
        email: Some(format!("{word}@example.com")),
        password_hash: Some(format!("hash of {word}")),
        ..account(word)
    };
    store.add_account(&account).await.unwrap();
    let key = KeyRecord {
        name: format!("key of {word}"),
        ips: vec![format!("10.0.0.1#{word}")],
        ..key(&account.id)
    };
    store.add_key(&key).await.unwrap();
    let session = Session {
        hash: word.as_bytes().to_vec(),
        account_id: account.id.clone(),
        created: NOW,
        expires: NOW,
        seen: NOW,
    };
    store.add_session(&session).await.unwrap();
    let identity = Identity {
        issuer: "issuer".to_owned(),
        subject: format!("subject {word}"),
        account_id: account.id.clone(),
        label: word.to_owned(),
        object_id: Some(format!("object {word}")),
        created: NOW,
    };
    store.add_identity(&identity).await.unwrap();
    let factor = Factor {
        id: format!("passkey {word}"),
        account_id: account.id.clone(),
        kind: FactorKind::Passkey,
        name: word.to_owned(),
        secret: vec![1],
        sealed_by: None,
        counter: 0,
        created: NOW,
        used: None,
    };
    store.add_factor(&factor).await.unwrap();
    for (number, account_id) in [(0, Some(account.id.clone())), (1, None)] {
        let link = Link {
            hash: format!("{number}{word}").into_bytes(),
            purpose: LinkPurpose::Invite,
            account_id,
            data: format!("{{\"email\":\"{word}@example.com\"}}"),
            created: NOW,
            expires: NOW,
        };
        store.add_link(&link).await.unwrap();
    }
    let response = StoredResponse {
        id: format!("resp_{word}"),
        account_id: account.id.clone(),
        key_id: Some(key.id.clone()),
        request: format!("[\"{word}\"]"),
        reply: format!("\"{word}\""),
        created: NOW,
        expires: Micros::MAX,
    };
    store.store_response(&response).await.unwrap();
    let line = |actor: &str, subject: &str, detail: &str| {
        let (actor, subject, detail) = (actor.to_owned(), subject.to_owned(), detail.to_owned());
        async move {
            let line = AuditLine {
                at: NOW,
                actor: &actor,
                key_id: None,
                action: "key.create",
                subject: &subject,
                detail: &detail,
                address: Some("192.0.2.7"),
                agent: Some("agent of somebody"),
            };
            store.add_audit(&line).await.unwrap();
        }
    };
    line(&account.id, &key.id, &format!("key of {word}")).await;
    line("anonymous", &account.id, "password").await;
    line("someone", &format!("{word}@example.com"), "member").await;
    line("someone", "team", &format!("invited {word}@example.com")).await;
    let calls: Vec<LedgerEntry> = (0..20)
        .map(|number| LedgerEntry {
            session: if number < 10 { format!("session of {word}") } else { String::new() }.into(),
            end_user: format!("customer of {word}").into(),
            tags: [("of", word)].into_iter().collect(),
            ..entry(&id(), &key, 5, number * 1_000)
        })
        .collect();
    store.post(&calls).await.unwrap();
    (account, key)
}

async fn erase(store: &Store, account: &Account) {
    store.overwrite_deleted(true).await.unwrap();
    let lines = store.lines_naming(account).await.unwrap();
    let mut change = store.begin_change().await.unwrap();
    change.erase_account(account, NOW).await.unwrap();
    change.erase_names_in_audits(account, lines).await.unwrap();
    let line = AuditLine {
        at: NOW,
        actor: "command line",
        key_id: None,
        action: "account.erase",
        subject: &account.id,
        detail: "1 keys revoked",
        address: None,
        agent: None,
    };
    change.commit(&[line]).await.unwrap();
    store.erase_rest(&account.id, NOW).await.unwrap();
    store.overwrite_deleted(false).await.unwrap();
}

/// Returns how often the files of a SQLite database contain the word.
fn count_in_files(database: &TestDatabase, word: &str) -> usize {
    let url = database.url();
    let Some(path) = url.strip_prefix("sqlite:") else { return 0 };
    let count = |ending: &str| {
        let bytes = std::fs::read(format!("{path}{ending}")).unwrap_or_default();
        bytes.windows(word.len()).filter(|part| *part == word.as_bytes()).count()
    };
    count("") + count("-wal")
}

async fn an_erased_account_leaves_its_sums_and_nothing_else(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (gone, gone_key) = furnish(&store, "quixotica").await;
    let (other, other_key) = furnish(&store, "zebrawood").await;
    let counts = store.erasure_counts(&gone.id).await.unwrap();
    assert!(
        ["sessions", "identities", "factors", "keys", "stored_answers", "call_sessions"]
            .iter()
            .all(|table| counts[table] == 1),
        "{counts:?}"
    );
    let totals = store.totals().await.unwrap();
    erase(&store, &gone).await;
    is_proved(&store).await;
    assert_eq!(store.totals().await.unwrap(), totals);
    let counts = store.erasure_counts(&gone.id).await.unwrap();
    let left: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    // The key stays without its name, and the line that tells of the erasure.
    assert_eq!(left, [(&"audit_lines", &1), (&"keys", &1)]);
    let account = store.account(&gone.id).await.unwrap().unwrap();
    assert!(account.disabled && account.email.is_none() && account.password_hash.is_none());
    assert_eq!(account.username, format!("erased-{}", gone.id));
    assert_eq!(store.account_by_login("quixotica").await.unwrap(), None);
    let key = store.key(&gone_key.id).await.unwrap().unwrap();
    assert_eq!((key.revoked, &*key.name, key.ips.len()), (Some(NOW), "erased", 0));
    assert!(key.changed > gone_key.changed, "nodes read it again");
    let calls = store.export(None, 100).await.unwrap();
    assert_eq!(calls.len(), 40);
    for call in &calls {
        let is_gone = *call.account_id == *gone.id;
        assert_eq!((call.end_user.is_empty(), call.tags.is_empty()), (is_gone, is_gone));
        assert!(call.session.is_empty() || !is_gone);
    }
    for line in store.audits(100).await.unwrap() {
        let text = format!("{line:?}");
        assert!(!text.contains("quixotica"), "{text}");
        if line.actor == gone.id || (line.actor == "anonymous" && line.subject == gone.id) {
            assert_eq!((line.address, line.agent), (None, None));
        }
    }
    // The other account is as it was.
    assert_eq!(store.account(&other.id).await.unwrap().unwrap().email, other.email);
    assert_eq!(store.key(&other_key.id).await.unwrap().unwrap().name, other_key.name);
    let lines = store.audits(100).await.unwrap();
    assert_eq!(lines.iter().filter(|line| line.detail.contains("zebrawood")).count(), 2);
    store.close().await;
    assert_eq!(count_in_files(&database, "quixotica"), 0, "deleted rows are overwritten");
}

async fn sessions_of_archived_and_corrected_calls_are_erased(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let gone = account("gone");
    store.add_account(&gone).await.unwrap();
    let key = key(&gone.id);
    store.add_key(&key).await.unwrap();
    let call = |number: i64, knowledge| LedgerEntry {
        session: "session of gone".into(),
        held: Some(Money::from_nanos(100)),
        outcome: CallOutcome::Recovered,
        knowledge,
        ..entry(&id(), &key, 5, number * 1_000_000)
    };
    let first = call(1, SettlementKnowledge::Settled);
    let reported = call(100_000, SettlementKnowledge::Reported);
    store.post(std::slice::from_ref(&first)).await.unwrap();
    store.post(std::slice::from_ref(&reported)).await.unwrap();
    let range = Micros::new(i64::MIN)..Micros::from_secs(50);
    let part = store.plan_part(range).await.unwrap().unwrap();
    let file = ArchiveFile { calls: 1, cost: first.cost, ..ArchiveFile::default() };
    store.part_written(part.id, &file).await.unwrap();
    assert_eq!(store.remove_part_calls(part.id).await.unwrap(), 1);
    let settled = LedgerEntry {
        knowledge: SettlementKnowledge::Settled,
        cost: Money::from_nanos(9),
        ..reported.clone()
    };
    store.post(std::slice::from_ref(&settled)).await.unwrap();
    is_proved(&store).await;
    erase(&store, &gone).await;
    is_proved(&store).await;
    let found = store.entry(&settled.request_id).await.unwrap().unwrap();
    assert_eq!((found.cost, found.session.is_empty()), (settled.cost, true));
    assert_eq!(store.erasure_counts(&gone.id).await.unwrap()["call_sessions"], 0);
    assert_eq!(store.key(&key.id).await.unwrap().unwrap().spent, Money::from_nanos(14));
    // A block that was rewritten is protected as before.
    let said = database.try_execute_raw("UPDATE call_blocks SET body = body").await.unwrap_err();
    assert!(said.to_string().contains("a settled call is never"), "{said}");
    store.close().await;
}

/// Rows of sums are written again with every call, and rows move between pages.
async fn rows_that_changed_often_leave_no_copies(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (gone, gone_key) = furnish(&store, "quixotica").await;
    let (_, other_key) = furnish(&store, "zebrawood").await;
    for number in 0..120_i64 {
        let named = |word: &str, key: &KeyRecord| LedgerEntry {
            session: format!("{word} {}", number % 17).into(),
            ..entry(&id(), key, 5, number * 1_000)
        };
        let calls = [named("quixotica", &gone_key), named("zebrawood", &other_key)];
        store.post(&calls).await.unwrap();
    }
    erase(&store, &gone).await;
    is_proved(&store).await;
    store.close().await;
    // A page that was divided may keep one.
    let left = count_in_files(&database, "quixotica");
    assert!(left <= 2, "{left} copies are left");
}

async fn an_erasure_that_was_interrupted_is_listed_and_may_be_repeated(
    database: Arc<TestDatabase>,
) {
    let store = database.open().await;
    let (gone, key) = furnish(&store, "quixotica").await;
    let mut change = store.begin_change().await.unwrap();
    change.erase_account(&gone, NOW).await.unwrap();
    change.commit_unaudited().await.unwrap();
    // The process was killed here.
    let open = store.erasures(Micros::MAX).await.unwrap();
    assert_eq!(open.iter().map(|plan| &plan.account_id).collect::<Vec<_>>(), [&gone.id]);
    assert!(open[0].done.is_none());
    let counts = store.erase_rest(&gone.id, NOW).await.unwrap();
    assert_eq!((counts["stored_answers"], counts["calls"]), (1, 20));
    assert!(store.erasures(Micros::MAX).await.unwrap().is_empty());
    assert_eq!(store.erasures(NOW).await.unwrap().len(), 1, "for calls that still ran");
    let late = LedgerEntry { end_user: "late".into(), ..entry(&id(), &key, 5, 5) };
    store.post(std::slice::from_ref(&late)).await.unwrap();
    assert_eq!(store.erase_rest(&gone.id, NOW).await.unwrap()["calls"], 1);
    is_proved(&store).await;
    assert!(store.entry(&late.request_id).await.unwrap().unwrap().end_user.is_empty());
    store.close().await;
}

/// A username may be any word, and an address may be the end of another one.
async fn lines_and_links_of_others_are_not_changed(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let named = |username: &str, email: &str| Account {
        email: Some(email.to_owned()),
        ..account(username)
    };
    let (gone, other) = (named("owner", "bob@x.org"), named("jim", "jimbob@x.org"));
    for account in [&gone, &other] {
        store.add_account(account).await.unwrap();
    }
    let lines = [
        ("account.create", &*other.id, "owner"),
        ("account.invite", "jimbob@x.org", "owner"),
        ("account.invite", "someone@x.org", "instead of jimbob@x.org"),
        ("account.invite", "BOB@x.org", "member"),
        ("account.invite", "someone@x.org", "instead of bob@x.org"),
    ];
    let add = async |(action, subject, detail): (&str, &str, &str)| {
        let (actor, key_id, address, agent) = ("command line", None, None, None);
        let line = AuditLine { at: NOW, actor, key_id, action, subject, detail, address, agent };
        store.add_audit(&line).await.unwrap();
    };
    for line in lines {
        add(line).await;
    }
    for (hash, email) in [(b"a", "bob@x.org"), (b"b", "jimbob@x.org")] {
        let link = Link {
            hash: hash.to_vec(),
            purpose: LinkPurpose::Invite,
            account_id: None,
            data: format!("{{\"email\":\"{email}\"}}"),
            created: NOW,
            expires: Micros::MAX,
        };
        store.add_link(&link).await.unwrap();
    }
    let found = store.lines_naming(&gone).await.unwrap();
    // Between the look and the change.
    add(("account.invite", "late@x.org", "for bob@x.org")).await;
    let mut change = store.begin_change().await.unwrap();
    change.erase_account(&gone, NOW).await.unwrap();
    assert_eq!(change.erase_names_in_audits(&gone, found.clone()).await.unwrap(), 3);
    drop(change);
    let texts = async || {
        let mut texts: Vec<_> = store.audits(100).await.unwrap();
        texts.sort_by_key(|line| line.id);
        let texts = texts.into_iter().map(|line| (line.subject, line.detail));
        texts.map(|(subject, detail)| format!("{subject}: {detail}")).collect::<Vec<_>>()
    };
    let before = texts().await;
    assert_eq!(before[3], "BOB@x.org: member", "a change that was given up leaves all lines");
    let mut change = store.begin_change().await.unwrap();
    change.erase_account(&gone, NOW).await.unwrap();
    assert_eq!(change.erase_names_in_audits(&gone, found).await.unwrap(), 3);
    change.commit_unaudited().await.unwrap();
    let after = texts().await;
    assert_eq!(after[..3], before[..3]);
    assert_eq!(after[3..], [": ", "someone@x.org: ", "late@x.org: "]);
    assert!(store.link(b"a").await.unwrap().is_none());
    assert!(store.link(b"b").await.unwrap().is_some());
    store.close().await;
}
