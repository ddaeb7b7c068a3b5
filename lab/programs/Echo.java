// An echo server with a thread per connection: `Echo PORT platform|virtual`.

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.Executor;

public class Echo {
	public static void main(String[] words) throws Exception {
		Executor threads = words[1].equals("virtual") ? virtual() : Echo::platform;
		ServerSocket listener = new ServerSocket();
		listener.bind(
			new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(words[0])), 4096);
		while (true) {
			Socket socket = listener.accept();
			threads.execute(() -> serve(socket));
		}
	}

	// By name, because the class has to load on releases before 21.
	static Executor virtual() throws Exception {
		Class<?> executors = Class.forName("java.util.concurrent.Executors");
		return (Executor) executors.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
	}

	static void platform(Runnable body) {
		Thread thread = new Thread(body, "connection");
		thread.setDaemon(true);
		thread.start();
	}

	static void serve(Socket socket) {
		try (socket) {
			socket.setTcpNoDelay(true);
			InputStream input = socket.getInputStream();
			OutputStream output = socket.getOutputStream();
			byte[] buffer = new byte[256];
			for (int got; (got = input.read(buffer)) > 0; ) output.write(buffer, 0, got);
		} catch (IOException error) {
			System.err.println(error);
		}
	}
}
