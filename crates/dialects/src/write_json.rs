//! Values that are written as JSON without a tree between.

use serde_json::{Map, Value};

use crate::json;

/// A value that can be written.
pub(crate) trait WriteJson {
    fn write_json(&self, out: &mut Vec<u8>);
}

macro_rules! write_serialized {
    ($($kind:ty),*) => {
        $(impl WriteJson for $kind {
            fn write_json(&self, out: &mut Vec<u8>) {
                json::write_value(self, out);
            }
        })*
    };
}

write_serialized!(bool, u8, u16, u32, u64, usize, i32, i64, f64);

impl WriteJson for &str {
    fn write_json(&self, out: &mut Vec<u8>) {
        json::write_string(self, out);
    }
}

impl WriteJson for String {
    fn write_json(&self, out: &mut Vec<u8>) {
        json::write_string(self, out);
    }
}

impl WriteJson for Value {
    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::String(text) => json::write_string(text, out),
            Self::Array(items) => items.write_json(out),
            Self::Object(fields) => fields.write_json(out),
            Self::Null | Self::Bool(_) | Self::Number(_) => json::write_value(self, out),
        }
    }
}

impl WriteJson for Map<String, Value> {
    fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, (name, value)) in self.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            json::write_string(name, out);
            out.push(b':');
            value.write_json(out);
        }
        out.push(b'}');
    }
}

impl<T: WriteJson> WriteJson for Option<T> {
    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write_json(out),
            None => out.extend_from_slice(b"null"),
        }
    }
}

impl<T: WriteJson> WriteJson for Vec<T> {
    fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (at, item) in self.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            item.write_json(out);
        }
        out.push(b']');
    }
}
