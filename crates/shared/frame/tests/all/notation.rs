//! Values and bytes as `case.json` and `frame.hex` write them.

use frame::Value;
use serde_json::{Value as Json, json};

pub fn to_json(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::I64(number) => json!({ "i64": number.to_string() }),
        Value::F64(number) => json!({ "f64": format!("{:016x}", number.to_bits()) }),
        Value::Str(text) => json!(text),
        Value::Bytes(bytes) => json!({ "bytes": hex(bytes) }),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Map(entries) => {
            let entries: Json = entries.iter().map(|(key, value)| json!([key, to_json(value)])).collect();
            json!({ "map": entries })
        }
        Value::Tagged(name, value) => json!({ "tagged": [name, to_json(value)] }),
        Value::Buffer(bytes) => json!({ "buffer": hex(bytes) }),
        Value::Array(array) => json!({ "array": {
            "class": char::from(array.class as u8).to_string(),
            "byte-order": char::from(array.byte_order as u8).to_string(),
            "layout": char::from(array.layout as u8).to_string(),
            "item-bytes": array.item_bytes,
            "shape": array.shape.iter().map(u64::to_string).collect::<Vec<_>>(),
            "unit": array.unit,
            "data": hex(array.data),
        } }),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    assert!(digits.len().is_multiple_of(2), "an odd number of hex digits");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
