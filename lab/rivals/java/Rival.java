// Benchmarks on Java's virtual threads, with a carrier for each of `--vps`.
//
// Called as `Rival BENCH [--vps N] [KEY=VALUE ...]`, it prints one line per sample:
// `metric value unit [key=value ...] [key:=value ...]`.
//
// The virtual machine compiles while it runs, so each benchmark runs once before it is measured.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

public class Rival {
	static final int INSIDE = 10, OUTSIDE = 40, CROWD = 100_000;

	interface Body {
		void run() throws Exception;
	}

	final Map<String, String> keys = new HashMap<>();
	final ThreadFactory threads;
	int vps = 1;
	String bench;

	Rival(String[] words) throws Exception {
		for (int i = 0; i < words.length; i++) {
			int equals = words[i].indexOf('=');
			if (words[i].equals("--vps")) vps = Integer.parseInt(words[++i]);
			else if (equals >= 0) keys.put(words[i].substring(0, equals), words[i].substring(equals + 1));
			else bench = words[i];
		}
		// Read when the first virtual thread is created.
		for (String limit : new String[] {"parallelism", "maxPoolSize"})
			System.setProperty("jdk.virtualThreadScheduler." + limit, Integer.toString(vps));
		// By name, because compilers of releases before 21 do not know virtual threads.
		Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
		Class<?> type = Class.forName("java.lang.Thread$Builder");
		threads = (ThreadFactory) type.getMethod("factory").invoke(builder);
	}

	public static void main(String[] words) throws Exception {
		Rival rival = new Rival(words);
		Thread bench = rival.start(rival::run);
		bench.join();
		System.exit(0);
	}

	void run() throws Exception {
		switch (bench) {
			case "yield": yield_(); break;
			case "message": message(); break;
			case "sieve": sieve(); break;
			case "mutex": mutex(); break;
			case "null-fork": nullFork(); break;
			case "skynet": skynet(); break;
			case "parked": parked(); break;
			default: throw new IllegalArgumentException(bench + ": unknown benchmark");
		}
	}

	// --- threads and samples

	Thread start(Body body) {
		Thread thread = threads.newThread(() -> {
			try {
				body.run();
			} catch (Throwable error) {
				// An error of one thread must not leave the others waiting.
				System.err.println("rival-java: " + error);
				Runtime.getRuntime().halt(1);
			}
		});
		thread.start();
		return thread;
	}

	static void sample(String metric, double value, String unit, String keys) {
		System.out.println(metric + " " + value + " " + unit + " " + keys);
	}

	static void check(boolean holds, String what) {
		if (!holds) throw new IllegalStateException(what);
	}

	boolean wants(String part) {
		return keys.getOrDefault("part", part).equals(part);
	}

	int value(String key, int otherwise) {
		return Integer.parseInt(keys.getOrDefault(key, Integer.toString(otherwise)));
	}

	// Nanoseconds that `body` takes, after a first run.
	static double nanoseconds(Body body) throws Exception {
		body.run();
		long start = System.nanoTime();
		body.run();
		return System.nanoTime() - start;
	}

	// --- communication

	// Two threads for each carrier, which take turns.
	void yield_() throws Exception {
		final int rounds = 500_000;
		double took = nanoseconds(() -> {
			Thread[] all = new Thread[2 * vps];
			for (int i = 0; i < all.length; i++)
				all[i] = start(() -> {
					for (int n = 0; n < rounds; n++) Thread.yield();
				});
			for (Thread one : all) one.join();
		});
		sample("switch", took / (2 * rounds), "ns", "");
	}

	void message() throws Exception {
		final int rounds = 300_000, end = -1;
		SynchronousQueue<Integer> asked = new SynchronousQueue<>(), answered = new SynchronousQueue<>();
		Thread server = start(() -> {
			for (int request; (request = asked.take()) != end; ) answered.put(request + 1);
		});
		double took = nanoseconds(() -> {
			for (int i = 0; i < rounds; i++) {
				asked.put(i);
				check(answered.take() == i + 1, "a wrong answer");
			}
		});
		sample("roundtrip", took / rounds, "ns", "");
		asked.put(end);
		server.join();
	}

	// A filter for each prime, created by the preceding filter. Returns the number and the sum of
	// the primes. A 0 is the end.
	long[] filter(SynchronousQueue<Integer> from) throws Exception {
		int prime = from.take();
		SynchronousQueue<Integer> to = null;
		Thread next = null;
		long[] rest = {0, 0};
		for (int n; (n = from.take()) != 0; ) {
			if (n % prime == 0) continue;
			if (to == null) {
				SynchronousQueue<Integer> queue = to = new SynchronousQueue<>();
				next = start(() -> {
					long[] found = filter(queue);
					rest[0] = found[0];
					rest[1] = found[1];
				});
			}
			to.put(n);
		}
		if (to != null) {
			to.put(0);
			next.join();
		}
		return new long[] {rest[0] + 1, rest[1] + prime};
	}

	void sieve(String part, int limit, long primes, long sum, int rounds) throws Exception {
		if (!wants(part)) return;
		double took = nanoseconds(() -> {
			for (int i = 0; i < rounds; i++) {
				SynchronousQueue<Integer> first = new SynchronousQueue<>();
				long[][] found = new long[1][];
				Thread filters = start(() -> found[0] = filter(first));
				for (int n = 2; n <= limit; n++) first.put(n);
				first.put(0);
				filters.join();
				check(found[0][0] == primes && found[0][1] == sum, "wrong primes");
			}
		});
		sample(part, took / rounds / 1e9, "s", "");
	}

	void sieve() throws Exception {
		sieve("primes700", 700, 125, 39_612, 20);
		sieve("primes2000", 17_389, 2000, 16_274_627, 1);
	}

	// As `kumihimo_bench_kit::work::spin`.
	static long spin(long x, int rounds) {
		for (int i = 0; i < rounds; i++) {
			x ^= x << 13;
			x ^= x >>> 7;
			x ^= x << 17;
		}
		return x;
	}

	void mutex() throws Exception {
		final int contenders = 64, rounds = value("rounds", 20_000);
		double took = nanoseconds(() -> {
			ReentrantLock lock = new ReentrantLock();
			long[] guarded = {0, 1};
			AtomicLong kept = new AtomicLong();
			CountDownLatch gate = new CountDownLatch(1);
			Thread[] all = new Thread[contenders];
			for (int i = 0; i < contenders; i++) {
				long seed = i + 1;
				all[i] = start(() -> {
					gate.await();
					long own = seed;
					for (int n = 0; n < rounds; n++) {
						lock.lock();
						try {
							guarded[0]++;
							guarded[1] = spin(guarded[1], INSIDE);
						} finally {
							lock.unlock();
						}
						own = spin(own, OUTSIDE);
					}
					kept.addAndGet(own);
				});
			}
			gate.countDown();
			for (Thread one : all) one.join();
			check(guarded[0] == (long) contenders * rounds, "a lost update");
		});
		sample("ops", contenders * (double) rounds / (took / 1e9), "1/s", "");
	}

	// --- creation

	void nullFork() throws Exception {
		if (wants("sequential")) {
			final int count = 200_000;
			double took = nanoseconds(() -> {
				for (int i = 0; i < count; i++) start(() -> {}).join();
			});
			sample("sequential", took / count, "ns", "");
		}
		if (wants("bulk")) {
			final int count = value("count", CROWD);
			for (String metric : new String[] {"bulk_cold", "bulk_warm"}) {
				long start = System.nanoTime();
				CountDownLatch gate = new CountDownLatch(1);
				Thread[] made = new Thread[count];
				for (int i = 0; i < count; i++) made[i] = start(gate::await);
				gate.countDown();
				for (Thread one : made) one.join();
				double took = System.nanoTime() - start;
				sample(metric, took / count, "ns", "alive_max:=" + count);
			}
		}
	}

	long node(long first, long leaves) throws Exception {
		if (leaves == 1) return first;
		long share = leaves / 10;
		long[] sums = new long[10];
		Thread[] children = new Thread[10];
		for (int i = 0; i < 10; i++) {
			int child = i;
			children[i] = start(() -> sums[child] = node(first + child * share, share));
		}
		long total = 0;
		for (int i = 0; i < 10; i++) {
			children[i].join();
			total += sums[i];
		}
		return total;
	}

	void skynet() throws Exception {
		double took = nanoseconds(() -> check(node(0, 1_000_000) == 499_999_500_000L, "a wrong sum"));
		sample("total", took / 1e9, "s", "");
		sample("peak_rss", status("VmHWM:"), "bytes", "");
	}

	static long status(String name) throws IOException {
		for (String line : Files.readAllLines(Path.of("/proc/self/status")))
			if (line.startsWith(name)) return Long.parseLong(line.replaceAll("\\D", "")) << 10;
		throw new IOException("/proc/self/status has no " + name);
	}

	void parked() throws Exception {
		final int count = value("count", CROWD);
		AtomicLong stands = new AtomicLong();
		CountDownLatch gate = new CountDownLatch(1);
		Thread[] made = new Thread[count];
		System.gc();
		long before = status("VmRSS:");
		for (int i = 0; i < count; i++) {
			int own = i;
			made[i] = start(() -> {
				int[] kept = {own};
				stands.incrementAndGet();
				gate.await();
				check(kept[0] == own, "a lost stack");
			});
		}
		while (stands.get() < count) LockSupport.parkNanos(1_000_000);
		double rss = (status("VmRSS:") - before) / (double) count;
		String stack = keys.getOrDefault("stack", "default");
		sample("rss", rss, "bytes", "count=" + count + " stack=" + stack + " alive_max:=" + count);
		gate.countDown();
		for (Thread one : made) one.join();
	}
}
