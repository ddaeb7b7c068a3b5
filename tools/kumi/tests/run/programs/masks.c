/* Main blocks all signals while the other threads of the process are stopped by a tracer: whatever
 * waits for their answer asks more than once. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void *return_at_once(void *argument) {
    return argument;
}

/* Stops each thread of the parent but its first, and lets go of them by its own end. */
static int trace(pid_t parent, int asked, int ready) {
    char byte;
    char folder[64];
    if (read(asked, &byte, 1) != 1) return 1;
    snprintf(folder, sizeof folder, "/proc/%d/task", parent);
    DIR *tasks = opendir(folder);
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        pid_t tid = atoi(task->d_name);
        if (tid == 0 || tid == parent) continue;
        if (ptrace(PTRACE_SEIZE, tid, 0, 0) != 0) return 2;
        if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) != 0) return 2;
        if (waitpid(tid, NULL, __WALL) != tid) return 3;
    }
    if (write(ready, "", 1) != 1) return 4;
    usleep(300000);
    return 0;
}

int main(void) {
    int ask[2], answer[2];
    pid_t parent = getpid();
    if (pipe(ask) != 0 || pipe(answer) != 0) return 1;
    pid_t tracer = fork();
    if (tracer == 0) _exit(trace(parent, ask[0], answer[1]));
    prctl(PR_SET_PTRACER, tracer);

    pthread_t thread;
    sigset_t all, before;
    char byte;
    int status;
    if (pthread_create(&thread, NULL, return_at_once, NULL) != 0) return 2;
    pthread_join(thread, NULL);
    if (write(ask[1], "", 1) != 1 || read(answer[0], &byte, 1) != 1) return 3;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (waitpid(tracer, &status, 0) != tracer || status != 0) return 4;
    puts("ok");
    return 0;
}
