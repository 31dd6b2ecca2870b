//! Tokens of MCP servers: one renewal at a time, and no write over a later change.

use std::sync::Arc;

use canon::Micros;
use store::{McpClientRecord, McpGrant, SealedSecret, Store};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

on_both!(
    one_node_renews_a_grant_and_a_later_change_stays,
    grants_belong_to_their_owner,
    the_client_of_a_server_is_replaced,
);

const CLAIM: Micros = Micros::from_secs(30);

fn sealed(word: &str) -> SealedSecret {
    SealedSecret { by: "one".to_owned(), bytes: word.as_bytes().to_vec() }
}

fn grant(id: &str, account_id: &str) -> McpGrant {
    McpGrant {
        id: id.to_owned(),
        server: "docs".to_owned(),
        owner: format!("person:{account_id}"),
        account_id: Some(account_id.to_owned()),
        resource: "https://docs.example.com/mcp".to_owned(),
        sealed: sealed("first"),
        expires: Some(Micros::new(5)),
        is_lost: false,
        version: 1,
        connected_by: account_id.to_owned(),
        created: Micros::new(1),
    }
}

async fn put(store: &Store, grant: &McpGrant) {
    let mut change = store.begin_change().await.unwrap();
    change.put_mcp_grant(grant).await.unwrap();
    change.commit_unaudited().await.unwrap();
}

async fn get(store: &Store, grant: &McpGrant) -> Option<McpGrant> {
    store.mcp_grant(&grant.server, &grant.owner).await.unwrap()
}

async fn one_node_renews_a_grant_and_a_later_change_stays(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = account("anna");
    store.add_account(&anna).await.unwrap();
    let first = grant("g1", &anna.id);
    put(&store, &first).await;
    assert_eq!(get(&store, &first).await.as_ref(), Some(&first));
    let mut claims = JoinSet::new();
    for _ in 0..8 {
        let (store, first) = (store.clone(), first.clone());
        claims.spawn(async move { store.claim_mcp_refresh(&first, CLAIM).await.unwrap() });
    }
    assert_eq!(claims.join_all().await.into_iter().filter(|got| *got).count(), 1);
    store.release_mcp_refresh(&first).await.unwrap();
    assert!(store.claim_mcp_refresh(&first, Micros::ZERO).await.unwrap());
    assert!(store.claim_mcp_refresh(&first, CLAIM).await.unwrap(), "a claim ends by time");
    let end = Some(Micros::new(9));
    assert!(store.renew_mcp_grant(&first, &sealed("second"), end).await.unwrap());
    let second = get(&store, &first).await.unwrap();
    assert_eq!((second.version, &second.sealed, second.expires), (2, &sealed("second"), end));
    assert!(!store.renew_mcp_grant(&first, &sealed("late"), None).await.unwrap());
    assert!(!store.claim_mcp_refresh(&first, CLAIM).await.unwrap());
    assert!(!store.lose_mcp_grant(&first).await.unwrap());
    // Somebody connects the server again while a node renews the tokens.
    assert!(store.claim_mcp_refresh(&second, CLAIM).await.unwrap());
    let again = grant("g2", &anna.id);
    put(&store, &again).await;
    assert!(!store.renew_mcp_grant(&second, &sealed("late"), None).await.unwrap());
    assert_eq!(get(&store, &first).await.as_ref(), Some(&again));
    assert!(store.lose_mcp_grant(&again).await.unwrap());
    let lost = get(&store, &again).await.unwrap();
    assert!(lost.is_lost && !store.claim_mcp_refresh(&lost, CLAIM).await.unwrap());
}

async fn grants_belong_to_their_owner(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (anna, ben) = (account("anna"), account("ben"));
    for person in [&anna, &ben] {
        store.add_account(person).await.unwrap();
    }
    let own = grant("g1", &anna.id);
    put(&store, &own).await;
    assert_eq!(get(&store, &grant("g1", &ben.id)).await, None);
    assert_eq!(store.mcp_grant("other", &own.owner).await.unwrap(), None);
    let mut change = store.begin_change().await.unwrap();
    assert!(!change.drop_mcp_grant("docs", &grant("g1", &ben.id).owner).await.unwrap());
    assert!(change.drop_mcp_grant("docs", &own.owner).await.unwrap());
    change.commit_unaudited().await.unwrap();
    assert_eq!(get(&store, &own).await, None);
}

async fn the_client_of_a_server_is_replaced(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let client = |issuer: &str| McpClientRecord {
        server: "docs".to_owned(),
        issuer: issuer.to_owned(),
        redirect: "https://gateway.example.com/console/mcp/callback".to_owned(),
        sealed: sealed(issuer),
        expires: None,
    };
    store.put_mcp_client(&client("a")).await.unwrap();
    store.put_mcp_client(&client("b")).await.unwrap();
    assert_eq!(store.mcp_client("docs").await.unwrap(), Some(client("b")));
    store.drop_mcp_client("docs", "a").await.unwrap();
    assert_eq!(store.mcp_client("docs").await.unwrap(), Some(client("b")));
    store.drop_mcp_client("docs", "b").await.unwrap();
    assert_eq!(store.mcp_client("docs").await.unwrap(), None);
}
