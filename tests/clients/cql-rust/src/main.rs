//! The Rust driver of ScyllaDB against CQL_ADDR.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::{StreamExt, future::join_all};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::batch::Batch;
use scylla::value::CqlTimestamp;

const KEYSPACE: &str = "rust_suite";
const PAGED_ROWS: i32 = 5_000;
const RACERS: i32 = 16;
/// A busy machine may halt the server or this process for longer than the seconds of the defaults.
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome = Result<(), Box<dyn Error>>;
type Test = for<'a> fn(&'a Session) -> Pin<Box<dyn Future<Output = Outcome> + 'a>>;

fn equal<T: PartialEq + std::fmt::Debug>(got: T, expected: T) -> Outcome {
    if got == expected { Ok(()) } else { Err(format!("got {got:?}, expected {expected:?}").into()) }
}

fn refused<T>(got: Result<T, impl Error>, text: &str) -> Outcome {
    match got {
        Err(error) if error.to_string().contains(text) => Ok(()),
        Err(error) => Err(format!("refused with {error}, expected {text:?}").into()),
        Ok(_) => Err(format!("no error, expected {text:?}").into()),
    }
}

async fn types(session: &Session) -> Outcome {
    session
        .query_unpaged(
            "CREATE TABLE types (k int PRIMARY KEY, a text, b bigint, c blob, d double, \
             e list<int>, f set<text>, g map<text, int>, h timestamp, i boolean)",
            (),
        )
        .await?;
    let insert = session
        .prepare("INSERT INTO types (k, a, b, c, d, e, f, g, h, i) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .await?;
    let set = HashSet::from(["x".to_owned(), "y".to_owned()]);
    let map = HashMap::from([("one".to_owned(), 1)]);
    let values = (
        1, "grüße", i64::MIN, vec![0u8, 255], 1e-300, vec![3, 1, 2], &set, &map, CqlTimestamp(-5), true,
    );
    session.execute_unpaged(&insert, values).await?;
    type Row = (
        String, i64, Vec<u8>, f64, Vec<i32>, HashSet<String>, HashMap<String, i32>, CqlTimestamp, bool,
    );
    let select = session.prepare("SELECT a, b, c, d, e, f, g, h, i FROM types WHERE k = ?").await?;
    let result = session.execute_unpaged(&select, (1,)).await?.into_rows_result()?;
    let row: Row = result.single_row()?;
    equal((row.0.as_str(), row.1, row.2, row.3), ("grüße", i64::MIN, vec![0, 255], 1e-300))?;
    equal((row.4, row.5, row.6, row.7.0, row.8), (vec![3, 1, 2], set, map, -5, true))
}

async fn pages(session: &Session) -> Outcome {
    session.query_unpaged("CREATE TABLE paged (p int, c int, PRIMARY KEY (p, c))", ()).await?;
    let insert = session.prepare("INSERT INTO paged (p, c) VALUES (1, ?)").await?;
    for from in (0..PAGED_ROWS).step_by(250) {
        let writes = (from..from + 250).map(|c| session.execute_unpaged(&insert, (c,)));
        for done in join_all(writes).await {
            done?;
        }
    }
    let mut select = session.prepare("SELECT c FROM paged WHERE p = 1").await?;
    select.set_page_size(77);
    let mut rows = session.execute_iter(select, ()).await?.rows_stream::<(i32,)>()?;
    let mut count = 0;
    while let Some(row) = rows.next().await {
        equal(row?.0, count)?;
        count += 1;
    }
    equal(count, PAGED_ROWS)
}

async fn batches(session: &Session) -> Outcome {
    session.query_unpaged("CREATE TABLE b (k int PRIMARY KEY, v int)", ()).await?;
    let insert = session.prepare("INSERT INTO b (k, v) VALUES (?, ?)").await?;
    let mut batch = Batch::default();
    batch.append_statement(insert.clone());
    batch.append_statement(insert);
    batch.append_statement("DELETE FROM b WHERE k = 9");
    session.batch(&batch, ((1, 10), (2, 20), ())).await?;
    let result = session.query_unpaged("SELECT v FROM b", ()).await?.into_rows_result()?;
    let mut values: Vec<i32> =
        result.rows::<(i32,)>()?.map(|row| row.map(|row| row.0)).collect::<Result<_, _>>()?;
    values.sort_unstable();
    equal(values, vec![10, 20])
}

async fn one_winner(session: &Session) -> Outcome {
    session.query_unpaged("CREATE TABLE race (k int PRIMARY KEY, winner int)", ()).await?;
    let claim = session.prepare("INSERT INTO race (k, winner) VALUES (1, ?) IF NOT EXISTS").await?;
    let claims = (0..RACERS).map(|racer| session.execute_unpaged(&claim, (racer,)));
    let mut winners = 0;
    for claimed in join_all(claims).await {
        let result = claimed?.into_rows_result()?;
        let row = result.single_row::<scylla::value::Row>()?;
        let applied = row.columns[0].as_ref().and_then(|value| value.as_boolean());
        winners += i32::from(applied == Some(true));
    }
    equal(winners, 1)
}

async fn errors(session: &Session) -> Outcome {
    refused(session.query_unpaged("SELECT * FROM nope", ()).await, "nope")?;
    refused(session.query_unpaged("SELEC 1", ()).await, "line 1")?;
    session.query_unpaged("CREATE TABLE e (k int PRIMARY KEY)", ()).await?;
    refused(session.query_unpaged("CREATE TABLE e (k int PRIMARY KEY)", ()).await, "exist")
}

async fn schema(session: &Session) -> Outcome {
    session.query_unpaged("CREATE TABLE seen (a int, b text, v int, PRIMARY KEY (a, b))", ()).await?;
    session.refresh_metadata().await?;
    let state = session.get_cluster_state();
    let table = &state.get_keyspace(KEYSPACE).ok_or("no keyspace")?.tables["seen"];
    equal(table.partition_key.clone(), vec!["a".to_owned()])?;
    equal(table.clustering_key.clone(), vec!["b".to_owned()])?;
    equal(table.columns.len(), 3)
}

/// The server runs with `placement` source-port: the driver takes its reactors for shards, and has
/// a connection to each by its own choice of ports.
async fn shards(session: &Session) -> Outcome {
    let state = session.get_cluster_state();
    let node = state.get_nodes_info().first().ok_or("no node")?;
    let sharder = node.sharder().ok_or("the driver knows of no shards")?;
    equal((sharder.nr_shards.get(), sharder.msb_ignore), (2, 0))?;
    let all_reactors = || async {
        let counts = "SELECT name, connections FROM system_views.reactors";
        let result = session.query_unpaged(counts, ()).await?.into_rows_result()?;
        let counts: Vec<(String, i32)> = result.rows()?.collect::<Result<_, _>>()?;
        // No shard: the reactor that serves administrators.
        let shards = counts.iter().filter(|(name, _)| name != "spare");
        let used = shards.clone().filter(|(_, connections)| *connections > 0);
        Ok::<_, Box<dyn Error>>(shards.count() == 2 && used.count() == 2)
    };
    // The driver opens connections in the background.
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if all_reactors().await? {
            return Ok(());
        }
    }
    Err("a reactor has no connection".into())
}

const TESTS: [(&str, Test); 7] = [
    ("types", |session| Box::pin(types(session))),
    ("pages", |session| Box::pin(pages(session))),
    ("batches", |session| Box::pin(batches(session))),
    ("one_winner", |session| Box::pin(one_winner(session))),
    ("errors", |session| Box::pin(errors(session))),
    ("schema", |session| Box::pin(schema(session))),
    ("shards", |session| Box::pin(shards(session))),
];

async fn attempt(address: &str, test: Test) -> Outcome {
    let builder = SessionBuilder::new().known_node(address).connection_timeout(PATIENCE);
    let session = builder.build().await?;
    session.query_unpaged(format!("DROP KEYSPACE IF EXISTS {KEYSPACE}"), ()).await?;
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    let create = format!("CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}");
    session.query_unpaged(create, ()).await?;
    session.use_keyspace(KEYSPACE, false).await?;
    test(&session).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::var("CQL_ADDR")?;
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS {
        match attempt(&address, test).await {
            Ok(()) => {
                println!("ok {name}");
                passed += 1;
            }
            Err(error) => {
                println!("FAILED {name}: {error}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed > 0 { Err("some tests failed".into()) } else { Ok(()) }
}
