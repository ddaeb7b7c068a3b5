import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** Sends back what it receives, with a platform thread for each connection. */
public class Echo {
    public static void main(String[] words) throws IOException {
        int port = Integer.parseInt(words[0]);
        ServerSocket server = new ServerSocket(port, 1024, InetAddress.getLoopbackAddress());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("stopped in order")));
        while (true) {
            Socket connection = server.accept();
            Thread thread = new Thread(() -> serve(connection));
            thread.setDaemon(true);
            thread.start();
        }
    }

    static void serve(Socket connection) {
        try (connection) {
            connection.setTcpNoDelay(true);
            InputStream in = connection.getInputStream();
            OutputStream out = connection.getOutputStream();
            byte[] buffer = new byte[8192];
            for (int n; (n = in.read(buffer)) > 0; ) {
                out.write(buffer, 0, n);
            }
        } catch (IOException error) {
            System.err.println(error);
        }
    }
}
