//! A budget per day holds over all nodes together.

use crate::nodes::clients::{Callers, ask};
use crate::nodes::cluster::Cluster;
use crate::nodes::{PRICE, nanos};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_spend_a_daily_budget_to_its_end_and_not_beyond() {
    const CALLS: usize = 130;
    let cluster = Cluster::start(3).await;
    let key = cluster.daily_key(CALLS as i64 * PRICE);
    let callers = Callers::new(&cluster, &key.text);
    let admitted = callers.call_until_refused(64).await;
    assert!(admitted <= CALLS, "{admitted} of {CALLS}");
    assert!(admitted * 100 >= CALLS * 95, "only {admitted} of {CALLS}");
    assert_eq!(cluster.served().await, admitted);
    let (_, told) = ask(&cluster.urls()[0], "/v1/key", &key.text).await.unwrap();
    assert_eq!(nanos(&told["budget"]["most_usd"]), CALLS as i64 * PRICE, "{told}");
    cluster.stop();
    cluster.verify();
    let paid: i64 = cluster.export().iter().map(|line| nanos(&line["cost_usd"])).sum();
    assert_eq!(paid, admitted as i64 * PRICE);
}
