import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.LongStream;

/** What a virtual machine does with threads, one part for each word of the command line. */
public class Threads {
    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "gc" -> collect();
            case "interrupt" -> interrupt();
            case "streams" -> stream();
            case "faults" -> fault();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** 300 threads allocate and wait, beside collections that stop them all. */
    static void collect() throws Exception {
        AtomicLong sum = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            int size = 10_000 + i;
            Thread thread = new Thread(() -> {
                byte[][] kept = new byte[20][];
                for (int j = 0; j < 200; j++) {
                    kept[j % 20] = new byte[size];
                    kept[j % 20][j] = 1;
                    if (j % 50 == 0) {
                        LockSupport.parkNanos(1_000_000);
                    }
                    synchronized (Threads.class) {
                        sum.addAndGet(kept[j % 20][j]);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (int i = 0; i < 5; i++) {
            System.gc();
            Thread.sleep(20);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(sum);
        System.out.println(Thread.getAllStackTraces().size() > 2);
    }

    /** A sleep, a park, a wait and a take of a queue, each interrupted. */
    static void interrupt() throws Exception {
        Object monitor = new Object();
        SynchronousQueue<String> queue = new SynchronousQueue<>();
        Waiting[] all = {
            () -> Thread.sleep(3_600_000),
            () -> {
                while (!Thread.interrupted()) {
                    LockSupport.park();
                }
                throw new InterruptedException();
            },
            () -> {
                synchronized (monitor) {
                    monitor.wait();
                }
            },
            queue::take,
        };
        for (Waiting waiting : all) {
            for (int i = 0; i < 50; i++) {
                boolean[] interrupted = new boolean[1];
                Thread thread = new Thread(() -> {
                    try {
                        waiting.run();
                    } catch (InterruptedException error) {
                        interrupted[0] = true;
                    }
                });
                thread.start();
                if (i % 2 == 0) {
                    Thread.sleep(2);
                }
                thread.interrupt();
                thread.join();
                if (!interrupted[0]) {
                    System.out.println("not interrupted");
                }
            }
        }
        System.out.println("all interrupted");
    }

    interface Waiting {
        void run() throws InterruptedException;
    }

    static void stream() throws Exception {
        System.out.println(LongStream.range(0, 5_000_000).parallel().map(x -> x * x % 7).sum());
        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<Long>> parts = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            long from = i * 1000L;
            parts.add(pool.submit(() -> LongStream.range(from, from + 1000).sum()));
        }
        long sum = 0;
        for (Future<Long> part : parts) {
            sum += part.get();
        }
        pool.shutdown();
        System.out.println(sum);
    }

    /** Errors that the virtual machine learns by SIGSEGV. */
    static void fault() throws Exception {
        for (int i = 0; i < 3; i++) {
            boolean[] overflowed = new boolean[1];
            Thread thread = new Thread(() -> {
                try {
                    System.out.println(recurse(0));
                } catch (StackOverflowError error) {
                    overflowed[0] = true;
                }
            });
            thread.start();
            thread.join();
            System.out.println("overflow " + overflowed[0]);
        }
        int caught = 0;
        Object[] objects = {null};
        for (int i = 0; i < 30_000; i++) {
            try {
                caught += objects[0].hashCode();
            } catch (NullPointerException error) {
                caught++;
            }
        }
        System.out.println("null " + caught);
    }

    static int recurse(int depth) {
        return recurse(depth + 1) + 1;
    }
}
