// A wall clock of its own for one process, to be loaded with LD_PRELOAD.
//
// WALL_CLOCK_OFFSET names a file of eight bytes, a signed number of seconds in
// the machine's byte order. It is added to the time of day, whatever it is at
// that moment; monotonic clocks stay as they are. This is what programs see
// when an operator or NTP sets the clock of their machine.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* offset;

__attribute__((constructor)) static void open_offset(void) {
  const char* path = getenv("WALL_CLOCK_OFFSET");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void* found = MAP_FAILED;
  if (fd >= 0) {
    found = mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
  }
  if (found == MAP_FAILED) {
    fprintf(stderr, "wall_clock: WALL_CLOCK_OFFSET=%s cannot be mapped\n",
            path ? path : "");
    _exit(2);
  }
  offset = found;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  // Others may ask before this library's constructor has run.
  if (!failed && offset &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += *offset;
  }
  return failed;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec precise;
  (void)zone;  // Obsolete, and never set by Linux's C libraries.
  if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* result) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}
