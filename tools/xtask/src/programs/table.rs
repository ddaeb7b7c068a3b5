//! The table of programs: what is run, and what is compared.

/// What a program has to do with threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// It creates some.
    Some,
    /// It creates none on its way; what is compared is that nothing changes.
    None,
}

/// An entry of the table.
#[derive(Debug)]
pub struct Program {
    /// Name for the command line and the page.
    pub name: &'static str,
    /// Commands that it needs, with their Debian packages.
    pub needs: &'static [(&'static str, &'static str)],
    /// Shell command that prints the version on its first line.
    pub version: &'static str,
    /// What is compared, for the page.
    pub checked: &'static str,
    /// Shell command, in a folder of its own: see `scripts/lib.sh`.
    pub command: &'static str,
    /// Shell command through which the output goes before it is compared; empty for none.
    pub filter: &'static str,
    pub threads: Threads,
    /// A difference that is known and not mended.
    pub known: Option<Known>,
}

/// A difference that is known. A run that differs in anything else fails, and so does one without
/// the difference under the default event source, so that no such note outlives its reason.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Why it differs, in words of the limits page.
    pub why: &'static str,
    /// Pairs of lines: what the plain run prints, and what a run under `kumi run` prints instead.
    pub lines: &'static [(&'static str, &'static str)],
}

/// Most entries.
const fn program(name: &'static str, command: &'static str) -> Program {
    Program {
        name,
        needs: &[],
        version: "",
        checked: "",
        command,
        filter: "",
        threads: Threads::Some,
        known: None,
    }
}

const MARIADB: &[(&str, &str)] = &[
    ("mariadbd", "mariadb-server"),
    ("mariadb-check", "mariadb-client"),
    ("sysbench", "sysbench"),
];
const MARIADB_VERSION: &str = "mariadbd --version | sed 's/.*Ver //; s/ .*//'";
const JAVA: &[(&str, &str)] =
    &[("java", "default-jdk-headless"), ("javac", "default-jdk-headless")];
const JAVA_VERSION: &str = "java -version 2>&1 | sed 's/.*version \"//; s/\".*//'";
const PYTHON: &[(&str, &str)] = &[("python3", "python3")];
const PYTHON_TESTS: &[(&str, &str)] =
    &[("python3", "python3"), (PYTHON_TEST_PROBE, "libpython3.*-testsuite")];
/// Not a command but a probe: succeeds if CPython's own tests are there.
const PYTHON_TEST_PROBE: &str = "!python3 -c 'import test.test_threading'";
const PYTHON_VERSION: &str = "python3 --version | sed 's/Python //'";
/// Tests of a class run in the order of their names, but classes in that of a directory. The log of
/// a failed test depends on time.
const PYTHON_FILTER: &str = "sed '/^log: /d' | sort";

/// A test of CPython's own suite.
pub const fn cpython(name: &'static str, command: &'static str, checked: &'static str) -> Program {
    Program {
        needs: PYTHON_TESTS,
        version: PYTHON_VERSION,
        checked,
        filter: PYTHON_FILTER,
        ..program(name, command)
    }
}

/// A part of `Threads.java`.
const fn java(name: &'static str, command: &'static str, checked: &'static str) -> Program {
    Program { needs: JAVA, version: JAVA_VERSION, checked, ..program(name, command) }
}

/// All entries, in the order of the page.
pub const TABLE: &[Program] = &[
    Program {
        needs: MARIADB,
        version: MARIADB_VERSION,
        checked: "OLTP read-write of 64 clients; rows, `mariadb-check --extended`, stop by SIGTERM",
        ..program("mariadb-64", "$FILES/mariadb.sh 64")
    },
    Program {
        needs: MARIADB,
        version: MARIADB_VERSION,
        checked: "OLTP read-write of 200 clients; rows, `mariadb-check --extended`, stop by SIGTERM",
        ..program("mariadb-200", "$FILES/mariadb.sh 200")
    },
    Program {
        needs: MARIADB,
        version: MARIADB_VERSION,
        checked: "killed three times under OLTP of 32 clients; recovery, rows, `mariadb-check --extended`",
        ..program("mariadb-kill", "$FILES/mariadb.sh 32 kill")
    },
    Program {
        needs: &[("apache2", "apache2")],
        version: "apache2 -v | sed 's/.*Apache.//; s/ .*//'",
        checked: "worker MPM, 100 keep-alive clients; each reply's bytes, stop by SIGTERM",
        ..program("apache-worker", "$FILES/apache.sh")
    },
    Program {
        needs: &[("memcached", "memcached")],
        version: "memcached -V | sed 's/memcached //'",
        checked: "200 clients; every value, again at the end, and a shared counter",
        ..program("memcached", "$FILES/memcached.sh")
    },
    Program {
        needs: &[("redis-server", "redis-server"), ("redis-cli", "redis-tools")],
        version: "redis-server --version | sed 's/.*v=//; s/ .*//'",
        checked: "`io-threads 4`, 100 clients; every value, a snapshot by fork, a restart from it",
        ..program("redis", "$FILES/redis.sh")
    },
    Program {
        needs: PYTHON,
        version: PYTHON_VERSION,
        checked: "ThreadingHTTPServer, 50 clients; each reply's bytes, end in order on SIGTERM",
        ..program("python-server", "$FILES/python-server.sh")
    },
    java(
        "java-echo",
        "$FILES/java-echo.sh",
        "a platform thread for each of 200 clients; each reply, shutdown hook on SIGTERM",
    ),
    Program {
        needs: &[("haproxy", "haproxy"), ("python3", "python3")],
        version: "haproxy -v | sed 's/HAProxy version //; s/[- ].*//'",
        checked: "`nbthread 4`, 50 clients; each reply's bytes",
        ..program("haproxy", "$FILES/haproxy.sh")
    },
    Program {
        needs: &[("stunnel4", "stunnel4"), ("openssl", "openssl"), ("python3", "python3")],
        version: "stunnel4 -version 2>&1 | sed -n 's/.*stunnel \\([0-9.]*\\) on .*/\\1/p'",
        checked: "a thread for each of 40 clients of TLS; each reply's bytes",
        ..program("stunnel", "$FILES/stunnel.sh")
    },
    Program {
        needs: &[("nginx", "nginx")],
        version: "nginx -v 2>&1 | sed 's/.*nginx.//; s/ .*//'",
        checked: "files by a pool of 16 threads, 40 clients; each reply's bytes, stop by SIGQUIT",
        ..program("nginx", "$FILES/nginx.sh")
    },
    Program {
        needs: &[("pgbench", "postgresql-contrib"), ("pg_config", "libpq-dev")],
        version: "pgbench --version | sed 's/.*(PostgreSQL) //; s/ .*//'",
        checked: "`pgbench -j 4 -c 16` and psql (libpq); history and sums of the accounts",
        ..program("pgbench", "$FILES/pgbench.sh")
    },
    java(
        "javac",
        "run javac -d . $FILES/Threads.java && sha256sum *.class",
        "the classes that it writes",
    ),
    java(
        "java-gc",
        "javac -d . $FILES/Threads.java && run java -Xmx128m -cp . Threads gc",
        "300 threads that allocate beside collections",
    ),
    java(
        "java-interrupt",
        "javac -d . $FILES/Threads.java && run java -cp . Threads interrupt",
        "200 interrupts of sleep, park, wait and a queue",
    ),
    java(
        "java-streams",
        "javac -d . $FILES/Threads.java && run java -cp . Threads streams",
        "parallel streams, a pool of 16 threads",
    ),
    java(
        "java-faults",
        "javac -d . $FILES/Threads.java && run java -Xss1m -cp . Threads faults",
        "StackOverflowError, NullPointerException by SIGSEGV",
    ),
    Program {
        known: Some(Known {
            why: "test_various_ops: a number is used again, see [limits](limits/run.md)",
            lines: &[
                ("exit status: 0", "exit status: 2"),
                (
                    "test.test_threading.ThreadTests.test_various_ops passed",
                    "test.test_threading.ThreadTests.test_various_ops failure",
                ),
            ],
        }),
        ..cpython("test_threading", "$FILES/cpython.sh test_threading", "CPython's own test")
    },
    cpython("test_threadsignals", "$FILES/cpython.sh test_threadsignals", "CPython's own test"),
    cpython("test_queue", "$FILES/cpython.sh test_queue", "CPython's own test"),
    cpython("test_socketserver", "$FILES/cpython.sh test_socketserver", "CPython's own test"),
    cpython("test_fork1", "$FILES/cpython.sh test_fork1", "CPython's own test"),
    cpython("test_asyncio", "$FILES/cpython.sh test_asyncio", "CPython's own test"),
    Program {
        needs: &[("node", "nodejs")],
        version: "node --version | tr -d v",
        checked: "eight workers, shared memory, messages, the pool of libuv",
        ..program("node", "run node $FILES/workers.js")
    },
    Program {
        needs: &[("ruby", "ruby")],
        version: "ruby --version | cut -d' ' -f2",
        checked: "threads, queues, sockets, time-outs, children, Thread#kill",
        ..program("ruby", "run ruby $FILES/threads.rb")
    },
    Program {
        needs: &[("git", "git")],
        version: "git --version | sed 's/git version //'",
        checked: "add, gc with deltas by four threads, grep, fsck, clone; names of all objects",
        ..program("git", "$FILES/git.sh")
    },
    Program {
        needs: &[("xz", "xz-utils")],
        version: "xz --version | sed 's/.* //'",
        checked: "four threads; the archive, and what it has",
        ..program("xz", "$FILES/xz.sh")
    },
    Program {
        needs: &[("zstd", "zstd")],
        version: "zstd --version | sed 's/.* v//; s/,.*//'",
        checked: "four threads; the archive, and what it has",
        ..program("zstd", "$FILES/zstd.sh")
    },
    Program {
        needs: &[("ffmpeg", "ffmpeg")],
        version: "ffmpeg -version | sed 's/ffmpeg version //; s/ .*//'",
        checked: "filters, encoder and decoder with four threads; the film and each of its frames",
        ..program("ffmpeg", "$FILES/ffmpeg.sh")
    },
    Program {
        needs: &[("sqlite3", "sqlite3")],
        version: "sqlite3 --version | cut -d' ' -f1",
        checked: "`pragma threads=4`, indices, sorted queries, integrity_check",
        ..program("sqlite3", "$FILES/sqlite.sh")
    },
    Program {
        needs: &[("rustc", "rustc")],
        version: "rustc --version | cut -d' ' -f2",
        checked: "eight units of code; a program of 300 threads that it builds",
        ..program("rustc", "$FILES/rustc.sh")
    },
    Program {
        needs: &[("gcc", "gcc")],
        version: "gcc -dumpfullversion",
        checked: "`-flto=2`; the program that it builds",
        threads: Threads::None,
        ..program("gcc-lto", "$FILES/lto.sh")
    },
    Program {
        needs: &[("gdb", "gdb"), ("cc", "gcc")],
        version: "gdb --version | sed 's/.* //'",
        checked: "attached three times to 20 threads that take turns, which then go on",
        ..program("gdb", "$FILES/gdb.sh")
    },
    Program {
        needs: &[("redis-benchmark", "redis-tools"), ("redis-server", "redis-server")],
        version: "redis-benchmark --version | cut -d' ' -f2",
        checked: "four threads, 50 connections; the sum of the counters on the server",
        ..program("redis-benchmark", "$FILES/redis-benchmark.sh")
    },
    Program {
        needs: &[("sysbench", "sysbench")],
        version: "sysbench --version | cut -d' ' -f2",
        checked: "64 threads that yield with locks held",
        ..program("sysbench-threads", "$FILES/sysbench.sh threads")
    },
    Program {
        needs: &[("sysbench", "sysbench")],
        version: "sysbench --version | cut -d' ' -f2",
        checked: "64 threads on mutexes",
        ..program("sysbench-mutex", "$FILES/sysbench.sh mutex")
    },
];
