//! Secrets of authenticator apps (TOTP). The store holds them sealed. Secrets stored before the
//! vault existed are sealed when they are next used.

use store::{Factor, SealedSecret, VaultError};

use crate::page_error::PageError;
use crate::state::ConsoleState;

/// Stores a TOTP factor with its secret sealed.
pub(crate) async fn add(state: &ConsoleState, mut factor: Factor) -> Result<(), PageError> {
    let sealer = state.host.vault().sealer().await.map_err(vault_error)?;
    let sealed = sealer.seal(&factor.label(), &factor.secret).map_err(vault_error)?;
    (factor.secret, factor.sealed_by) = (sealed.bytes, Some(sealed.by));
    Ok(state.store.add_factor(&factor).await?)
}

/// Opens the secret of a TOTP factor. Returns `None` if this node lacks the key.
pub(crate) fn open_secret(state: &ConsoleState, factor: &Factor) -> Option<Vec<u8>> {
    let Some(by) = factor.sealed_by.clone() else { return Some(factor.secret.clone()) };
    let sealed = SealedSecret { by, bytes: factor.secret.clone() };
    match state.host.vault().open(&factor.label(), &sealed) {
        Ok(secret) => Some(secret),
        Err(why) => {
            let id = &factor.id;
            tracing::error!(factor.id = %id, "cannot open the secret of an authenticator app: {why}");
            None
        }
    }
}

/// Seals the secret of a factor that is still stored in plain. The factor keeps working if this
/// fails.
pub(crate) async fn seal_if_plain(state: &ConsoleState, factor: &Factor) {
    if factor.sealed_by.is_some() {
        return;
    }
    let sealing = async {
        let sealer = state.host.vault().sealer().await?;
        let sealed = sealer.seal(&factor.label(), &factor.secret)?;
        state.store.seal_factor(&factor.id, &sealed).await?;
        Ok::<(), VaultError>(())
    };
    if let Err(why) = sealing.await {
        let id = &factor.id;
        tracing::warn!(factor.id = %id, "cannot seal the secret of an authenticator app: {why}");
    }
}

fn vault_error(why: VaultError) -> PageError {
    tracing::error!("cannot store the secret of an authenticator app: {why}");
    PageError::BadRequest(
        "This gateway has no key to keep such secrets with. Ask its operator to set `vault` of \
         `[server]`, or use a passkey.",
    )
}
