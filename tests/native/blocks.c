/* What blocks in C: a library with a condition variable of its own, vfork, and page faults that user mode answers. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int value;

/* Waits for a value other than 0, and takes it. */
int c_cond_wait(void) {
    pthread_mutex_lock(&lock);
    while (value == 0)
        pthread_cond_wait(&changed, &lock);
    int got = value;
    value = 0;
    pthread_mutex_unlock(&lock);
    return got;
}

static void *signaller(void *to) {
    pthread_mutex_lock(&lock);
    value = *(int *)to;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Gives a value, by a thread of the library's own. 0 or an errno. */
int c_cond_signal(int to) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, signaller, &to);
    return error ? error : pthread_join(thread, NULL);
}

/* vfork: the child waits for a byte from `gate`, then becomes a shell that ends with 7. The caller sleeps uninterruptibly until then.
   Returns the child, or minus an errno. */
int c_vfork(int gate) {
    pid_t child = vfork();
    if (child == 0) {
        char byte;
        if (read(gate, &byte, 1) == 1)
            execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
        _exit(127);
    }
    return child < 0 ? -errno : child;
}

/* A userfaultfd for first touches in user mode of the pages given. A descriptor, or minus an errno. */
int c_faults(void *at, unsigned long bytes) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0)
        return -errno;
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register pages = {.range = {(unsigned long)at, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &pages)) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

/* Waits for a fault and answers it, and all that lie behind it in the pages given, with `from`. 0 or an errno. */
int c_answer_fault(int fd, void *to, const void *from, unsigned long bytes) {
    struct uffd_msg fault;
    if (read(fd, &fault, sizeof fault) != sizeof fault)
        return errno;
    if (fault.event != UFFD_EVENT_PAGEFAULT || fault.arg.pagefault.address - (unsigned long)to >= bytes)
        return EINVAL;
    struct uffdio_copy copy = {.dst = (unsigned long)to, .src = (unsigned long)from, .len = bytes};
    return ioctl(fd, UFFDIO_COPY, &copy) ? errno : 0;
}

static void jump_out(int fd, jmp_buf *to) {
    unsigned char byte = 0;
    longjmp(*to, read(fd, &byte, 1) == 1 ? byte : -1);
}

/* Reads a byte two frames deeper, and jumps out of there: returns the byte. */
int c_longjmp_over_a_read(int fd) {
    jmp_buf here;
    int got = setjmp(here);
    if (got == 0)
        jump_out(fd, &here);
    return got;
}
