// OpenSSL above kumi_tcp_read(3) and kumi_tcp_write(3), with a certificate made at start.
#ifndef TLS_HPP
#define TLS_HPP

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <kumihimo.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// A SHA-256 digest, of which the state may lie across a wait.
class digest {
 public:
  explicit digest(const std::string& text) : state_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr);
    EVP_DigestUpdate(state_.get(), text.data(), text.size());
  }

  std::string finish() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_DigestFinal_ex(state_.get(), bytes, &length);
    return std::string(reinterpret_cast<char*>(bytes), length);
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> state_;
};

namespace tls {

inline int descriptor(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

inline int read(BIO* bio, char* data, int length) {
  std::size_t count = 0;
  int error = kumi_tcp_read(descriptor(bio), data, static_cast<std::size_t>(length), &count,
                            KUMI_FOREVER);
  return error == 0 ? static_cast<int>(count) : -1;
}

inline int write(BIO* bio, const char* data, int length) {
  int error = kumi_tcp_write(descriptor(bio), data, static_cast<std::size_t>(length), nullptr,
                             KUMI_FOREVER);
  return error == 0 ? length : -1;
}

inline long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH; }

/// The methods of a BIO whose waits block the microprocess.
inline const BIO_METHOD* methods() {
  static BIO_METHOD* made = [] {
    BIO_METHOD* methods = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "kumihimo");
    BIO_meth_set_read(methods, read);
    BIO_meth_set_write(methods, write);
    BIO_meth_set_ctrl(methods, control);
    return methods;
  }();
  return made;
}

/// A context with a key and a certificate that it has signed itself.
inline std::shared_ptr<SSL_CTX> context() {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  if (SSL_CTX_use_certificate(context.get(), certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    throw std::runtime_error("no certificate");
  }
  return context;
}

/// One side of a connection; closes the socket at its end.
class stream {
 public:
  stream(SSL_CTX* context, int socket, bool is_server)
      : socket_(socket), ssl_(SSL_new(context), SSL_free) {
    BIO* bio = BIO_new(methods());
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    int done = is_server ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get());
    if (done != 1) {
      kumi_tcp_close(socket_);
      throw std::runtime_error("no handshake");
    }
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() {
    ssl_.reset();
    kumi_tcp_close(socket_);
  }

  void send(const std::string& text) {
    if (SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) <= 0) {
      throw std::runtime_error("cannot send");
    }
  }

  std::string receive() {
    char data[256];
    int count = SSL_read(ssl_.get(), data, sizeof data);
    if (count <= 0) throw std::runtime_error("cannot receive");
    return std::string(data, static_cast<std::size_t>(count));
  }

 private:
  int socket_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
};

/// Makes connections at once, each between two microprocesses. Returns whether all replies are
/// right.
inline bool talk(int connections) {
  auto shared = context();
  int listener = -1;
  kumihimo::detail::check(kumi_tcp_listen(&listener, "127.0.0.1:0"));
  sockaddr_in bound{};
  socklen_t length = sizeof bound;
  getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &length);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));

  std::vector<kumihimo::future<void>> servers;
  std::vector<kumihimo::future<bool>> clients;
  for (int i = 0; i < connections; i++) {
    clients.push_back(kumihimo::async([&, i] {
      int socket = -1;
      kumihimo::detail::check(kumi_tcp_connect(&socket, address.c_str(), KUMI_FOREVER));
      stream peer(shared.get(), socket, false);
      const std::string text = "client " + std::to_string(i);
      peer.send(text);
      return peer.receive() == text;
    }));
  }
  for (int i = 0; i < connections; i++) {
    int socket = -1;
    kumihimo::detail::check(kumi_tcp_accept(&socket, listener, KUMI_FOREVER));
    servers.push_back(kumihimo::async([&, socket] {
      stream peer(shared.get(), socket, true);
      peer.send(peer.receive());
    }));
  }
  bool right = true;
  for (auto& one : clients) right = one.get() && right;
  for (auto& one : servers) one.get();
  kumi_tcp_close(listener);
  return right;
}

}  // namespace tls

#endif
