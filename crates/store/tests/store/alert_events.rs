//! Events of the gateway, statements, and the settings of both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canon::{Micros, Money};
use store::{
    Alert, AlertDelivery, AlertFilter, AlertKind, AlertReceivers, AlertWay, DeliveryState,
    EventKind, GATEWAY_OWNER, GatewayAlertSettings, GatewayEvent, HourErrors, LimitKind,
    QuietHours, SealedSecret, SealedWebhook, Store, UsageStep, WebhookForm,
};

use crate::on_both;
use crate::samples::{account, entry, id, some_key};
use crate::test_database::TestDatabase;

on_both!(
    an_event_is_told_once_until_it_has_ended,
    the_end_is_told_in_the_ways_of_the_begin,
    a_mail_about_a_begin_counts_after_the_end,
    a_statement_of_a_month_is_one_alert,
    settings_of_the_gateway_are_kept,
    failed_calls_are_counted_by_hour,
    programs_before_the_table_read_their_own_alerts,
);

const NOW: Micros = Micros::from_secs(1_763_550_000);
const MINUTE: Micros = Micros::from_secs(60);

fn delivery(state: DeliveryState) -> AlertDelivery {
    AlertDelivery { state: Some(state), at: NOW, ..AlertDelivery::default() }
}

fn event(kind: EventKind, subject: &str, begun: Micros) -> Alert {
    let (subject, detail) = (subject.to_owned(), "its calls fail".to_owned());
    Alert {
        id: id(),
        account_id: GATEWAY_OWNER.to_owned(),
        key_id: None,
        kind: AlertKind::Gateway(kind),
        begun,
        amount: Money::ZERO,
        level: 0,
        spent: Money::ZERO,
        at: NOW,
        event: Some(GatewayEvent { subject, detail, ended: None }),
        mail: delivery(DeliveryState::Pending),
        webhook: delivery(DeliveryState::Pending),
    }
}

/// Reads one alert of the gateway.
async fn read(store: &Store, id: &str) -> Alert {
    let filter = AlertFilter { account_id: Some(GATEWAY_OWNER.to_owned()), before: None };
    let all = store.alerts(&filter, 100).await.unwrap();
    all.into_iter().find(|one| one.id == id).unwrap()
}

fn ended(alert: &Alert) -> Option<Micros> {
    alert.event.as_ref().unwrap().ended
}

async fn an_event_is_told_once_until_it_has_ended(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let first = event(EventKind::Lane, "a/m", NOW);
    assert_eq!(store.add_alerts(vec![first.clone()]).await.unwrap(), std::slice::from_ref(&first));
    // From another node with another clock.
    let again = event(EventKind::Lane, "a/m", NOW + MINUTE);
    assert_eq!(store.add_alerts(vec![again.clone()]).await.unwrap(), []);
    let others = vec![
        event(EventKind::Lane, "b/m", NOW + MINUTE),
        event(EventKind::Health, "a/m", NOW + MINUTE * 2),
    ];
    assert_eq!(store.add_alerts(others.clone()).await.unwrap(), others);
    let open = store.open_alerts().await.unwrap();
    assert_eq!(open, [vec![first.clone()], others].concat());
    store.end_alert(&first.id, NOW + MINUTE, true).await.unwrap();
    // The second end changes nothing.
    store.end_alert(&first.id, NOW + MINUTE * 5, false).await.unwrap();
    assert_eq!(ended(&read(&store, &first.id).await), Some(NOW + MINUTE));
    assert_eq!(store.open_alerts().await.unwrap().len(), 2);
    assert_eq!(store.add_alerts(vec![again.clone()]).await.unwrap(), [again]);
    assert_eq!(store.open_alerts().await.unwrap().len(), 3);
    // All alerts of the gateway and of accounts are one list.
    let key = some_key(&store).await;
    let capped = Alert {
        id: id(),
        account_id: key.account_id.clone(),
        kind: AlertKind::Spending(LimitKind::Cap),
        event: None,
        at: NOW + MINUTE,
        ..first
    };
    store.add_alerts(vec![capped.clone()]).await.unwrap();
    let all = store.alerts(&AlertFilter::default(), 10).await.unwrap();
    assert_eq!((all.len(), &all[0].id), (5, &capped.id));
    assert_eq!(store.drop_alerts(NOW + MINUTE * 2).await.unwrap(), 5);
}

async fn the_end_is_told_in_the_ways_of_the_begin(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let end = NOW + MINUTE * 20;
    let some = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed];
    let states = [None].into_iter().chain(some.map(Some));
    for (number, state) in states.enumerate() {
        for is_told in [true, false] {
            let one = event(EventKind::Lane, &format!("{number} {is_told}"), NOW);
            store.add_alerts(vec![one.clone()]).await.unwrap();
            let noted = AlertDelivery { state, tries: 3, at: NOW + MINUTE, status: None };
            for way in [AlertWay::Mail, AlertWay::Webhook] {
                store.note_alert_delivery(&one.id, way, noted).await.unwrap();
            }
            store.end_alert(&one.id, end, is_told).await.unwrap();
            let wanted = match (state, is_told) {
                (Some(DeliveryState::Delivered), true) => AlertDelivery {
                    state: Some(DeliveryState::Pending),
                    tries: 0,
                    at: end,
                    status: None,
                },
                // A delivery that waits has begin and end in one message.
                (Some(DeliveryState::Pending), false) => AlertDelivery { state: None, ..noted },
                _ => noted,
            };
            let found = read(&store, &one.id).await;
            assert_eq!((found.mail, found.webhook), (wanted, wanted), "{state:?} {is_told}");
        }
    }
}

async fn a_mail_about_a_begin_counts_after_the_end(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let one = event(EventKind::Lane, "a/m", NOW);
    store.add_alerts(vec![one.clone()]).await.unwrap();
    let last = async || store.last_alert_mail(GATEWAY_OWNER, NOW).await.unwrap();
    assert_eq!(last().await, Micros::ZERO);
    let sent = AlertDelivery { at: NOW + MINUTE, ..delivery(DeliveryState::Delivered) };
    store.note_alert_delivery(&one.id, AlertWay::Mail, sent).await.unwrap();
    assert_eq!(last().await, NOW + MINUTE);
    store.end_alert(&one.id, NOW + MINUTE * 2, true).await.unwrap();
    assert_eq!(last().await, NOW + MINUTE);
    let due = async |at| store.due_alerts(AlertWay::Mail, at, 10).await.unwrap().len();
    assert_eq!(due(NOW + MINUTE * 2).await, 1);
    store.postpone_alerts(GATEWAY_OWNER, AlertWay::Mail, NOW + MINUTE * 11).await.unwrap();
    assert_eq!((due(NOW + MINUTE * 2).await, due(NOW + MINUTE * 11).await), (0, 1));
}

async fn a_statement_of_a_month_is_one_alert(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("anna");
    store.add_account(&owner).await.unwrap();
    let month = UsageStep::Month.begin(NOW);
    let statement = |begun| Alert {
        id: id(),
        account_id: owner.id.clone(),
        kind: AlertKind::Statement,
        begun,
        event: None,
        webhook: AlertDelivery::default(),
        ..event(EventKind::Lane, "", NOW)
    };
    let first = statement(month);
    assert_eq!(store.add_alerts(vec![first.clone()]).await.unwrap(), [first]);
    assert_eq!(store.add_alerts(vec![statement(month)]).await.unwrap(), []);
    let told = store.accounts_with_statement(month).await.unwrap();
    assert_eq!(told, BTreeSet::from([owner.id.clone()]));
    let next = UsageStep::Month.end(NOW);
    assert_eq!(store.accounts_with_statement(next).await.unwrap(), BTreeSet::new());
    assert_eq!(store.add_alerts(vec![statement(next)]).await.unwrap().len(), 1);
    let gone = Alert { account_id: id(), ..statement(next) };
    assert_eq!(store.add_alerts(vec![gone]).await.unwrap(), [], "its account is gone");
    assert_eq!(store.open_alerts().await.unwrap(), [], "it is no event of the gateway");
}

async fn settings_of_the_gateway_are_kept(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let usual = GatewayAlertSettings::default();
    assert_eq!(store.gateway_alert_settings().await.unwrap(), usual);
    let address = SealedSecret { by: "one".to_owned(), bytes: vec![1, 2, 3] };
    let receivers = AlertReceivers {
        mails: false,
        quiet: Some(QuietHours::new("22:00", "07:30", "Europe/Berlin").unwrap()),
        webhook: Some(SealedWebhook { form: WebhookForm::Slack, address }),
    };
    let chosen = GatewayAlertSettings { receivers, error_percent: None, ..usual.clone() };
    for settings in [
        GatewayAlertSettings { lanes: false, ..usual.clone() },
        GatewayAlertSettings { credentials: false, ..usual.clone() },
        GatewayAlertSettings { health: false, error_percent: Some(100), ..usual.clone() },
        usual,
        chosen.clone(),
    ] {
        let mut change = store.begin_change().await.unwrap();
        change.put_gateway_alert_settings(&settings, NOW).await.unwrap();
        change.commit_unaudited().await.unwrap();
        assert_eq!(store.gateway_alert_settings().await.unwrap(), settings);
    }
    assert_eq!(store.alert_receivers(GATEWAY_OWNER).await.unwrap(), chosen.receivers);
    assert_eq!(store.sealed().await.unwrap(), BTreeMap::from([("one".to_owned(), 1)]));
}

async fn failed_calls_are_counted_by_hour(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let hour = UsageStep::Hour.begin(NOW);
    for (at, status) in [
        (hour - Micros::from_hours(2), 500),
        (hour - MINUTE, 503),
        (hour - MINUTE, 200),
        (hour, 499),
        (hour + MINUTE, 500),
        (hour + MINUTE, 599),
    ] {
        let mut call = entry(&id(), &key, 1, at.get());
        (call.started, call.status) = (at, status);
        store.post(&[call]).await.unwrap();
    }
    let found = store.hour_errors(hour - Micros::from_hours(1)).await.unwrap();
    let before = HourErrors { begun: hour - Micros::from_hours(1), calls: 2, failed: 1 };
    assert_eq!(found, [before, HourErrors { begun: hour, calls: 3, failed: 2 }]);
}

/// The statements of programs that know migration 46.
async fn programs_before_the_table_read_their_own_alerts(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let gateway = event(EventKind::Lane, "a/m", NOW);
    let statement = Alert {
        id: id(),
        account_id: key.account_id.clone(),
        kind: AlertKind::Statement,
        event: None,
        ..gateway.clone()
    };
    store.add_alerts(vec![gateway, statement]).await.unwrap();
    let account_id = &key.account_id;
    database
        .execute_text(format!(
            "INSERT INTO alerts (id, account_id, key_id, bound, begun, amount, level, spent, at, mail, \
             mail_at, webhook, webhook_at) \
             VALUES ('old', '{account_id}', '', 'cap', 0, 1, 80, 1, 5, 'pending', 5, NULL, 5)"
        ))
        .await;
    database
        .execute_text(format!(
            "INSERT INTO alert_settings (account_id, levels, mails, form, sealed, sealed_by, changed, \
             forecasts, expiries, quiet) \
             VALUES ('{account_id}', '[80]', 1, NULL, NULL, NULL, 1, 1, 1, NULL)"
        ))
        .await;
    // Fails if a row has a word that they do not know.
    database.execute_raw("INSERT INTO alerts SELECT * FROM alerts WHERE bound <> 'cap'").await;
    let due = store.due_alerts(AlertWay::Mail, NOW, 10).await.unwrap();
    assert_eq!(due.len(), 3, "a newer program tells all");
    assert!(!store.alert_settings(&key.account_id).await.unwrap().statements);
}
