//! Headers of a message that is to be sent.

use http::{HeaderMap, HeaderName, HeaderValue};

/// A few headers in the order in which they are written. A pass over them is less work than hashing
/// their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderFields(Vec<(HeaderName, HeaderValue)>);

impl HeaderFields {
    /// Sets a header, in place of the earlier ones of that name.
    pub fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        let first = self.0.iter().position(|(own, _)| *own == name);
        let Some(first) = first else { return self.0.push((name, value)) };
        let mut place = 0;
        self.0.retain(|(own, _)| {
            place += 1;
            place <= first + 1 || *own != name
        });
        if let Some((_, own)) = self.0.get_mut(first) {
            *own = value;
        }
    }

    /// Adds a header behind earlier ones of that name.
    pub fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.0.push((name, value));
    }

    /// Sets a header unless there is one of that name.
    pub fn insert_default(&mut self, name: HeaderName, value: HeaderValue) {
        if !self.contains(&name) {
            self.0.push((name, value));
        }
    }

    /// Returns true if there is a header of that name.
    pub fn contains(&self, name: &HeaderName) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// Iterates over the headers.
    pub fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }

    /// Returns the headers as a map.
    pub fn to_map(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.0.len());
        for (name, value) in &self.0 {
            headers.append(name, value.clone());
        }
        headers
    }
}

impl From<&HeaderMap> for HeaderFields {
    fn from(headers: &HeaderMap) -> Self {
        Self(headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

/// Appends the line of a header.
pub(crate) fn write_line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{ACCEPT, HOST, VIA};

    #[test]
    fn fields_change_as_a_map_does() {
        let (mut fields, mut map) = (HeaderFields::default(), HeaderMap::new());
        let word = HeaderValue::from_static;
        for (name, value) in [(VIA, "1"), (ACCEPT, "2"), (VIA, "3"), (HOST, "4")] {
            fields.append(name.clone(), word(value));
            map.append(name, word(value));
        }
        for (name, value) in [(VIA, "5"), (ACCEPT, "6"), (http::header::TE, "7")] {
            fields.insert(name.clone(), word(value));
            map.insert(name, word(value));
        }
        fields.insert_default(VIA, word("8"));
        fields.insert_default(http::header::AGE, word("9"));
        map.insert(http::header::AGE, word("9"));
        assert_eq!(fields.to_map(), map);
        assert_eq!(fields, HeaderFields::from(&fields.to_map()));
        assert_eq!(fields.iter().count(), 5);
    }
}
