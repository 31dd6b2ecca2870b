//! AWS Signature Version 4, computed a second time from what a server received. It shares no code with
//! the gateway.

use aws_lc_rs::{digest, hmac};

use crate::identity::stub::StubRequest;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// The parts of an `Authorization` header: access key, scope, signed headers, signature.
pub(crate) fn parts(authorization: &str) -> (String, String, Vec<String>, String) {
    let rest = authorization.strip_prefix("AWS4-HMAC-SHA256 ").expect(authorization);
    let field = |name: &str| {
        let found = rest.split(", ").find_map(|part| part.strip_prefix(name));
        found.expect(authorization).to_owned()
    };
    let credential = field("Credential=");
    let (access, scope) = credential.split_once('/').expect(authorization);
    let signed = field("SignedHeaders=").split(';').map(str::to_owned).collect();
    (access.to_owned(), scope.to_owned(), signed, field("Signature="))
}

/// Checks the signature of a request with this secret key, and returns the access key and the scope
/// without its day.
pub(crate) fn verify(request: &StubRequest, secret: &str) -> (String, String) {
    let (access, scope, signed, signature) = parts(request.header("authorization"));
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    // A path is escaped once more; only the percent sign and the colon occur in these tests.
    let path = path.replace('%', "%25").replace(':', "%3A");
    let mut pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    pairs.sort_unstable();
    let mut lines = vec![request.method.clone(), path, pairs.join("&")];
    for name in &signed {
        lines.push(format!("{name}:{}", request.header(name).trim()));
    }
    let body = sha256(&request.body);
    lines.extend([String::new(), signed.join(";"), body]);
    let stamp = request.header("x-amz-date");
    let text =
        format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", sha256(lines.join("\n").as_bytes()));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/') {
        key = mac(&key, part);
    }
    assert_eq!(hex(&mac(&key, &text)), signature, "{request:?}");
    for needed in ["host", "x-amz-date"] {
        assert!(signed.iter().any(|name| name == needed), "{needed} is signed");
    }
    let (day, rest) = scope.split_once('/').unwrap();
    assert!(stamp.starts_with(day));
    (access, rest.to_owned())
}
