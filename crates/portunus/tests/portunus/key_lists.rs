//! The list of keys over the API: searched, narrowed, sorted and in pages.

use canon::Money;
use serde_json::Value;
use testkit::TestGateway;

use crate::money::key;

#[tokio::test]
async fn keys_are_searched_narrowed_sorted_and_paged() {
    let gateway = TestGateway::start().await;
    for n in 0..7 {
        key(&gateway, |record| {
            record.name = format!("robot {n}");
            record.cap = (n == 3).then_some(Money::ZERO);
        })
        .await;
    }
    let admin = gateway.admin_key().await.to_owned();
    let list = async |query: &str| -> Value {
        gateway.get(&format!("/api/admin/keys?{query}")).key(&admin).send().await.json()
    };
    let names = |list: &Value| -> Vec<String> {
        let keys = list["data"].as_array().unwrap().iter();
        keys.map(|key| key["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = list("").await;
    let total = all["total"].as_u64().unwrap();
    assert_eq!(names(&all).len() as u64, total);
    let mut paged = Vec::new();
    for page in 1..=total.div_ceil(3) {
        let one = list(&format!("limit=3&page={page}")).await;
        assert_eq!(one["total"], total);
        assert!(names(&one).len() <= 3);
        paged.extend(names(&one));
    }
    assert_eq!(paged, names(&all), "pages without a sort are in the order of the whole list");
    assert_eq!(names(&list("limit=3&page=99").await), [""; 0]);
    let found = list("q=ROBOT&limit=2&page=2&sort=name").await;
    assert_eq!(
        (found["total"].as_u64(), names(&found)),
        (Some(7), vec!["robot 2".into(), "robot 3".into()])
    );
    assert_eq!(names(&list("q=robot&sort=created&limit=1").await), ["robot 6"]);
    let spent = list("state=cap_reached").await;
    assert_eq!((spent["total"].as_u64(), names(&spent)), (Some(1), vec!["robot 3".to_owned()]));
    for (query, field) in [
        ("state=odd", "state"),
        ("sort=odd", "sort"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=%2B5", "limit"),
        ("limit=2&page=%2B1", "page"),
        ("limit=2&page=0", "page"),
        ("page=2", "page"),
    ] {
        assert_eq!(list(query).await["field"], field, "{query}");
    }
}
