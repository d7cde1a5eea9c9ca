/* The first process of a pod: holds its namespaces, reaps orphans, ends at SIGTERM or SIGINT. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig) { (void)sig; _exit(0); }
static void reap(int sig) { (void)sig; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(void) {
	struct sigaction ends = {.sa_handler = end}, reaps = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
	if (sigaction(SIGINT, &ends, 0) || sigaction(SIGTERM, &ends, 0) || sigaction(SIGCHLD, &reaps, 0)) return 1;
	for (;;) pause();
}
