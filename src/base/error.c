/* Filling the caller's error record. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>

const char *mt_status_name(mt_status status) {
    static const char *const names[] = {"MT_OK",        "MT_E_MEMORY",   "MT_E_IO",          "MT_E_FORMAT",
                                        "MT_E_SYNTAX",  "MT_E_ARGUMENT", "MT_E_UNSUPPORTED", "MT_E_LIMIT",
                                        "MT_E_COMPILE", "MT_E_HANG",     "MT_E_INTERNAL"};
    return (unsigned)status < COUNT_OF(names) ? names[status] : "an unknown status";
}

static void fill(mt_error *error, mt_status code, const char *where, const char *format, va_list arguments) {
    error->code = code;
    snprintf(error->where, sizeof error->where, "%s", where ? where : "");
    vsnprintf(error->message, sizeof error->message, format, arguments);
}

mt_status error_set(mt_error *error, mt_status code, const char *where, const char *format, ...) {
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        fill(error, code, where, format, arguments);
        va_end(arguments);
    }
    return code;
}

mt_status error_errno(mt_error *error, const char *where, const char *format, ...) {
    const int saved = errno;
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        fill(error, MT_E_IO, where, format, arguments);
        va_end(arguments);
        const size_t used = strlen(error->message);
        char reason[128] = "";
        const char *said = strerror_r(saved, reason, sizeof reason); /* the GNU variant may return its own string */
        snprintf(error->message + used, sizeof error->message - used, ": %s", said);
    }
    return MT_E_IO;
}
