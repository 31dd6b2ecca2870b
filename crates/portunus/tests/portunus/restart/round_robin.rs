//! Two gateways whose callers take turns and know nothing of restarts.

use testkit::until;

use super::load::{Load, call_count};
use super::{Site, free_address};

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_send_again_see_no_restart() {
    let site = Site::new("300ms", "").await;
    let key = site.key(&["--unlimited"]);
    let addresses = [free_address(), free_address()];
    let mut gateways =
        [0, 1].map(|number| Some(site.start(&number.to_string(), &addresses[number], &[])));
    let load = Load::start(&addresses.each_ref().map(String::as_str), &key, 2);
    let calls = call_count(2_000);
    load.reach(calls / 6).await;
    for round in 1..=4 {
        let number = round % 2;
        let old = gateways[number].take().unwrap();
        old.signal("-TERM");
        assert_eq!(old.ended().await, Some(0));
        let new = site.start(&number.to_string(), &addresses[number], &[]);
        until("it is ready", async || new.readiness().await == Some(200)).await;
        gateways[number] = Some(new);
        load.reach(calls * (round + 1) / 6).await;
    }
    load.reach(calls).await;
    let result = load.finish().await;
    for gateway in gateways.into_iter().flatten() {
        gateway.signal("-INT");
        assert_eq!(gateway.ended().await, Some(0));
    }
    // A call was sent again only if no gateway had taken it.
    assert_eq!(site.receipts(), result.ids);
    site.run("0", &["ledger", "verify"]);
}
