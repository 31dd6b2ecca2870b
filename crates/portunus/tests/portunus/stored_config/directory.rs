//! A bundle over the model directory on several nodes, in running calls, and after a change of the file.

use super::*;
use admin::{Actor, DirectoryContext};
use config::DirectorySigner;

/// Returns a bundle with that version in which an input token of demo-chat costs a dollar per million.
fn bundle(version: u64, more: &str) -> String {
    format!(
        "version = {version}\nas_of = \"2026-11-17\"\n[[models]]\nprovider = \"demo\"\n\
         id = \"demo-chat\"\nprice = {{ input = \"1.00\", output = \"4.00\" }}\n{more}"
    )
}

const FRESH: &str = "[[models]]\nprovider = \"demo\"\nid = \"demo-fresh\"\n\
    kind = \"chat\"\nfeatures = [\"streaming\"]\ninput = [\"text\"]\noutput = [\"text\"]\ncontext = 9000\n\
    about = \"A demo model that only this bundle has.\"\nprice = { input = \"2\", output = \"2\" }\n";

async fn install(gateway: &TestGateway, text: &str) {
    let (signer, _) = DirectorySigner::generate().unwrap();
    let signed = signer.sign(text).unwrap();
    let (admin, config) = (&gateway.app.admin, gateway.app.config());
    let context = DirectoryContext { config: &config, vault: &admin.vault };
    let keys = [signer.public_key().unwrap()];
    let accounts = &admin.accounts;
    let update =
        accounts.check_directory_update(&Actor::Operator, context, signed.as_bytes(), &keys, false);
    accounts.install_directory(&Actor::Operator, &update.await.unwrap()).await.unwrap();
}

fn input_price(config: &config::Config) -> String {
    config.routes["demo-chat"].lanes[0].prices.input.to_per_million()
}

#[tokio::test]
async fn every_node_uses_a_bundle_and_a_configuration_keeps_the_one_it_was_built_with() {
    let one = TestGateway::start().await;
    let two = one.start_second_node("").await;
    let pinned = one.app.config();
    install(&one, &bundle(1, FRESH)).await;
    for gateway in [&one, &two] {
        until("the node uses it", async || {
            let config = gateway.app.config();
            input_price(&config) == "1" && config.catalog.get("demo-fresh").is_some()
        })
        .await;
    }
    assert_eq!(input_price(&pinned), "0.1", "a call that has begun keeps its prices");
    // A reload of the file keeps it, and so does a restart.
    one.reload("[limits]\nrunning = 100\n");
    assert_eq!(input_price(&one.app.config()), "1");
    let one = one.restart("").await;
    assert_eq!(input_price(&one.app.config()), "1");
    // Two updates from the same state: the second is refused and not lost silently.
    let (admin, config) = (&one.app.admin, one.app.config());
    let context = DirectoryContext { config: &config, vault: &admin.vault };
    let removed = admin.accounts.remove_directory(&Actor::Operator, context).await.unwrap();
    assert_eq!(removed.unwrap().version, Some(1));
    until("the built-in one is back", async || {
        input_price(&one.app.config()) == "0.1" && input_price(&two.app.config()) == "0.1"
    })
    .await;
}

/// A file that is changed after the installation must not keep a gateway from starting.
#[tokio::test]
async fn a_bundle_that_no_longer_fits_is_left_out_and_reported() {
    let gateway = TestGateway::start().await;
    install(&gateway, &bundle(1, FRESH)).await;
    let taken = "[models.m]\nlanes = [\"demo/demo-chat\"]\naliases = [\"demo-fresh\"]\n";
    let gateway = gateway.restart(taken).await;
    assert_eq!(input_price(&gateway.app.config()), "0.1", "the built-in directory");
    assert_eq!(gateway.post(CHAT, &hello("demo-fresh")).send().await.status, 200, "the alias");
    let health = get(&gateway, "/health").await;
    assert!(health["troubles"].to_string().contains("directory"), "{health}");
    assert!(health["troubles"].to_string().contains("already taken"), "{health}");
    let gateway = gateway.restart("").await;
    assert_eq!(input_price(&gateway.app.config()), "1");
    // The same for a record that this program cannot read.
    let seen = gateway.app.store.configured_revision().await.unwrap();
    let broken = store::ConfigChange::Directory(Some("{".to_owned()));
    assert!(gateway.app.store.configure(seen, &[broken]).await.unwrap());
    let gateway = gateway.restart("").await;
    assert_eq!(input_price(&gateway.app.config()), "0.1");
    let health = get(&gateway, "/health").await;
    assert!(health["troubles"].to_string().contains("cannot be decoded"), "{health}");
    // A stored model that has the name of a new one in a bundle.
    let (admin, config) = (&gateway.app.admin, gateway.app.config());
    let context = DirectoryContext { config: &config, vault: &admin.vault };
    admin.accounts.remove_directory(&Actor::Operator, context).await.unwrap();
    put(&gateway, "/models/m", json!({ "lanes": ["demo/demo-chat"], "aliases": ["demo-fresh"] }))
        .await;
    let (signer, _) = DirectorySigner::generate().unwrap();
    let signed = signer.sign(&bundle(99, FRESH)).unwrap();
    let keys = [signer.public_key().unwrap()];
    let update = admin.accounts.check_directory_update(
        &Actor::Operator,
        context,
        signed.as_bytes(),
        &keys,
        false,
    );
    let why = update.await.unwrap_err().to_string();
    assert!(why.contains("this would break models.\"m\""), "{why}");
}
