//! Retention of a running gateway.

use canon::Micros;
use ledger::{Clock as _, SystemClock};
use std::sync::Arc;
use store::AuditLine;
use testkit::{ShiftedClock, TestGateway, until};

const DAY: Micros = Micros::from_hours(24);

async fn add_line(gateway: &TestGateway, subject: &str, at: Micros) {
    let line = AuditLine {
        at,
        actor: "somebody",
        key_id: None,
        action: "key.create",
        subject,
        detail: "",
        address: None,
        agent: None,
    };
    gateway.app.store.add_audit(&line).await.unwrap();
}

async fn has_line(gateway: &TestGateway, subject: &str) -> bool {
    let lines = gateway.app.store.audits(1_000).await.unwrap();
    lines.iter().any(|line| line.subject == subject)
}

/// The clock of the database is right.
#[tokio::test]
async fn a_node_with_a_wrong_clock_deletes_nothing_that_is_young() {
    let clock = Arc::new(ShiftedClock::default());
    let config = "[retention]\naudit = \"30d\"\n";
    let gateway = TestGateway::with_clock(config, Arc::<ShiftedClock>::clone(&clock)).await;
    let now = SystemClock.now();
    add_line(&gateway, "young", now).await;
    add_line(&gateway, "old", now - DAY - DAY * 30).await;
    clock.step(DAY * 4_000);
    // The schedule of the gateway may have the turn.
    until("the old line is deleted", async || {
        gateway.app.run_retention().await.unwrap();
        !has_line(&gateway, "old").await
    })
    .await;
    assert!(has_line(&gateway, "young").await);
    // A clock that is slow keeps lines for longer.
    add_line(&gateway, "old", now - DAY - DAY * 30).await;
    clock.step(Micros::ZERO - DAY * 4_000 - DAY * 20);
    gateway.app.run_retention().await.unwrap();
    assert!(has_line(&gateway, "old").await);
}
