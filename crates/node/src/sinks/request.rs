//! An event as the request of a webhook. Pure: secrets are asked for through a parameter.

use bytes::Bytes;
use event::Event;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use manifest::{Format, Webhook};

/// By it a receiver can tell another try from another event.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const BEGIN: &str = "{SECRET:";

/// What a webhook sends with every event: all that does not depend on the event.
#[derive(Debug)]
pub struct Fixed {
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Puts secrets into url and headers. What is wrong is said without their values.
pub fn fixed(webhook: &Webhook, secret: impl Fn(&str) -> Option<String>) -> Result<Fixed, String> {
    let uri: Uri = fill(&webhook.url, &secret)?.trim().parse().map_err(|_| "webhook.url is no URL".to_owned())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err("webhook.url is no http or https URL".to_owned());
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("webhook.url holds a user; send `authorization` as a header".to_owned());
    }
    let mut headers = Vec::with_capacity(webhook.headers.len());
    for (name, text) in &webhook.headers {
        let header: HeaderName =
            name.parse().map_err(|_| format!("webhook.headers has {name:?}, which is no name of a header"))?;
        if !may_be_set(&header, webhook.format) {
            return Err(format!("webhook.headers has {name:?}, which the sink sets itself"));
        }
        let mut value: HeaderValue = fill(text, &secret)?
            .trim()
            .parse()
            .map_err(|_| format!("webhook.headers: {name:?} cannot have such a value"))?;
        value.set_sensitive(true);
        headers.push((header, value));
    }
    Ok(Fixed { uri, headers })
}

fn may_be_set(name: &HeaderName, format: Format) -> bool {
    let of_connection =
        ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];
    let of_event = match format {
        // The media type of the data is the event's to say; where that is all there is, the receiver may want another.
        Format::Data => false,
        Format::Binary | Format::Structured => !cloudevents::may_be_named(name),
    };
    !of_event
        && *name != HOST
        && *name != CONTENT_LENGTH
        && *name != IDEMPOTENCY_KEY
        && !of_connection.contains(&name.as_str())
}

/// Replaces each `{SECRET:NAME}`.
fn fill(text: &str, secret: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once('}').ok_or_else(|| format!("webhook: {BEGIN} is not closed with }}"))?;
        filled.push_str(before);
        filled.push_str(&secret(name).ok_or_else(|| format!("the node has no secret {name:?}"))?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

impl Fixed {
    /// The request for one event.
    pub fn request(&self, event: &Event, format: Format) -> Request<Full<Bytes>> {
        let named = cloudevents::binary(event);
        // The form in which an id can stand in a header: as in `ce-id`.
        let id = named.get("ce-id").cloned();
        let (headers, body) = match format {
            Format::Binary => (named, event.data.clone()),
            Format::Structured => {
                let kind = HeaderValue::from_static(cloudevents::STRUCTURED);
                (http::HeaderMap::from_iter([(CONTENT_TYPE, kind)]), cloudevents::structured(event))
            }
            Format::Data => {
                let kind = named.get(CONTENT_TYPE).cloned();
                (kind.map(|kind| (CONTENT_TYPE, kind)).into_iter().collect(), event.data.clone())
            }
        };
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        let traceparent = event.attribute(TRACEPARENT.as_str()).and_then(|trace| HeaderValue::from_str(trace).ok());
        let own = [(IDEMPOTENCY_KEY, id), (TRACEPARENT, traceparent)];
        request.headers_mut().extend(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let agent = HeaderValue::from_static(concat!("lighterage/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::Sink;

    fn webhook(toml: &str) -> Webhook {
        let sink: Sink = serde_json::from_str(&format!("{{\"queue\": \"q\", \"webhook\": {toml}}}")).unwrap();
        sink.webhook.unwrap()
    }

    fn secret(name: &str) -> Option<String> {
        (name == "KEY").then(|| "s3cret\n".to_owned())
    }

    fn event() -> Event {
        Event {
            id: "7 ü".into(),
            source: "/a".into(),
            kind: "t".into(),
            content_type: Some("text/plain".into()),
            attributes: vec![("traceparent".into(), "00-1".into())],
            data: b"data".to_vec(),
            ..Event::default()
        }
    }

    #[test]
    fn secrets_go_into_url_and_headers_and_show_nowhere() {
        let webhook = webhook(
            r#"{"url": "https://example.org/{SECRET:KEY}?a={SECRET:KEY}", "headers": {"Authorization": "Bearer {SECRET:KEY}"}}"#,
        );
        // A newline in the middle of a URL: the file the secret came from ended with one.
        assert!(fixed(&webhook, secret).unwrap_err().contains("no URL"));
        let fixed = fixed(&webhook, |name| Some(secret(name)?.trim().to_owned())).unwrap();
        let request = fixed.request(&event(), Format::Binary);
        assert_eq!(request.uri(), "https://example.org/s3cret?a=s3cret");
        assert_eq!(request.headers()["authorization"], "Bearer s3cret");
        assert!(!format!("{:?}", request.headers()).contains("s3cret"));
    }

    #[test]
    fn each_format_carries_the_event_in_its_way() {
        let fixed = fixed(&webhook(r#"{"url": "http://example.org/x"}"#), secret).unwrap();
        let header = |format, name: &str| {
            let request = fixed.request(&event(), format);
            request.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        for format in [Format::Binary, Format::Structured, Format::Data] {
            assert_eq!(header(format, "idempotency-key").as_deref(), Some("7%20%C3%BC"));
            assert_eq!(header(format, "traceparent").as_deref(), Some("00-1"));
        }
        assert_eq!(header(Format::Binary, "ce-type").as_deref(), Some("t"));
        assert_eq!(header(Format::Binary, "content-type").as_deref(), Some("text/plain"));
        assert_eq!(header(Format::Structured, "content-type").as_deref(), Some("application/cloudevents+json"));
        assert_eq!(header(Format::Structured, "ce-type"), None);
        assert_eq!(header(Format::Data, "content-type").as_deref(), Some("text/plain"));
        assert_eq!(header(Format::Data, "ce-type"), None);
    }

    #[test]
    fn what_cannot_be_sent_is_found_before_it_is_sent() {
        for (toml, said) in [
            (r#"{"url": "{SECRET:NONE}"}"#, "NONE"),
            (r#"{"url": "{SECRET:KEY"}"#, "not closed"),
            (r#"{"url": "http://"}"#, "URL"),
            (r#"{"url": "http://user:{SECRET:KEY}@h/"}"#, "URL"),
            (r#"{"url": "http://user@h/"}"#, "authorization"),
            (r#"{"url": "http://h/", "headers": {"a b": "x"}}"#, "a b"),
            (r#"{"url": "http://h/", "headers": {"host": "x"}}"#, "sets itself"),
            (r#"{"url": "http://h/", "headers": {"ce-id": "x"}}"#, "sets itself"),
            (r#"{"url": "http://h/", "headers": {"content-type": "x"}}"#, "sets itself"),
            (r#"{"url": "http://h/", "headers": {"x": "a\nb"}}"#, "such a value"),
        ] {
            let why = fixed(&webhook(toml), secret).unwrap_err();
            assert!(why.contains(said) && !why.contains("s3cret"), "{why}");
        }
        let slack =
            webhook(r#"{"url": "http://h/", "format": "data", "headers": {"content-type": "application/json"}}"#);
        assert!(fixed(&slack, secret).is_ok());
    }
}
