//! The page of alerts: what is told, quiet hours, and wrong values; alerts about the gateway.

use canon::Money;
use http::StatusCode;
use store::{
    AccountRole, Alert, AlertDelivery, AlertKind, AlertReceivers, AlertSettings, EventKind,
    GATEWAY_OWNER, GatewayAlertSettings, GatewayEvent, QuietHours,
};

use crate::gateway::{ConsoleGateway, ODD, START};

const PAGE: &str = "/console/alerts";
const GATEWAY_PAGE: &str = "/console/settings/alerts";

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
        ("statement", "on"),
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
        statements: true,
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

#[tokio::test]
async fn alerts_about_the_gateway_are_chosen_by_administrators() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("mia", AccountRole::Member).await;
    gateway.account("ada", AccountRole::Admin).await;
    let (member, cookie) = (gateway.sign_in("mia").await, gateway.sign_in("ada").await);
    assert_eq!(
        gateway.get(GATEWAY_PAGE).cookie(&member).send().await.status,
        StatusCode::FORBIDDEN
    );
    gateway.get("/console/settings").cookie(&cookie).send().await.assert_contains(GATEWAY_PAGE);
    let page = gateway.get(GATEWAY_PAGE).cookie(&cookie).send().await;
    page.assert_contains("value=\"10\"");
    let fields = |percent: &'static str| {
        [
            ("lanes", "on"),
            ("health", "on"),
            ("error_percent", percent),
            ("mail", ""),
            ("quiet_hours.from", "22:00"),
            ("quiet_hours.to", "06:30"),
            ("quiet_hours.time_zone", "UTC"),
            ("webhook.form", ""),
        ]
    };
    for wrong in ["many", "0", "101", "999"] {
        let got = gateway.post(GATEWAY_PAGE, &fields(wrong)).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{wrong}");
        let start = got.body.find("id=\"error_percent\"").unwrap();
        let input = got.body[start..].split('>').next().unwrap();
        assert!(input.contains("aria-invalid=\"true\""), "{wrong}: {input}");
    }
    let usual = GatewayAlertSettings::default();
    assert_eq!(gateway.store.gateway_alert_settings().await.unwrap(), usual);
    for (text, percent) in [("5 %", Some(5)), ("", None)] {
        let saved = gateway.post(GATEWAY_PAGE, &fields(text)).cookie(&cookie).send().await;
        saved.assert_redirect("/console/settings/alerts?told=saved");
        let quiet = Some(QuietHours::new("22:00", "06:30", "UTC").unwrap());
        let wanted = GatewayAlertSettings {
            credentials: false,
            error_percent: percent,
            receivers: AlertReceivers { mails: false, quiet, webhook: None },
            ..usual.clone()
        };
        assert_eq!(gateway.store.gateway_alert_settings().await.unwrap(), wanted);
    }
    // A form without its fields changes nothing.
    let got = gateway.post(GATEWAY_PAGE, &[("mail", "on")]).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn pages_of_administration_show_what_lasts() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("mia", AccountRole::Member).await;
    gateway.account("ada", AccountRole::Admin).await;
    let (member, cookie) = (gateway.sign_in("mia").await, gateway.sign_in("ada").await);
    let event = |number: u8| Alert {
        id: format!("event {number}"),
        account_id: GATEWAY_OWNER.to_owned(),
        key_id: None,
        kind: AlertKind::Gateway(EventKind::Lane),
        begun: START,
        amount: Money::ZERO,
        level: 0,
        spent: Money::ZERO,
        at: START,
        event: Some(GatewayEvent {
            subject: format!("{ODD}/{number}"),
            detail: "its calls fail".to_owned(),
            ended: None,
        }),
        mail: AlertDelivery::default(),
        webhook: AlertDelivery::default(),
    };
    gateway.store.add_alerts((0..7).map(event).collect()).await.unwrap();
    for path in ["/console/providers", "/console/settings", "/console/people", "/console/system"] {
        let page = gateway.get(path).cookie(&cookie).send().await;
        for text in ["The lane acme/&lt;script&gt;", "is down since 2027-01-15", "2 more. "] {
            page.assert_contains(text);
        }
        page.assert_lacks("<script>alert");
    }
    // Elsewhere they are in the list, for administrators.
    gateway.get("/console").cookie(&cookie).send().await.assert_lacks("is down since");
    gateway.get(PAGE).cookie(&cookie).send().await.assert_contains("is down since");
    for path in [PAGE, "/console/providers", "/console"] {
        gateway.get(path).cookie(&member).send().await.assert_lacks("is down since");
    }
    for number in 0..7 {
        gateway.store.end_alert(&format!("event {number}"), START, true).await.unwrap();
    }
    let page = gateway.get("/console/providers").cookie(&cookie).send().await;
    page.assert_lacks("is down since");
    gateway.get(PAGE).cookie(&cookie).send().await.assert_contains("was down from");
}
