/* Preloaded into a process: chosen calls on files below chosen folders fail, as a bad or full disk makes them.
 *
 * BAD_DISK="CALL:ERRNO:SKIP:COUNT:FOLDER" (several with a semicolon): of CALL (open, openw, read, write, fsync, rename, mkdir,
 * stat, list) on a path or descriptor below FOLDER the first SKIP go through, then COUNT fail with ERRNO (-1: all from there on).
 * BAD_DISK_LOG: a file that gets a line for each call that was made to fail.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct rule { char call[16]; int error; long skip, count; char folder[PATH_MAX]; };
static struct rule rules[16];
static int known = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void learn(void) {
    const char *told = getenv("BAD_DISK");
    known = 0;
    while (told && *told && known < 16) {
        struct rule *one = &rules[known];
        int used = 0;
        if (sscanf(told, "%15[^:]:%d:%ld:%ld:%4095[^;]%n", one->call, &one->error, &one->skip, &one->count, one->folder, &used) != 5) break;
        known++;
        told += used;
        if (*told == ';') told++;
    }
}

/* For a process that was forked from one with this library loaded, and has an environment of its own by now. */
void bad_disk_anew(void) {
    pthread_mutex_lock(&lock);
    known = -1;
    pthread_mutex_unlock(&lock);
}

static int below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

static int fails(const char *call, const char *path) {
    int error = 0;
    pthread_mutex_lock(&lock);
    if (known < 0) learn();
    for (int i = 0; i < known && !error; i++) {
        struct rule *one = &rules[i];
        if (strcmp(one->call, call) || !below(path, one->folder)) continue;
        if (one->skip > 0) { one->skip--; continue; }
        if (one->count == 0) continue;
        if (one->count > 0) one->count--;
        error = one->error;
    }
    pthread_mutex_unlock(&lock);
    const char *log = error ? getenv("BAD_DISK_LOG") : NULL;
    if (log) {
        int (*plain)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
        int file = plain(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (file >= 0) { dprintf(file, "%s %d %s\n", call, error, path); close(file); }
    }
    if (error) errno = error;
    return error;
}

static int fails_at(const char *call, int directory, const char *path) {
    char whole[PATH_MAX * 2], link[64];
    if (path[0] == '/') return fails(call, path);
    if (directory == AT_FDCWD) { if (!getcwd(whole, PATH_MAX)) return 0; }
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t got = readlink(link, whole, PATH_MAX - 1);
        if (got < 0) return 0;
        whole[got] = 0;
    }
    strncat(whole, "/", sizeof whole - strlen(whole) - 1);
    strncat(whole, path, sizeof whole - strlen(whole) - 1);
    return fails(call, whole);
}

static int fails_on(const char *call, int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got < 0) return 0;
    path[got] = 0;
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define OPENS(directory, path, flags) (fails_at("open", directory, path) || (WRITES(flags) && fails_at("openw", directory, path)))

#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                            \
        mode_t mode = 0;                                                    \
        if (flags & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        return OPENS(AT_FDCWD, path, flags) ? -1 : REAL(name)(path, flags, mode);  \
    }
#define OPENAT(name)                                                        \
    int name(int directory, const char *path, int flags, ...) {             \
        mode_t mode = 0;                                                    \
        if (flags & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        return OPENS(directory, path, flags) ? -1 : REAL(name)(directory, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
ssize_t read(int fd, void *to, size_t n) { return fails_on("read", fd) ? -1 : REAL(read)(fd, to, n); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { return fails_on("read", fd) ? -1 : REAL(pread64)(fd, to, n, at); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { return fails_on("read", fd) ? -1 : REAL(pread)(fd, to, n, at); }
ssize_t preadv(int fd, const struct iovec *to, int n, off_t at) { return fails_on("read", fd) ? -1 : REAL(preadv)(fd, to, n, at); }
ssize_t preadv64(int fd, const struct iovec *to, int n, off64_t at) { return fails_on("read", fd) ? -1 : REAL(preadv64)(fd, to, n, at); }
ssize_t preadv2(int fd, const struct iovec *to, int n, off_t at, int flags) { return fails_on("read", fd) ? -1 : REAL(preadv2)(fd, to, n, at, flags); }
ssize_t preadv64v2(int fd, const struct iovec *to, int n, off64_t at, int flags) { return fails_on("read", fd) ? -1 : REAL(preadv64v2)(fd, to, n, at, flags); }
ssize_t write(int fd, const void *from, size_t n) { return fails_on("write", fd) ? -1 : REAL(write)(fd, from, n); }
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) { return fails_on("write", fd) ? -1 : REAL(pwrite)(fd, from, n, at); }
ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) { return fails_on("write", fd) ? -1 : REAL(pwrite64)(fd, from, n, at); }
int fsync(int fd) { return fails_on("fsync", fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails_on("fsync", fd) ? -1 : REAL(fdatasync)(fd); }
int mkdir(const char *path, mode_t mode) { return fails_at("mkdir", AT_FDCWD, path) ? -1 : REAL(mkdir)(path, mode); }
int rename(const char *from, const char *to) { return fails_at("rename", AT_FDCWD, to) ? -1 : REAL(rename)(from, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    return fails_at("rename", b, to) ? -1 : REAL(renameat2)(a, from, b, to, flags);
}
#define STAT(name, kind) int name(const char *path, struct kind *to) { return fails_at("stat", AT_FDCWD, path) ? -1 : REAL(name)(path, to); }
#define STATAT(name, kind) int name(int at, const char *path, struct kind *to, int flags) { return fails_at("stat", at, path) ? -1 : REAL(name)(at, path, to, flags); }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)
struct dirent *readdir(DIR *of) { return fails_on("list", dirfd(of)) ? NULL : REAL(readdir)(of); }
struct dirent64 *readdir64(DIR *of) { return fails_on("list", dirfd(of)) ? NULL : REAL(readdir64)(of); }
