//! sqlx beside Tokio: microprocesses query PostgreSQL, and await sqlx's futures. Tokio's runtime
//! has the sockets and timers, on one kernel thread.
//!
//! `cargo run --release -p kumihimo-examples-sqlx --bin sqlx_beside_tokio URL`

use std::error::Error;

use kumihimo::future::block_on;
use kumihimo::thread;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Handle;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: i64 = 200;
const CONNECTIONS: u32 = 20;

// ANCHOR: worker
/// One of many microprocesses that share a pool of connections.
fn worker(n: i64, pool: &PgPool, tokio: &Handle) -> Fallible<i64> {
    // Tokio's sockets and timers, for the futures that this microprocess polls.
    let _inside = tokio.enter();
    block_on(async {
        let mut transaction = pool.begin().await?;
        sqlx::query("INSERT INTO numbers VALUES ($1)").bind(n).execute(&mut *transaction).await?;
        let (square,): (i64,) = sqlx::query_as("SELECT n * n FROM numbers WHERE n = $1")
            .bind(n)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(square)
    })
}
// ANCHOR_END: worker

fn main() -> Fallible<()> {
    let url = std::env::args().nth(1).ok_or("usage: sqlx_beside_tokio URL")?;
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let pool = {
        let _inside = tokio.enter();
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
        let pool = block_on(pool.connect(&url))?;
        block_on(sqlx::query("DROP TABLE IF EXISTS numbers").execute(&pool))?;
        block_on(sqlx::query("CREATE TABLE numbers (n BIGINT)").execute(&pool))?;
        pool
    };
    let workers: Vec<_> = (1..=WORKERS)
        .map(|n| {
            let (pool, handle) = (pool.clone(), tokio.handle().clone());
            thread::spawn(move || worker(n, &pool, &handle))
        })
        .collect();
    let mut squares = 0;
    for worker in workers {
        squares += worker.join().expect("no panic")?;
    }
    let _inside = tokio.enter();
    let (rows, sum): (i64, i64) =
        block_on(sqlx::query_as("SELECT count(*), sum(n)::bigint FROM numbers").fetch_one(&pool))?;
    println!("rows {rows}, sum {sum}, squares {squares}");
    block_on(pool.close());
    Ok(())
}
