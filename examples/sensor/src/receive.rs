//! `sensor receive`: what a chat does with an incoming webhook, on a terminal.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::{Router, routing};
use clap::Args;
use serde_json::Value;
use tokio::net::TcpListener;

#[derive(Debug, Args)]
pub struct Receive {
    /// Address to listen on; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8799")]
    listen: String,
    /// Word before each text
    #[arg(long, default_value = "alert")]
    word: String,
}

impl Receive {
    pub async fn run(self) -> Result<(), String> {
        let listener = TcpListener::bind(&self.listen).await.map_err(|error| format!("{}: {error}", self.listen))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        println!("receiving at http://{address}/");
        let word = self.word;
        let take = async move |body: Bytes| match text(&body) {
            Some(text) => {
                println!("{word}: {}", text.replace(char::is_control, " "));
                (StatusCode::OK, "ok")
            }
            // What Slack answers to it.
            None => (StatusCode::BAD_REQUEST, "invalid_payload"),
        };
        let app = Router::new().fallback(routing::post(take));
        axum::serve(listener, app).await.map_err(|error| error.to_string())
    }
}

/// The text of a message for a chat; of any other JSON, all of it.
fn text(body: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(body).ok()?;
    Some(match document.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => document.to_string(),
    })
}
