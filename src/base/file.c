/* Files: mapped whole, read whole, or replaced whole. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a regular file for reading; *size is its length. Returns the descriptor or -1 with *error filled. */
static int open_regular(const char *path, size_t *size, mt_error *error) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block us */
    if (fd < 0) {
        error_errno(error, path, "cannot open");
        return -1;
    }
    struct stat s;
    if (fstat(fd, &s)) {
        error_errno(error, path, "cannot read the file's size");
    } else if (!S_ISREG(s.st_mode)) {
        error_set(error, MT_E_IO, path,
                  S_ISDIR(s.st_mode) ? "this is a directory, not a file" : "this is not a regular file");
    } else {
        *size = (size_t)s.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

mt_status file_map_open(file_map *m, const char *path, mt_error *error) {
    *m = (file_map){0};
    const int fd = open_regular(path, &m->size, error);
    if (fd < 0) return MT_E_IO;
    mt_status status = MT_OK;
    if (m->size) {
        void *p = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            status = error_errno(error, path, "cannot map the file into memory");
            m->size = 0;
        } else {
            m->data = p;
        }
    }
    close(fd);
    return status;
}

void file_map_close(file_map *m) {
    if (m->data) munmap((void *)m->data, m->size);
    *m = (file_map){0};
}

mt_status file_read(text *out, const char *path, size_t limit, mt_error *error) {
    size_t size;
    const int fd = open_regular(path, &size, error);
    if (fd < 0) return MT_E_IO;
    mt_status status = MT_OK;
    if (size > limit)
        status = error_set(error, MT_E_LIMIT, path, "the file has %zu bytes; at most %zu are read", size, limit);
    char block[65536];
    for (size_t total = 0; status == MT_OK;) {
        const ssize_t n = read(fd, block, sizeof block);
        if (n == 0) break;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = error_errno(error, path, "cannot read");
        } else if ((total += (size_t)n) > limit) {
            status = error_set(error, MT_E_LIMIT, path, "the file grew past %zu bytes while it was read", limit);
        } else {
            text_append(out, block, (size_t)n);
        }
    }
    close(fd);
    if (status == MT_OK && out->failed) status = error_set(error, MT_E_MEMORY, path, "no memory for %zu bytes", size);
    return status;
}

/* What is there already and is not a file stays: a device, a pipe, a folder must not be replaced by a file. Behind a
 * symbolic link, its target is replaced. */
mt_status file_write_atomic(const char *path, const void *data, size_t size, mt_error *error) {
    struct stat there;
    char *const target = realpath(path, NULL); /* NULL: there is nothing yet */
    const bool other = target && !stat(target, &there) && !S_ISREG(there.st_mode);
    text name = {0};
    text_printf(&name, "%s.XXXXXX", target ? target : path);
    mt_status status = MT_OK;
    if (other)
        status = error_set(error, MT_E_IO, path, "cannot write: what is there is not a regular file");
    else if (name.failed)
        status = error_set(error, MT_E_MEMORY, path, "no memory for a file name");
    if (status != MT_OK) goto cleanup;
    const int fd = mkostemp(name.data, O_CLOEXEC);
    if (fd < 0) {
        status = error_errno(error, path, "cannot create a temporary file beside it");
        goto cleanup;
    }
    for (size_t done = 0; done < size && status == MT_OK;) {
        const ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            status = error_errno(error, path, "cannot write");
    }
    if (status == MT_OK && fchmod(fd, 0644)) status = error_errno(error, path, "cannot set the file's mode");
    if (close(fd) && status == MT_OK) status = error_errno(error, path, "cannot finish writing");
    if (status == MT_OK && rename(name.data, target ? target : path))
        status = error_errno(error, path, "cannot move the finished file into place");
    if (status != MT_OK) unlink(name.data);
cleanup:
    text_free(&name);
    free(target);
    return status;
}

mt_status file_make_folders(const char *path, mt_error *error) {
    text part = {0};
    mt_status status = MT_OK;
    const size_t length = strlen(path);
    for (size_t i = 1; i <= length && status == MT_OK; i++) {
        if (i < length && path[i] != '/') continue;
        part.length = 0;
        text_append(&part, path, i);
        if (part.failed)
            status = error_set(error, MT_E_MEMORY, path, "no memory for a folder's name");
        else if (mkdir(part.data, 0700) && errno != EEXIST)
            status = error_errno(error, part.data, "cannot make the folder");
    }
    text_free(&part);
    return status;
}

mt_status file_cache_folder(text *out, mt_error *error) {
    const char *chosen = getenv("MONOTILE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const size_t start = out->length;
    if (chosen && *chosen)
        text_string(out, chosen);
    else if (xdg && *xdg == '/')
        text_printf(out, "%s/monotile", xdg);
    else if (home && *home == '/')
        text_printf(out, "%s/.cache/monotile", home);
    else
        return error_set(error, MT_E_IO, NULL, "no cache folder: set MONOTILE_CACHE or HOME");
    if (out->failed) return error_set(error, MT_E_MEMORY, NULL, "no memory for the cache folder's name");
    return file_make_folders(out->data + start, error);
}
