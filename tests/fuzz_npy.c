/* A libFuzzer target for the .npy reader of the command line: a file that is read has as many bytes as its shape says,
 * and is written and read again unchanged. */
#include "cli/npy.c"

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

mt_status cli_error(mt_error *error, mt_status code, const char *where, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error->code = code;
    snprintf(error->where, sizeof error->where, "%s", where ? where : "");
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return code;
}

static void require(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    mt_error error;
    npy read, again;
    char path[64];
    const int file = memfd_create("npy", 0);
    require(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (npy_read(&read, path, &error) == MT_OK) {
        require(read.rank >= 1 && read.rank <= NPY_RANK && read.bytes <= size);
        size_t count = 1;
        for (int d = 0; d < read.rank; d++) {
            require(read.extent[d] >= 1);
            count *= (size_t)read.extent[d];
        }
        require(read.bytes % count == 0);
        require(npy_write(path, read.type, read.rank, read.extent, read.data, read.bytes, &error) == MT_OK);
        require(npy_read(&again, path, &error) == MT_OK);
        require(!strcmp(again.type, read.type) && again.rank == read.rank && again.bytes == read.bytes);
        require(!memcmp(again.extent, read.extent, sizeof read.extent) && !memcmp(again.data, read.data, read.bytes));
        free(again.data);
    }
    free(read.data);
    close(file);
    return 0;
}
