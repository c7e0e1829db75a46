//! Orders that another service must receive exactly as they are stored: it reads them from the log.
//!
//! A program that writes to a database and then to a queue can crash in between. Here the log of the
//! database is the queue: `/changes` sends each record once it is on disk, from any position.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader};

use redis::Commands;
use scylla::client::session_builder::SessionBuilder;

fn address(variable: &str, otherwise: &str) -> String {
    env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
}

const SCHEMA: [&str; 3] = [
    "CREATE KEYSPACE IF NOT EXISTS outbox \
     WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE IF NOT EXISTS outbox.orders (id int PRIMARY KEY, item text)",
    "TRUNCATE outbox.orders",
];

/// The next change that mentions `text`, as JSON.
fn next_change(events: &mut impl BufRead, text: &str) -> Result<String, Box<dyn Error>> {
    for line in events.lines() {
        let line = line?;
        if let Some(change) = line.strip_prefix("data: ")
            && change.contains(text)
        {
            return Ok(change.to_owned());
        }
    }
    Err("the stream has ended".into())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let contact = address("CQL_ADDR", "127.0.0.1:9042");
    let session = SessionBuilder::new().known_node(contact).build().await?;
    for statement in SCHEMA {
        session.query_unpaged(statement, ()).await?;
    }

    // Events name tables by their identifiers.
    let query = "SELECT CAST(id AS text) FROM system_schema.tables \
                 WHERE keyspace_name = 'outbox' AND table_name = 'orders'";
    let rows = session.query_unpaged(query, ()).await?.into_rows_result()?;
    let (table,) = rows.single_row::<(String,)>()?;

    // The reader starts at the present end. It would store the `id` of the last event it has
    // handled, and send it as Last-Event-ID when it connects again: then it misses nothing.
    let url = format!("http://{}/changes?from=now", address("HTTP_ADDR", "127.0.0.1:8080"));
    let mut events = BufReader::new(ureq::get(&url).call()?.into_body().into_reader());

    let insert = session.prepare("INSERT INTO outbox.orders (id, item) VALUES (?, ?)").await?;
    for (id, item) in [(1, "tea"), (2, "cup")] {
        session.execute_unpaged(&insert, (id, item)).await?;
        let change = next_change(&mut events, &table)?;
        println!("the log has order {id}: {}", change.contains(item));
    }

    // The same stream has the changes of the Redis protocol.
    let url = format!("redis://{}/", address("ADDR", "127.0.0.1:6379"));
    let mut client = redis::Client::open(url)?.get_connection()?;
    client.set::<_, _, ()>("shipped", 1)?;
    let change = next_change(&mut events, "shipped")?;
    println!("the log has the key: {}", change.contains("\"value\":\"1\""));
    Ok(())
}
