//! An app with codes as the second step, and recovery codes on paper.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use qrcodegen::{QrCode, QrCodeEcc};
use store::{Account, Factor, FactorKind};

use super::{HERE, prove};
use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::pages::copyable;
use crate::session::Signed;
use crate::shell::{Shell, good, page, see_other};
use crate::trouble::Trouble;
use crate::{fields, generators, pages, passkey, totp};

/// `GET /console/account/totp`
pub(crate) async fn ask(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    if signed.account.password_hash.is_none() || has_one(&desk, &signed.account).await? {
        return Ok(see_other(HERE));
    }
    if let Some(way) = prove::first(&desk, &signed, "/console/account/totp").await? {
        return Ok(way);
    }
    let secret = totp::new_secret()?;
    form(&desk, StatusCode::OK, &signed.account, &secret, &Wrongs::default())
}

/// `POST /console/account/totp`: the secret counts once a code proves that the app has it.
pub(crate) async fn add(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    let account = &signed.account;
    if account.password_hash.is_none() || has_one(&desk, account).await? {
        return Ok(see_other(HERE));
    }
    if let Some(way) = prove::first(&desk, &signed, "/console/account/totp").await? {
        return Ok(way);
    }
    let text = fields.short("secret", 64)?;
    let secret = totp::from_base32(text).filter(|secret| secret.len() == 20);
    let secret = secret.ok_or(Trouble::Bad("`secret` is not one of ours."))?;
    let mut wrongs = Wrongs::default();
    let step = totp::step_of(&secret, fields.short("code", 64)?, desk.now());
    if step.is_none() {
        wrongs.add("code", "This is not the code the app shows now. Try the next one.");
    }
    let Some(step) = step else {
        return form(&desk, StatusCode::BAD_REQUEST, account, text, &wrongs);
    };
    let factor = Factor {
        id: uuid::Uuid::now_v7().to_string(),
        account_id: account.id.clone(),
        kind: FactorKind::Totp,
        name: "App".to_owned(),
        secret,
        sealed_by: None,
        counter: step,
        created: desk.now(),
        used: None,
    };
    let id = factor.id.clone();
    generators::add(&desk, factor).await?;
    desk.note(&account.id, "factor.add", &id, "totp").await;
    pages::tell_owner(&desk, account, "an app with codes was added as a second step");
    papers(&desk, account).await
}

/// `POST /console/account/recovery`: new recovery codes; the old ones end.
pub(crate) async fn recovery(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    if let Some(way) = prove::first(&desk, &signed, HERE).await? {
        return Ok(way);
    }
    let factors = desk.store.factors_of(&signed.account.id).await?;
    if !factors.iter().any(|factor| crate::signin::counts(factor.kind)) {
        return Ok(see_other(HERE));
    }
    papers(&desk, &signed.account).await
}

/// Makes recovery codes and shows them, the only time they are shown.
pub(super) async fn papers(desk: &Desk, account: &Account) -> Result<Response, Trouble> {
    let codes = totp::recovery_codes()?;
    let now = desk.now();
    let factors: Vec<Factor> = codes
        .iter()
        .map(|code| Factor {
            id: uuid::Uuid::now_v7().to_string(),
            account_id: account.id.clone(),
            kind: FactorKind::Recovery,
            name: String::new(),
            secret: totp::digest_of(code),
            sealed_by: None,
            counter: 0,
            created: now,
            used: None,
        })
        .collect();
    desk.store.replace_factors(&account.id, FactorKind::Recovery, &factors).await?;
    desk.note(&account.id, "factor.recovery", &account.id, "").await;
    let body = html! {
        section.card.broad {
            h1 { "Your recovery codes" }
            p { "Each of them replaces your second step once, should your device be lost. Keep "
                "them where you would keep a spare key. They are shown this once." }
            (copyable("codes", "Recovery codes", &codes.join("\n")))
            p.actions { a.button href=(HERE) { "I have kept them" } }
        }
    };
    Ok(good(&Shell::signed("Your recovery codes", account).at(HERE), &body))
}

async fn has_one(desk: &Desk, account: &Account) -> Result<bool, Trouble> {
    let factors = desk.store.factors_of(&account.id).await?;
    Ok(factors.iter().any(|factor| factor.kind == FactorKind::Totp))
}

fn form(
    desk: &Desk,
    status: StatusCode,
    account: &Account,
    secret: &str,
    wrongs: &Wrongs,
) -> Result<Response, Trouble> {
    let uri = totp::uri(&account.username, &passkey::place(desk), secret);
    let body = html! {
        section.card {
            p.crumbs { a href=(HERE) { "Your account" } " / Second step" }
            h1 { "Add an app with codes" }
            p { "Scan this with your authenticator app, or type the secret, then enter the code "
                "it shows." }
            (picture(&uri).ok_or(Trouble::Broken)?)
            (copyable("secret-text", "Secret", secret))
            (fields::another_look(wrongs))
            form method="post" action={ (HERE) "/totp" } {
                input type="hidden" name="secret" value=(secret);
                (Input {
                    name: "code",
                    label: "Code",
                    complete: "one-time-code",
                    mode: Some("numeric"),
                    required: true,
                    focus: true,
                    help: Some("Six digits."),
                    ..Input::default()
                }.show(wrongs))
                div.actions {
                    button.button type="submit" { "Add it" }
                    a.button.quiet href=(HERE) { "Cancel" }
                }
            }
        }
    };
    Ok(page(status, &Shell::signed("Add an app with codes", account).at(HERE), &body))
}

/// A text as a QR code, drawn row by row in one path.
fn picture(text: &str) -> Option<Markup> {
    const QUIET: i32 = 4;
    let code = QrCode::encode_text(text, QrCodeEcc::Medium).ok()?;
    let mut path = String::new();
    for y in 0..code.size() {
        for x in 0..code.size() {
            if code.get_module(x, y) {
                path.push_str(&format!("M{} {}h1v1h-1z", x + QUIET, y + QUIET));
            }
        }
    }
    let side = code.size() + 2 * QUIET;
    Some(html! {
        svg.qr viewBox={ "0 0 " (side) " " (side) } role="img" aria-label="QR code of the secret"
            shape-rendering="crispEdges" {
            rect width=(side) height=(side) fill="#ffffff" {}
            path d=(path) fill="#000000" {}
        }
    })
}
