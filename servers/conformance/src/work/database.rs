//! sqlite3.

use std::path::Path;

use super::{can, sh};

/// A database in WAL mode, which maps a shared-memory file: several processes write to it, and the
/// database is checked and opened again.
///
/// # Panics
/// If sqlite3(1) fails, or a row is missing.
pub fn keeps_a_database(place: &Path) {
    if !can("sqlite3", &["sqlite3"]) {
        return;
    }
    let sql = |text: &str| sh(place, "sqlite3", &["-bail", "database", text]);
    assert_eq!(
        sql("PRAGMA journal_mode=WAL; CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT);"),
        "wal\n"
    );
    let many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20000) \
                INSERT INTO t SELECT n, hex(randomblob(40)) FROM c;";
    sql(many);
    // Separate commits from several concurrent processes.
    std::thread::scope(|scope| {
        for writer in 0..3 {
            scope.spawn(move || {
                for n in 0..20 {
                    let number = 100_000 + writer * 1000 + n;
                    let insert =
                        format!(".timeout 60000\nINSERT INTO t VALUES ({number}, 'single');");
                    let (directive, statement) = insert.split_once('\n').expect("two lines");
                    sh(place, "sqlite3", &["-bail", "-cmd", directive, "database", statement]);
                }
            });
        }
    });
    assert_eq!(sql("SELECT count(*) FROM t;"), "20060\n");
    assert_eq!(sql("PRAGMA integrity_check;"), "ok\n");
    sql("DELETE FROM t WHERE n % 3 = 0; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);");
    assert_eq!(
        sql("PRAGMA integrity_check; SELECT count(*) FROM t WHERE n <= 20000;"),
        "ok\n13334\n"
    );
    assert_eq!(
        sql(
            "PRAGMA journal_mode=DELETE; SELECT count(*) FROM t WHERE text = 'single' AND n % 3 = 0;"
        ),
        "delete\n0\n"
    );
}
