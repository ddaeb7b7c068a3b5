//! MariaDB with a table of its own, and without a configuration beside paths and limits.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::contender::installed::installed;
use crate::bench::contender::{Trouble, output_on, own_cores};
use crate::bench::load::requests::USER;
use crate::bench::load::requests::protocol::{ROWS, text};
use crate::bench::runs::unmodified::command::under;
use crate::bench::runs::unmodified::setup::{Prepared, Setup};

const HOW: &str = "apt-get install mariadb-server";

/// The server reads its first statements in parts of 20,000 bytes, and changes the text at the
/// border of two.
const ROWS_OF_STATEMENT: usize = 100;

/// Options of one server.
pub struct Options {
    pub port: u16,
    pub connections: usize,
    /// `--thread-handling=pool-of-threads` instead of a thread per connection.
    pub pool: bool,
}

/// Copies the empty data folder, and writes the statements that the server executes at its start.
pub fn prepare(
    setup: &Setup,
    runtime: &'static str,
    options: &Options,
) -> Result<Prepared, Trouble> {
    let server = installed("mariadbd", HOW)?;
    let template = setup.mariadb.get_or_init(|| install(setup)).clone()?;
    let folder = setup.folder("mariadb")?;
    let data = folder.join("data");
    output_on(&own_cores(), Command::new("cp").arg("-a").arg(template).arg(&data))?;
    let statements = folder.join("init.sql");
    std::fs::write(&statements, sql()).map_err(|e| format!("{}: {e}", statements.display()))?;
    let mut command = under(runtime, &server)?;
    let path = |option: &str, path: &Path| format!("--{option}={}", path.display());
    command.arg("--no-defaults");
    command.args([
        path("datadir", &data),
        path("init-file", &statements),
        path("socket", &folder.join("socket")),
        path("pid-file", &folder.join("pid")),
        format!("--port={}", options.port),
        "--bind-address=127.0.0.1".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--back-log=4096".to_owned(),
        // Beside the load's, those of the start and of the queries that compute.
        format!("--max-connections={}", options.connections + 100),
    ]);
    if options.pool {
        command.arg("--thread-handling=pool-of-threads");
    }
    command.args(as_root());
    Ok(Prepared { command, folder, remarks: String::new() })
}

/// Creates an empty data folder.
fn install(setup: &Setup) -> Result<PathBuf, Trouble> {
    let program = installed("mariadb-install-db", HOW)?;
    let data = setup.path("mariadb");
    let mut command = Command::new(program);
    command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    command.arg(format!("--datadir={}", data.display())).args(as_root());
    output_on(&own_cores(), &mut command)?;
    Ok(data)
}

/// The server refuses to run as root without being asked to.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

/// The table and the user of the load. Each line is a statement.
fn sql() -> String {
    let mut sql = format!(
        "CREATE DATABASE bench;\n\
         CREATE TABLE bench.rows (id INT PRIMARY KEY, c CHAR(120) NOT NULL) ENGINE=InnoDB;\n\
         CREATE USER '{USER}'@'127.0.0.1';\n\
         GRANT SELECT ON bench.* TO '{USER}'@'127.0.0.1';\n"
    );
    for first in (1..=ROWS).step_by(ROWS_OF_STATEMENT) {
        let rows: Vec<String> = (first..first + ROWS_OF_STATEMENT as u64)
            .map(|row| format!("({row},'{}')", text(row)))
            .collect();
        sql += &format!("INSERT INTO bench.rows VALUES {};\n", rows.join(","));
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_inserted_once() {
        let sql = sql();
        assert_eq!(sql.matches("'x").count() as u64, ROWS);
        assert!(sql.contains(&format!("({ROWS},'{}');", text(ROWS))));
        assert!(sql.lines().all(|statement| statement.len() < 20_000));
    }
}
