//! The vault: which keys there are, what they seal, and re-keying.

use axum::response::Response;
use canon::Fault;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{Asked, admin, away, note, thing};
use crate::app::App;

async fn told(app: &App) -> Result<Value, Fault> {
    let (current, keys) = app.vault.keys();
    let sealed = app.store.sealed().await.map_err(away)?;
    Ok(json!({ "current": current, "keys": keys, "sealed": sealed, "trouble": app.vault.shut() }))
}

pub(in crate::surfaces) async fn get(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    Ok(thing(StatusCode::OK, &told(&asked.app).await?))
}

pub(in crate::surfaces) async fn rekey(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let app = asked.app;
    // Goes on to its end, whether or not anybody waits for it.
    let turning = Arc::clone(&app);
    let turned = app.tasks.spawn(async move { turning.vault.rekey(&turning.store).await });
    let done = turned.await.map_err(|e| Fault::internal(e.to_string()))?;
    let done = done.map_err(|why| match why {
        store::VaultError::Store(error) => away(error),
        why @ (store::VaultError::Shut(_)
        | store::VaultError::NoKey(_)
        | store::VaultError::Spoilt) => Fault::invalid("", why.to_string()),
    })?;
    let detail = format!("{} sealed anew, {} could not be opened", done.sealed, done.left);
    note(&app, &who, "vault.rekey", "vault", &detail).await;
    let mut value = told(&app).await?;
    if let Value::Object(fields) = &mut value {
        fields.insert("sealed_anew".to_owned(), json!(done.sealed));
        fields.insert("left".to_owned(), json!(done.left));
    }
    Ok(thing(StatusCode::OK, &value))
}
