//! The journal of a process that another one has replaced.

use super::load::request;
use super::{Site, free_address};
use crate::transport::raw_client::Caller;

const TAKE_OVER: &[&str] = &["--take-over"];

/// A process that ends after its calls are stored leaves none to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_properly_leaves_no_calls_in_its_journal() {
    let site = Site::new("0s", "").await;
    let key = site.key(&["--cap", "1000"]);
    let records = |journal: &str| -> u64 {
        let files = std::fs::read_dir(site.folder.join("data").join(journal)).unwrap();
        let files = files.map(|file| file.unwrap());
        let segments =
            files.filter(|file| file.path().extension().is_some_and(|end| end == "journal"));
        segments.map(|segment| segment.metadata().unwrap().len()).sum()
    };
    let first = site.start("data", &free_address(), &[]);
    let address = first.address.clone();
    let call = async || {
        let mut caller = Caller::at(&address).await;
        caller.send(request(&key, "m", false)).await;
        assert_eq!(caller.answer().await.unwrap().status, 200);
    };
    call().await;
    assert!(records("journal") > 0);
    let second = site.start("data", &address, TAKE_OVER);
    assert_eq!(first.ended().await, Some(0));
    assert_eq!(records("journal"), 0, "{}", site.log());
    call().await;
    second.signal("-TERM");
    assert_eq!(second.ended().await, Some(0));
    assert_eq!(records("journal-2"), 0, "{}", site.log());
    assert_eq!(site.receipts().len(), 2);
    site.run("data", &["ledger", "verify"]);
    // The next start finds a journal that is whole.
    let third = site.start("data", &address, &[]);
    call().await;
    third.signal("-KILL");
    drop(third);
    let fourth = site.start("data", &address, &[]);
    assert_eq!(site.receipts().len(), 3);
    drop(fourth);
    site.run("data", &["ledger", "verify"]);
    assert!(!site.log().contains("damaged"), "{}", site.log());
}
