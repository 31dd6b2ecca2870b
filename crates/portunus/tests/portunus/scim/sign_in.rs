//! Sign-in of people whom the provider created.

use super::*;
use admin::IdentityClaims;

fn claims(subject: &str, email: &str, is_verified: bool) -> IdentityClaims {
    IdentityClaims {
        issuer: "https://id.example.com".to_owned(),
        subject: subject.to_owned(),
        email: Some(email.to_owned()),
        email_verified: is_verified,
        name: None,
        groups: Vec::new(),
        object_id: None,
    }
}

#[tokio::test]
async fn a_person_signs_in_to_the_account_that_its_provider_made() {
    let provider = ScimStage::open().await;
    let ids = [provider.person("anna").await, provider.person("bert").await];
    let carl = provider.person("carl").await;
    let config = provider.gateway.app.config();
    let accounts = &provider.gateway.app.admin.accounts;
    let [corp, other] = ["corp", "other"]
        .map(|name| config.identity_providers.iter().find(|one| one.name == name).unwrap());
    let claim = async |by, person: &IdentityClaims| {
        accounts.claim_provisioned(by, person).await.unwrap().map(|account| account.id)
    };
    // By the id at the provider, whatever the address.
    let by_id = claims("ext-anna", "else@example.com", false);
    assert_eq!(claim(corp, &by_id).await.as_ref(), Some(&ids[0]));
    // By the object id of Microsoft Entra ID.
    let entra = IdentityClaims {
        object_id: Some("ext-carl".to_owned()),
        ..claims("pairwise", "else@example.com", false)
    };
    assert_eq!(claim(corp, &entra).await.as_ref(), Some(&carl));
    // By an address only if it is verified, and never for another provider.
    assert_eq!(claim(corp, &claims("s", "bert@example.com", false)).await, None);
    assert_eq!(claim(other, &claims("ext-bert", "bert@example.com", true)).await, None);
    assert_eq!(claim(corp, &claims("s", "Bert@example.com", true)).await.as_ref(), Some(&ids[1]));
    // The account has its person now.
    assert_eq!(claim(corp, &claims("thief", "bert@example.com", true)).await, None);
    let linked =
        provider.gateway.app.store.account_by_identity("https://id.example.com", "s").await;
    assert_eq!(linked.unwrap().unwrap().id, ids[1]);
    // A locked account is told, and gets no link.
    let dora = provider.person("dora").await;
    let off = json!([{ "op": "replace", "path": "active", "value": false }]);
    provider.patch(&format!("/Users/{dora}"), off).await;
    let locked = accounts.claim_provisioned(corp, &claims("ext-dora", "d@x.org", false)).await;
    assert!(locked.unwrap().unwrap().disabled);
    let links = provider.gateway.app.store.identities_of(&dora).await.unwrap();
    assert!(links.is_empty(), "{links:?}");
}

#[tokio::test]
async fn groups_of_scim_count_before_those_of_the_token() {
    let provider = ScimStage::open().await;
    let anna = provider.person("anna").await;
    let config = provider.gateway.app.config();
    let corp = config.identity_providers.iter().find(|one| one.name == "corp").unwrap();
    let accounts = &provider.gateway.app.admin.accounts;
    let groups = vec!["leads".to_owned()];
    let person = IdentityClaims { groups, ..claims("ext-anna", "anna@example.com", true) };
    let apply = async || {
        let account = provider.gateway.app.store.account(&anna).await.unwrap().unwrap();
        accounts.apply_groups(corp, &person, account).await.unwrap().role.word()
    };
    assert_eq!(apply().await, "admin", "no groups come with SCIM yet");
    provider.group("staff", &[&anna]).await;
    assert_eq!(apply().await, "member");
}

#[tokio::test]
async fn a_person_who_signed_in_before_is_taken_over_and_others_are_not() {
    let provider = ScimStage::open().await;
    let store = &provider.gateway.app.store;
    let owner = store.accounts().await.unwrap().remove(0);
    let account = |name: &str| store::Account {
        id: format!("account-{name}"),
        username: name.to_owned(),
        email: Some(format!("{name}@example.com")),
        role: store::AccountRole::Member,
        ..owner.clone()
    };
    for name in ["anna", "bert"] {
        store.add_account(&account(name)).await.unwrap();
    }
    let identity = store::Identity {
        issuer: "https://id.example.com".to_owned(),
        subject: "ext-anna".to_owned(),
        account_id: "account-anna".to_owned(),
        label: String::new(),
        object_id: None,
        created: canon::Micros::new(1),
    };
    store.add_identity(&identity).await.unwrap();
    let got = provider.send(Method::POST, "/Users", user("anna")).await;
    assert_eq!((got.status.as_u16(), &got.json()["id"]), (201, &json!("account-anna")));
    assert_eq!(provider.role("account-anna").await, "member", "until a group says otherwise");
    let refused = provider.send(Method::POST, "/Users", user("bert")).await;
    is_refusal(&refused, 409, "uniqueness", "an account that has nothing to do with the provider");
    assert!(refused.json()["detail"].as_str().unwrap().contains("sign in"), "{}", refused.text());
}
