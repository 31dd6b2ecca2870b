//! The page of alerts: what is told, quiet hours, and wrong values.

use http::StatusCode;
use store::{AccountRole, AlertSettings, QuietHours};

use crate::gateway::ConsoleGateway;

const PAGE: &str = "/console/alerts";

#[tokio::test]
async fn settings_are_saved_and_shown() {
    let gateway = ConsoleGateway::new().await;
    let mia = gateway.account("mia", AccountRole::Member).await;
    let cookie = gateway.sign_in("mia").await;
    let page = gateway.get(PAGE).cookie(&cookie).send().await;
    for told in ["80 % of a cap or budget is spent", "a budget will not last", "a key expires"] {
        page.assert_contains(told);
    }
    let fields = [
        ("levels_percent", "90"),
        ("key_expiry", "on"),
        ("mail", "on"),
        ("quiet_hours.from", "22:00"),
        ("quiet_hours.to", "06:30"),
        ("quiet_hours.time_zone", "europe/berlin"),
        ("webhook.form", ""),
    ];
    let saved = gateway.post(PAGE, &fields).cookie(&cookie).send().await;
    saved.assert_redirect("/console/alerts?told=saved");
    let settings = gateway.store.alert_settings(&mia.id).await.unwrap();
    let quiet = QuietHours::new("22:00", "06:30", "Europe/Berlin").unwrap();
    let wanted = AlertSettings {
        levels: vec![90],
        forecasts: false,
        quiet: Some(quiet),
        ..AlertSettings::default()
    };
    assert_eq!(settings, wanted);
    let page = gateway.get(PAGE).cookie(&cookie).send().await;
    for shown in ["value=\"22:00\"", "value=\"06:30\"", "value=\"Europe/Berlin\""] {
        page.assert_contains(shown);
    }
    page.assert_lacks("a budget will not last");
    // Without times there are no quiet hours, whatever the zone.
    let loud = fields.map(|(name, value)| match name {
        "quiet_hours.from" | "quiet_hours.to" => (name, ""),
        _ => (name, value),
    });
    let saved = gateway.post(PAGE, &loud).cookie(&cookie).send().await;
    saved.assert_redirect("/console/alerts?told=saved");
    assert_eq!(gateway.store.alert_settings(&mia.id).await.unwrap().quiet, None);
}

#[tokio::test]
async fn wrong_quiet_hours_are_named_at_their_fields() {
    let gateway = ConsoleGateway::new().await;
    let mia = gateway.account("mia", AccountRole::Member).await;
    let cookie = gateway.sign_in("mia").await;
    for (from, to, zone, field) in [
        ("late", "06:30", "UTC", "quiet_hours.from"),
        ("22:00", "", "UTC", "quiet_hours.to"),
        ("", "06:30", "UTC", "quiet_hours.from"),
        ("22:00", "06:30", "<b>Mars", "quiet_hours.time_zone"),
    ] {
        let fields = [
            ("levels_percent", "90"),
            ("quiet_hours.from", from),
            ("quiet_hours.to", to),
            ("quiet_hours.time_zone", zone),
            ("webhook.form", ""),
        ];
        let got = gateway.post(PAGE, &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{field}");
        let start = got.body.find(&format!("id=\"{field}\"")).unwrap();
        let input = got.body[start..].split('>').next().unwrap();
        assert!(input.contains("aria-invalid=\"true\""), "{field}: {input}");
        got.assert_lacks("<b>Mars");
    }
    assert_eq!(gateway.store.alert_settings(&mia.id).await.unwrap(), AlertSettings::default());
}

#[tokio::test]
async fn a_change_of_others_is_not_replaced_unseen() {
    let gateway = ConsoleGateway::new().await;
    let mia = gateway.account("mia", AccountRole::Member).await;
    let cookie = gateway.sign_in("mia").await;
    let fields = [("tag", "\"old\""), ("levels_percent", "90"), ("webhook.form", "")];
    let got = gateway.post(PAGE, &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::PRECONDITION_FAILED);
    got.assert_contains("Somebody changed this meanwhile, and nothing was saved.");
    // The field has what was entered, so that the page must not say that it has the change of others.
    got.assert_contains("value=\"90\"");
    got.assert_contains("saving now replaces it");
    assert_eq!(gateway.store.alert_settings(&mia.id).await.unwrap(), AlertSettings::default());
}

#[tokio::test]
async fn an_unknown_page_of_alerts_is_refused() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("mia", AccountRole::Member).await;
    let cookie = gateway.sign_in("mia").await;
    for (before, status) in [("17_x", StatusCode::OK), ("x", StatusCode::BAD_REQUEST)] {
        let got = gateway.get(&format!("{PAGE}?before={before}")).cookie(&cookie).send().await;
        assert_eq!(got.status, status, "{before}");
    }
}
