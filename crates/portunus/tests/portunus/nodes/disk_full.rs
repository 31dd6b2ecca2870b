//! A full disk under the journal: no new call is admitted, running calls continue, nothing is
//! lost, and the node serves again when there is space.

use http_body_util::BodyExt as _;
use std::time::Duration;

use crate::nodes::clients::{Answer, Callers, begin_stream, soon};
use crate::nodes::cluster::Cluster;
use crate::nodes::{PRICE, parameters};
use crate::small_disk::SmallDisk;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_lets_nothing_in_and_loses_nothing() {
    const CALLS: usize = 100_000;
    let mut cluster = Cluster::start(0).await;
    // Without root the node's own files cannot grow, so it moves from one segment to the next.
    let small = SmallDisk::mount(&cluster.data(0), "512k");
    cluster.add(small.is_none());
    let key = cluster.key(CALLS as i64 * PRICE);
    let callers = Callers::new(&cluster, &key.text);
    let answer = callers.one(0).await;
    assert!(matches!(answer, Answer::Done), "{answer:?}");
    let mut stream = begin_stream(&cluster.urls()[0], &key.text, 24).await;
    let filling = small.as_ref().map(SmallDisk::fill);

    let mut away = 0;
    for _ in 0..2_000 {
        match callers.one(0).await {
            Answer::Done => {}
            Answer::Away => away += 1,
            other @ (Answer::Refused | Answer::Gone) => panic!("{other:?}"),
        }
        if away == 3 {
            break;
        }
    }
    assert_eq!(away, 3, "what cannot be written down is not let in");
    // The running stream continues to its end.
    while let Some(frame) = stream.body.frame().await {
        frame.expect("an unbroken stream");
    }
    if let Some(filling) = filling {
        std::fs::remove_file(filling).unwrap();
    }
    let again = soon(Duration::from_secs(10), || async {
        matches!(callers.one(0).await, Answer::Done).then_some(())
    });
    again.await.expect("with room again, it serves again");
    cluster.stop();
    cluster.verify();
    let lines = cluster.export();
    for (id, _) in callers.done() {
        let count = lines.iter().filter(|line| line["request_id"] == *id).count();
        assert_eq!(count, 1, "every answered call is on the books, once");
    }
    assert_eq!(lines.iter().filter(|line| line["request_id"] == *stream.request_id).count(), 1);
    assert_eq!(cluster.served().await, callers.admitted());
    parameters::tell(&[("calls", callers.made())]);
    // Unmounted before the files are removed, because the file system is among them.
    drop(small);
}
