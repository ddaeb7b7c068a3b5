# Threads, queues, monitors, time-outs and processes of Ruby.
require 'open3'
require 'socket'
require 'timeout'

queue = Queue.new
threads = 200.times.map { |i| Thread.new { sleep 0.01; queue << i } }
threads.each(&:join)
sum = 0
sum += queue.pop until queue.empty?
puts sum

mutex = Mutex.new
count = 0
8.times.map { Thread.new { 2000.times { mutex.synchronize { count += 1 } } } }.each(&:join)
puts count

server = TCPServer.new('127.0.0.1', 0)
accepting = Thread.new do
  loop { Thread.new(server.accept) { |c| c.each_line { |line| c.write(line.upcase) }; c.close } }
end
clients = 20.times.map do |i|
  Thread.new do
    socket = TCPSocket.new('127.0.0.1', server.addr[1])
    answers = 20.times.map { |j| socket.puts("line #{i} #{j}"); socket.gets }
    socket.close
    answers.join
  end
end
wanted = 20.times.map { |i| 20.times.map { |j| "LINE #{i} #{j}\n" }.join }
puts clients.map(&:value) == wanted
puts clients.map(&:value).sum(&:length)
accepting.kill
accepting.join

begin
  Timeout.timeout(0.05) { sleep }
rescue Timeout::Error
  puts 'timed out'
end
out = 10.times.map { |i| Thread.new { Open3.capture2('cat', stdin_data: "child #{i}\n")[0] } }
puts out.map(&:value).join
puts 'a thread and its error: ' + (Thread.new { Thread.current.report_on_exception = false; raise 'x' }.join rescue $!.message)
