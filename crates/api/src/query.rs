//! Parsing of query strings and percent-encoding (RFC 3986, section 2.1).

/// Returns the decoded pairs of a query. The first of several equal names wins.
pub(crate) fn query_pairs(query: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = percent_decode(&name.replace('+', " "));
        if !found.iter().any(|(known, _)| *known == name) {
            found.push((name, percent_decode(&value.replace('+', " "))));
        }
    }
    found
}

/// Decodes percent-encoding. An invalid escape stays as it is.
pub(super) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let hex = ahead.next().zip(ahead.next()).and_then(|(high, low)| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(high)? * 16 + digit(low)?).ok()
        });
        match (byte, hex) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_pairs_are_decoded() {
        let found = query_pairs("a=1&b=x%20y+z&a=2&&c&%64=%zz%");
        let found: Vec<(&str, &str)> =
            found.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(found, [("a", "1"), ("b", "x y z"), ("c", ""), ("d", "%zz%")]);
        assert_eq!(percent_decode("google%2Fx%3A1%ff"), "google/x:1\u{fffd}");
    }
}
