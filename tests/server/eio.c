/* Makes reads or writes of chosen files fail with EIO, as a dying disk does. Preloaded into a process.

   The file named by EIO_CONTROL says what fails while it exists: "read", "write" or "sync", a part of the
   paths, and how many such calls succeed before. The library counts per process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int done;

static int fails(const char *kind, int fd) {
    const char *control = getenv("EIO_CONTROL");
    char wanted[16] = "", part[200] = "", said[256] = "", link[64], path[4096];
    int before = 0, saved = errno;
    if (!control) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (file < 0) { errno = saved; return 0; }
    ssize_t length = syscall(SYS_read, file, said, sizeof said - 1);
    syscall(SYS_close, file);
    errno = saved;
    if (length <= 0 || sscanf(said, "%15s %199s %d", wanted, part, &before) < 2 || strcmp(wanted, kind)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t end = syscall(SYS_readlink, link, path, sizeof path - 1);
    errno = saved;
    if (end <= 0) return 0;
    path[end] = 0;
    if (!strstr(path, part) || atomic_fetch_add(&done, 1) < before) return 0;
    errno = EIO;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILING(type, kind, name, declared, ...) \
    type name declared { return fails(kind, fd) ? -1 : REAL(name)(fd, ##__VA_ARGS__); }

FAILING(ssize_t, "read", read, (int fd, void *data, size_t size), data, size)
FAILING(ssize_t, "read", pread, (int fd, void *data, size_t size, off_t at), data, size, at)
FAILING(ssize_t, "read", pread64, (int fd, void *data, size_t size, off64_t at), data, size, at)
FAILING(ssize_t, "read", readv, (int fd, const struct iovec *data, int count), data, count)
FAILING(ssize_t, "write", write, (int fd, const void *data, size_t size), data, size)
FAILING(ssize_t, "write", pwrite, (int fd, const void *data, size_t size, off_t at), data, size, at)
FAILING(ssize_t, "write", pwrite64, (int fd, const void *data, size_t size, off64_t at), data, size, at)
FAILING(ssize_t, "write", writev, (int fd, const struct iovec *data, int count), data, count)
FAILING(int, "sync", fsync, (int fd))
FAILING(int, "sync", fdatasync, (int fd))
